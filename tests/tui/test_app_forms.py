"""What people write into fields, and the settings file."""

import pytest
from textual.widgets import Input

from cbtui.burst import make_burst
from cbtui.forms import BURST_FIELDS, REQUEST_FIELDS, BurstSpec, read_burst, read_request, texts_of
from cbtui.launch import RequestSpec
from cbtui.prompts import counts, parse_stop_strings, write_stop_strings
from cbtui.settings import Settings, SettingsFile, from_toml, to_toml
from tests.tui.fake_model import FakeTokenizer
from tests.tui.stage import playing, rendered


def test_a_request_survives_the_way_into_the_fields_and_back():
    spec = RequestSpec(
        "text", max_new_tokens=7, stop_strings=("\n\n", '"'), copies=3, temperature=0.7, top_k=50, top_p=0.9, seed=42
    )
    assert read_request(RequestSpec("text"), texts_of(spec, REQUEST_FIELDS)) == (spec, {})


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("top_p", "1.3", "top_p must be greater than 0 and at most 1"),
        ("top_p", "0", "top_p must be greater than 0 and at most 1"),
        ("top_p", "nan", "top_p must be greater than 0 and at most 1"),
        ("top_k", "-1", "top_k must be a whole number of at least 0"),
        ("temperature", "warm", "temperature must be a number at least 0 and at most 100"),
        ("max_new_tokens", "", "max new tokens must be a whole number of at least 1"),
        ("copies", "1.5", "copies must be a whole number from 1 to 256"),
        ("seed", "-3", f"seed must be a whole number from 0 to {2**63 - 1}"),
        ("stop_strings", '"a', 'stop strings are quoted and between commas, as in "\\n\\n", "###"'),
        ("stop_strings", '""', "a stop string must hold at least one character"),
    ],
)
def test_a_wrong_field_is_named_with_its_range_and_the_others_are_kept(name, text, error):
    texts = {**texts_of(RequestSpec(seed=5), REQUEST_FIELDS), name: text}
    spec, errors = read_request(RequestSpec(), texts)
    assert errors == {name: error}
    if name != "seed":
        assert spec.seed == 5


def test_empty_sampling_fields_mean_off():
    texts = {**texts_of(RequestSpec(), REQUEST_FIELDS), "temperature": "", "top_k": " ", "top_p": "", "seed": ""}
    assert read_request(RequestSpec(), texts) == (RequestSpec(), {})


def test_stop_strings_with_and_without_quotes():
    assert parse_stop_strings(r'"\n\n", "###"') == ("\n\n", "###")
    assert parse_stop_strings("END, STOP") == ("END", "STOP")
    assert parse_stop_strings("") == ()
    for words in [("a, b", "ü"), ('"', "\\")]:
        assert parse_stop_strings(write_stop_strings(words)) == words


def test_tokens_of_text_and_template():
    tokenizer = FakeTokenizer()
    assert counts(tokenizer, "the rain ran", chat=True) == (3, 2)
    assert counts(tokenizer, "the rain ran", chat=False) == (3, 0)


def test_burst_ranges_must_not_be_upside_down():
    texts = {**texts_of(BurstSpec(), BURST_FIELDS), "prompt_min": "9", "prompt_max": "3", "shared": "9", "new_max": "1"}
    _, errors = read_burst(texts)
    assert errors == {
        "prompt_max": "must be at least 9",
        "new_max": "must be at least 16",
        "shared": "must be less than 9, the shortest prompt",
    }


def test_a_burst_is_repeatable_and_keeps_its_ranges():
    spec = BurstSpec(count=40, prompt_min=5, prompt_max=9, new_min=2, new_max=4, per_second=10.0, shared=3, seed=1)
    burst = make_burst(spec, FakeTokenizer())
    assert burst == make_burst(spec, FakeTokenizer())
    times = [due for due, _ in burst]
    assert times == sorted(times) and times[0] == 0.0 and 1.0 < times[-1] < 10.0
    heads = {request.prompt_ids[:3] for _, request in burst}
    assert len(heads) == 1
    assert {len(request.prompt_ids) for _, request in burst} == set(range(5, 10))
    assert {request.max_new_tokens for _, request in burst} == {2, 3, 4}


def test_a_burst_without_a_rate_comes_at_once():
    burst = make_burst(BurstSpec(count=3, per_second=0.0), FakeTokenizer())
    assert [due for due, _ in burst] == [0.0, 0.0, 0.0]


def test_settings_are_remembered(tmp_path):
    first = SettingsFile(tmp_path)
    assert first.settings == Settings() and first.problem is None
    first.save(theme="light", ascii=True)
    assert SettingsFile(tmp_path).settings == Settings(theme="light", ascii=True)


def test_settings_keep_the_keymap_of_a_person(tmp_path):
    (tmp_path / "settings.toml").write_text('theme = "light"\n[keymap]\npause = "P"\nstep = ["x", "f5"]\n')
    store = SettingsFile(tmp_path)
    assert store.settings.keymap == {"pause": ("P",), "step": ("x", "f5")}
    store.save(theme="dark")
    assert SettingsFile(tmp_path).settings.keymap == {"pause": ("P",), "step": ("x", "f5")}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("theme = ", "Invalid value"),
        ("colour = 'red'", "unknown setting 'colour'"),
        ("ascii = 'yes'", "ascii must be true or false"),
        ("keymap = 3", "keymap must be a table"),
        ("[keymap]\npause = 3", "keymap.pause must be a key name"),
    ],
)
def test_a_file_that_is_not_understood_is_told_and_not_written_over(tmp_path, text, problem):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    store = SettingsFile(tmp_path)
    assert store.problem is not None and problem in store.problem
    assert store.settings == Settings()
    store.save(theme="light")
    assert store.settings.theme == "light"
    assert path.read_text() == text


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "taken").write_text("a file, not a folder")
    store = SettingsFile(tmp_path / "taken")
    assert "settings.toml" in store.save(theme="light")
    assert store.problem is not None
    assert store.save(order="blocks") == "", "it is told once"
    assert store.settings.theme == "light"


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    folder = tmp_path / "taken" / "cbtui"
    store = SettingsFile(folder)
    (tmp_path / "taken").write_text("came in between")
    assert store.problem is None
    said = store.save(theme="light")
    assert said.startswith("choices like this one are not kept") and str(folder) in said
    assert SettingsFile(tmp_path / "works").save(theme="light") == ""


def test_toml_round_trip():
    import tomllib

    settings = Settings(theme='a"b\\c', keymap={"pause": ("P",)})
    assert from_toml(tomllib.loads(to_toml(settings))) == settings


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_the_add_dialog_takes_every_parameter_and_stays_whole(tmp_path, size):
    async with playing(tmp_path, size=size) as play:
        await play.press("a")
        await play.type("rain")
        await play.tick()
        shown = rendered(play)
        for word in ("PROMPT", "min_p", "further", "would start at step 1", "Add request", "esc cancel"):
            assert word in shown, word
        further = play.app.screen.query_one("#further", Input)
        further.value = "repetition_penalti=1.3"
        await play.pilot.pause()
        assert "repetition_penalti is not known; did you mean repetition_penalty?" in rendered(play)
        further.value = "repetition_penalty=1.3"
        play.app.screen.query_one("#min_p", Input).value = "0.1"
        play.app.screen.query_one("#temperature", Input).value = "0.5"
        await play.press("enter")
        await play.tick()
        (_, wanted) = next((args, wanted) for args, wanted in play.manager.named("add_request"))
        assert (wanted["min_p"], wanted["repetition_penalty"], wanted["temperature"]) == (0.1, 1.3, 0.5)

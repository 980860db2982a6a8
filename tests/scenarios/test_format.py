"""Scenario files: what is read from them, and the sentence each mistake gets."""

from dataclasses import replace
from pathlib import Path

import pytest

from cbtui.launch import RequestSpec
from cbtui.scenarios import ScenarioError, all_scenarios, find_scenario
from cbtui.scenarios.figures import ENGINE, GROUP, REQUEST
from cbtui.scenarios.find import BUNDLED, ORDER
from cbtui.scenarios.plot import EVENTS, Part, When
from cbtui.scenarios.prompts import frame_of, prepare, prompt_of
from cbtui.scenarios.read import read_scenario
from tests.cli.tiny_files import make_tokenizer
from tests.scenarios.run import play, tiny_loaded

HEAD = 'title = "A title"\nteaches = "What it teaches, in a sentence."\n'
REQUEST_A = '[[requests]]\nname = "A"\ntext = "Hello"\nmax_new_tokens = 4\n'
CAPTION = '[[captions]]\nat = 1\ntext = "Step {step}"\n'
SMALLEST = HEAD + REQUEST_A + CAPTION


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_smallest_scenario(tmp_path):
    scenario = read_scenario(write(tmp_path, SMALLEST))
    assert (scenario.name, scenario.title, scenario.model, scenario.rate, scenario.mode) == (
        "mine", "A title", "demo", 4.0, 1,
    )  # fmt: skip
    part = scenario.parts[0]
    assert part.when == When(at=0) and part.spec.text == "Hello" and part.spec.ignore_eos
    assert scenario.captions[0].pause and scenario.captions[0].short == "Step {step}"


def test_everything_a_file_may_say(tmp_path):
    text = (
        (
            'title = "All of it"\nteaches = "Every field there is, once."\nmodel = "demo-hybrid"\nneeds = "window"\n'
            'rate = 2.5\nmode = 3\nmap_view = "fill"\n'
            'host_blocks = 8\n[config]\nnum_blocks = 32\nscheduler_type = "fifo"\n'
            '[[requests]]\nname = "A"\ngroup = "pair"\nat = 3\ntext = "Why?"\ntokens = 60\ntopic = "rain"\n'
            "max_new_tokens = 9\ntemperature = 0.5\ntop_k = 3\ntop_p = 0.5\nseed = 4\ncopies = 2\nchat = false\n"
            "ignore_eos = false\n"
            '[[commands]]\nwhen = "first_token"\nof = "A"\nnth = 1\nafter = 2\ncancel = "pair"\n'
            "[[commands]]\nat = 9\nset = { safety_margin = 0.5 }\n[[commands]]\nat = 11\npause = true\n"
            '[[captions]]\nwhen = "ends"\nof = "pair"\npause = false\ntext = "{pair.output} of {A-2}"\nshort = "{A}"\n'
        )
        .replace("{A-2}", "{pair.size}")
        .replace('"{A}"', '"short {A}"')
    )
    scenario = read_scenario(write(tmp_path, text))
    assert (scenario.needs, scenario.host_blocks, scenario.map_view, scenario.mode) == ("window", 8, "fill", 3)
    assert scenario.members == {"A": ("A", "A-2"), "pair": ("A", "A-2")}
    assert [command.kind for command in scenario.commands] == ["cancel", "set", "pause"]
    assert scenario.commands[0].when == When(-1, "first_token", "A", 1, 2)
    spec = scenario.parts[0].spec
    assert (spec.temperature, spec.top_k, spec.top_p, spec.seed, spec.copies) == (0.5, 3, 0.5, 4, 2)
    assert not spec.chat and not spec.ignore_eos and not scenario.captions[0].pause


MISTAKES = [
    ("title = 3\n" + REQUEST_A + CAPTION, "title = 3 must be a text of 3 to 48 characters"),
    ("title = ", "is not TOML: "),
    (REQUEST_A + CAPTION, "title is missing; it must be a text"),
    (HEAD + "colour = 1\n" + REQUEST_A + CAPTION, "colour is not known; there are title, teaches, model"),
    (HEAD + "rate = 0\n" + REQUEST_A + CAPTION, "rate = 0 must be a number from 0.25 to 1000"),
    (HEAD + "mode = 7\n" + REQUEST_A + CAPTION, "mode = 7 must be a whole number from 1 to 6"),
    (HEAD + "mode = true\n" + REQUEST_A + CAPTION, "mode = True must be a whole number"),
    (HEAD + 'needs = "speed"\n' + REQUEST_A + CAPTION, "needs = 'speed' must be one of window"),
    (HEAD + "[config]\npage_sise = 4\n" + REQUEST_A + CAPTION, "config: page_sise is no field of the configuration"),
    (HEAD + "[config]\npage_size = 2\n" + REQUEST_A + CAPTION, "config: page_size=2 "),
    (HEAD + "host_blocks = 4\n[config]\ncpu_offload_space = 1\n" + REQUEST_A + CAPTION, "say the same"),
    (HEAD + "requests = []\n" + CAPTION, "requests holds 0 of them; give 1 to 200"),
    (HEAD + 'captions = []\n' + REQUEST_A, "captions holds 0 of them; give 1 to 12"),
    (HEAD + REQUEST_A.replace("4\n", "0\n") + CAPTION, "requests, number 1: max_new_tokens = 0 must be"),
    (HEAD + REQUEST_A.replace('text = "Hello"\n', "") + CAPTION, "the request has neither text nor tokens"),
    (HEAD + REQUEST_A + 'topic = "sea"\n' + CAPTION, "topic fills a prompt up to tokens; give tokens too"),
    (HEAD + REQUEST_A + 'at = 1\nwhen = "ends"\n' + CAPTION, "give either at (a step) or when (an event)"),
    (HEAD + REQUEST_A + "at = 1\nnth = 2\n" + CAPTION, "nth goes with when (an event), not with at"),
    (HEAD + REQUEST_A + 'when = "lunch"\n' + CAPTION, "when = 'lunch' must be one of arrives, refused"),
    (HEAD + REQUEST_A + REQUEST_A + CAPTION, "the name 'A' is given twice"),
    (HEAD + REQUEST_A + 'group = "A"\n' + CAPTION, "'A' names a request and a group"),
    (HEAD + REQUEST_A + 'when = "ends"\nof = "Z"\n' + CAPTION, "of = 'Z' is no request or group; there are A"),
    (SMALLEST + '[[commands]]\nat = 1\ncancel = "Z"\n', "commands, number 1: cancel = 'Z' is no request or group"),
    (SMALLEST + "[[commands]]\nat = 1\n", "commands, number 1: give exactly one of cancel, set and pause"),
    (SMALLEST + "[[commands]]\nat = 1\nset = { page_size = 8 }\n", "set changes what can change"),
    (SMALLEST + '[[commands]]\ncancel = "A"\n', "commands, number 1: give either at (a step) or when (an event)"),
    (HEAD + REQUEST_A + CAPTION.replace("{step}", "{speed}"), "text: {speed} is no figure; there are step"),
    (HEAD + REQUEST_A + CAPTION.replace("{step}", "{A.speed}"), "{A.speed}: A has no figure 'speed'; there are prompt"),
    (HEAD + REQUEST_A + CAPTION.replace("{step}", "{step:>4}"), "{step:>4}: behind the colon stands what is counted"),
    (HEAD + REQUEST_A + CAPTION.replace("{step}", "{key.fly}"), "{key.fly}: there is no action 'fly'"),
    (HEAD + REQUEST_A + CAPTION.replace("{step}", "{step"), "captions, number 1: text: "),
    (HEAD + REQUEST_A + CAPTION.replace("Step", "Step by step " * 7), "characters; add short, of at most 74"),
]  # fmt: skip


@pytest.mark.parametrize("text, sentence", MISTAKES, ids=[sentence[:40] for _, sentence in MISTAKES])
def test_a_mistake_names_the_file_the_field_the_value_and_the_limit(tmp_path, text, sentence):
    path = write(tmp_path, text)
    with pytest.raises(ScenarioError) as caught:
        read_scenario(path)
    assert str(caught.value).startswith(str(path)) and sentence in str(caught.value), str(caught.value)


def test_a_wrong_field_is_told_with_those_there_are(tmp_path):
    with pytest.raises(ScenarioError) as caught:
        read_scenario(write(tmp_path, HEAD + "[config]\nnum_blocs = 2\n" + REQUEST_A + CAPTION))
    said = str(caught.value)
    assert "num_blocs is no field of the configuration; did you mean num_blocks? there are " in said
    assert all(name in said for name in ("page_size", "max_batch_tokens", "safety_margin"))


def test_a_prompt_too_short_names_the_file(tmp_path):
    found = replace(read_scenario(write(tmp_path, SMALLEST)), parts=(part(tokens=5, text="Why?"),))
    with pytest.raises(ScenarioError, match=r"mine\.toml: request A: tokens = 5 is too short"):
        prepare(found, make_tokenizer())


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ScenarioError, match=r"nothing\.toml cannot be read: "):
        find_scenario(str(tmp_path / "nothing.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"title = '\xff'")
    with pytest.raises(ScenarioError, match="is not UTF-8"):
        find_scenario(str(tmp_path / "bytes.toml"))
    with pytest.raises(ScenarioError, match="there is no scenario 'lunch'"):
        find_scenario("lunch", tmp_path)


def test_a_persons_own_scenarios_stand_behind_those_of_the_package(tmp_path):
    folder = tmp_path / "scenarios"
    folder.mkdir()
    write(folder, SMALLEST, "own.toml")
    write(folder, "title = ", "broken.toml")
    write(folder, SMALLEST, "sampling.toml")
    shelf = all_scenarios(tmp_path)
    assert [scenario.name for scenario in shelf.scenarios] == [*ORDER, "own"]
    assert len(shelf.problems) == 2 and "broken.toml is not TOML" in shelf.problems[0]
    assert "the name 'sampling' is taken" in shelf.problems[1]
    assert find_scenario("own", tmp_path).title == "A title"
    assert shelf.after("own").name == ORDER[0] and shelf.after(ORDER[0]).name == ORDER[1]


def test_the_package_holds_the_scenarios_it_names_and_no_others():
    assert sorted(path.stem for path in BUNDLED.iterdir()) == sorted(ORDER)


def test_the_bundled_ones_are_written_to_be_read():
    for scenario in all_scenarios(Path("/nonexistent")).scenarios:
        assert 3 <= len(scenario.captions) <= 6 and scenario.teaches.endswith(".")
        assert scenario.model in ("demo", "demo-hybrid")


def test_the_names_of_events_and_figures_do_not_collide():
    assert not set(ENGINE) & set(EVENTS) - {"refused", "cancelled"}
    assert all(words for words in EVENTS.values())
    assert "key" not in {*ENGINE, *REQUEST, *GROUP}


def test_a_counted_noun_is_singular_for_one_only(tmp_path):
    words = "{A.output:new token}, {A.prompt:token}, {A.blocks:block}, {evictions:eviction}"
    text = SMALLEST.replace("Step {step}", words)
    told = play(read_scenario(write(tmp_path, text)), tiny_loaded()).told
    assert [words for _, words in told] == [("1 new token, 7 tokens, 1 block, 0 evictions",)]


def test_a_counted_noun_takes_room_in_a_caption(tmp_path):
    for noun, fits in (("", True), (":token", False)):
        caption = CAPTION.replace("Step {step}", "x" * 70 + "{step" + noun + "}")
        path = write(tmp_path, HEAD + REQUEST_A + caption)
        if fits:
            assert read_scenario(path).captions
        else:
            with pytest.raises(ScenarioError, match="text has 80 characters; add short"):
                read_scenario(path)


def part(**fields):
    return Part("A", When(at=0), RequestSpec(text=fields.pop("text", "")), **fields)


@pytest.mark.parametrize("tokens", [40, 41, 200])
def test_prompts_have_the_length_that_is_asked_for(tokens):
    tokenizer = make_tokenizer()
    ids = prompt_of(part(tokens=tokens, topic="rain", text="Why?"), tokenizer)
    assert len(ids) == tokens
    text = tokenizer.decode(list(ids))
    assert text.startswith("<Rain goes for a walk") and text.endswith(". Why?>")


def test_the_same_topic_begins_alike_and_another_does_not():
    tokenizer = make_tokenizer()
    one, two = (prompt_of(part(tokens=100, topic="rain", text=text), tokenizer) for text in ("Why?", "How so?"))
    other = prompt_of(part(tokens=100, topic="snow", text="Why?"), tokenizer)
    assert one[:80] == two[:80] and one != two
    assert one[:30] != other[:30]


def test_a_prompt_that_cannot_be_so_short():
    with pytest.raises(ScenarioError, match=r"tokens = 5 is too short.* take 8; give at least that many"):
        prompt_of(part(tokens=5, text="Why?"), make_tokenizer())


def test_the_template_is_what_two_texts_have_in_common():
    frame, tokenizer = frame_of(make_tokenizer(), True), make_tokenizer()
    assert (tokenizer.decode(list(frame.before)), tokenizer.decode(list(frame.behind))) == ("<", ">")
    assert frame_of(make_tokenizer(), False) == type(frame)((), ())


def test_all_mistakes_are_told_at_once_each_in_its_own_line(tmp_path):
    text = (
        'title = "A"\ncolour = 1\n[config]\npage_sise = 4\npage_size = 2\n'
        + REQUEST_A.replace("4\n", "0\n") + "tokens = 0\n" + CAPTION.replace("at = 1\n", "")
        + '[[captions]]\nat = 1\ntext = "by {Q.gap}"\n[[commands]]\nat = 1\ncancel = "Z"\n'
    )  # fmt: skip
    path = write(tmp_path, text)
    with pytest.raises(ScenarioError) as caught:
        read_scenario(path)
    head, *lines = str(caught.value).splitlines()
    assert head == f"{path} has 10 mistakes"
    for line, start in zip(lines, (
        "title = 'A' must be a text of 3 to 48", "colour is not known", "teaches is missing", "config: page_sise is no",
        "config: page_size=2 ", "requests, number 1: max_new_tokens = 0 must be", "requests, number 1: tokens = 0 must",
        "captions, number 1: give either at", "commands, number 1: cancel = 'Z'", "captions, number 2: text: {Q.gap}",
    ), strict=True):  # fmt: skip
        assert line.startswith(f"  {start}"), (line, start)


def test_many_mistakes_are_told_up_to_a_number(tmp_path):
    text = SMALLEST + "".join(f"[[commands]]\nat = {n}\n" for n in range(1, 30))
    with pytest.raises(ScenarioError) as caught:
        read_scenario(write(tmp_path, text))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("has 29 mistakes") and len(lines) == 22 and lines[-1] == "  and 9 more"


def test_a_file_without_what_must_be_there_says_all_of_it(tmp_path):
    with pytest.raises(ScenarioError) as caught:
        read_scenario(write(tmp_path, "[[requests]]\n[[captions]]\n"))
    said = str(caught.value)
    for word in ("title is", "teaches is", "name is", "max_new_tokens is", "neither text nor", "text is", "at (a"):
        assert word in said, word

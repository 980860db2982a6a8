"""A script on a real engine with a thread: the same steps as without one; captions that come late or not at all."""

import time
from pathlib import Path

import pytest

from cbtui.scenarios import ScenarioError, find_scenario
from cbtui.scenarios.desk import ScriptFollower
from cbtui.scenarios.prompts import prepare
from cbtui.scenarios.read import read_scenario
from cbtui.scenarios.script import Script
from cbtui.scenarios.telling import check_model
from cbtui.start import make_manager, watchable_config
from tests.scenarios.run import play, run_of, tiny_loaded

HEAD = 'title = "A scene"\nteaches = "What a test needs to see."\n[config]\nnum_blocks = 16\nsafety_margin = 0.0\n'
PATIENCE = 60.0
"""Seconds; only a hang takes so long."""


def scene(folder: Path, text: str):
    path = folder / "scene.toml"
    path.write_text(HEAD + text)
    return read_scenario(path)


def request(name: str, new: int = 4, more: str = "") -> str:
    return f'[[requests]]\nname = "{name}"\ntokens = 20\ntopic = "rain"\nmax_new_tokens = {new}\n{more}\n'


def caption(when: str, text: str = "Step {step}") -> str:
    return f'[[captions]]\n{when}\ntext = "{text}"\n'


GAP = (
    request("A") + caption('when = "ends"\nof = "A"') + request("B", more='when = "ends"\nof = "A"\nafter = 9')
    + caption('when = "first_token"\nof = "B"') + request("C", more="at = 50") + caption("at = 9")
)  # fmt: skip
"""Nobody is there while captions are read."""


@pytest.mark.parametrize("name", ["offload", "rush-hour", "gap"])
@pytest.mark.parametrize("pauses", [False, True])
def test_a_thread_at_full_speed_makes_the_steps_of_a_run_without_one(pauses, name, tmp_path):
    """Where captions pause it, a person changes the pace and lets it go again: the steps are the same, and their
    numbers too.
    """
    scenario, loaded = scene(tmp_path, GAP) if name == "gap" else find_scenario(name), tiny_loaded()
    config = {**scenario.config, "host_blocks": scenario.host_blocks}
    manager = make_manager(loaded, config, watchable_config(loaded))
    script = Script(scenario, prepare(scenario, loaded.tokenizer), pauses=pauses)
    manager.tap.attach()
    manager.start()
    try:
        manager.follow(ScriptFollower(script))
        end = time.monotonic() + PATIENCE
        while not script.over:
            assert time.monotonic() < end
            if manager.status.state == "held":
                manager.set_rate(500.0)
                manager.hold()
                manager.step_once()
                manager.set_rate(None)
                manager.resume()
            time.sleep(0.002)
        records, missed = manager.tap.read(0)
    finally:
        manager.stop(hard_stop=True, timeout=PATIENCE)
    assert not missed
    run = play(scenario, loaded) if name == "gap" else run_of(name)
    assert _made(records) == _made(run.records.values())
    assert [moment.caption for moment in script.moments] == [moment.caption for moment, _ in run.told]


def _made(records):
    made = {record.step: [(s.seq, s.kind, s.query, s.past) for s in record.slices] for record in records}
    return {step: slices for step, slices in made.items() if slices}


def test_a_request_comes_with_the_step_it_names_and_an_idle_engine_does_not_wait(tmp_path):
    scenario = scene(
        tmp_path,
        request("A") + request("B", more="at = 3") + request("C", more="at = 500")
        + request("D", more='when = "ends"\nof = "C"\nafter = 90') + caption("at = 1"),
    )  # fmt: skip
    run = play(scenario, tiny_loaded())
    assert run.arrived("B") == 3 and len(run.slices(3)) == 2
    assert run.arrived("C") == run.ended("B") + 1  # nobody is there, so no step passes until it comes
    assert run.arrived("D") == run.ended("C") + 1


def test_one_caption_after_a_step_and_the_others_in_turn(tmp_path):
    together = [caption('when = "first_token"\nof = "A"'), caption('when = "arrives"\nof = "A"'), caption("at = 1")]
    run = play(scene(tmp_path, request("A") + "".join(together)), tiny_loaded())
    assert [moment.caption for moment, _ in run.told] == [0, 1, 2]
    assert [texts[0] for _, texts in run.told] == ["Step 1", "Step 1", "Step 3"]  # events keep their own step


def test_a_caption_whose_event_never_comes_holds_up_no_other(tmp_path):
    captions = caption('when = "offload"') + caption('when = "ends"\nof = "A"', "{A.output} and {A.gap}, {B.ttft}")
    scenario = scene(tmp_path, request("A") + request("B", more='when = "offload"') + captions)
    run = play(scenario, tiny_loaded())
    assert [(moment.caption, texts[0]) for moment, texts in run.told] == [(1, "4 and 1, --")]  # B never came


def test_events_are_counted_and_may_be_of_a_group(tmp_path):
    group = 'group = "pair"'
    captions = caption('when = "first_token"\nnth = 2', "second: {who}")
    captions += caption('when = "ends"\nof = "pair"', "the end")
    run = play(scene(tmp_path, request("A", 3, group) + request("B", 9, group + "\nat = 2") + captions), tiny_loaded())
    assert run.told[0][1][0] == "second: B"
    assert run.told[1][0].step == run.ended("B") > run.ended("A")


def test_copies_share_their_name(tmp_path):
    text = request("A", 3, "copies = 3") + caption('when = "ends"\nof = "A"', "{A.size} wrote {A.output}")
    run = play(scene(tmp_path, text), tiny_loaded())
    assert run.told[0][1][0] == "3 wrote 9"


def test_a_setting_the_engine_refuses_is_acknowledged_as_refused(tmp_path):
    text = request("A") + "[[commands]]\nat = 2\nset = { max_batch_tokens = 4096 }\n" + caption("at = 1")
    run = play(scene(tmp_path, text), tiny_loaded())
    acks = [ack for record in run.records.values() for ack in record.commands if ack.kind == "config"]
    assert [ack.accepted for ack in acks] == [False] and "buffers" in acks[0].detail
    assert len(run.tokens("A", max(run.records))) == 4


def test_ignoring_the_end_of_the_text_gives_all_tokens():
    loaded = tiny_loaded()
    loaded.model.generation_config.eos_token_id = list(range(90))
    run = play(find_scenario("never-fits"), loaded)
    assert len(run.tokens("A", max(run.records))) == 50


def test_a_model_without_windows_cannot_show_them():
    with pytest.raises(ScenarioError, match="tiny has no sliding-window layers"):
        check_model(find_scenario("sliding-window"), tiny_loaded())
    check_model(find_scenario("sliding-window"), tiny_loaded("gemma2"))
    check_model(find_scenario("offload"), tiny_loaded())

"""Actions on the engine: pause, steps, pace, stop and start, run until, and what comes back of them."""

import pytest

from cbtui.screens.small import ChoiceDialog, ConfirmDialog, ValueDialog
from cbtui.view.figures import figures
from cbtui.view.scene import Scene
from engine.core.observe import CommandAck
from tests.tui.stage import playing, rendered


async def test_space_pauses_and_runs(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("space")
        assert play.manager.named("hold") == [((), {})]
        await play.tick()
        assert "paused at step 1" in play.notice
        assert play.app.chrome.engine == "held"
        assert next(hint for hint in play.app.chrome.keys if hint.action == "pause").label == "run"
        await play.press("space")
        assert play.manager.named("resume") == [((), {})]


async def test_commands_while_paused_do_not_make_a_request_look_stalled(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=30)
        await play.tick(3)
        await play.press("space")
        await play.tick()
        await play.press("minus")
        await play.tick()
        rows = [line for line in play.text.splitlines() if " decode " in line and "/30" in line]
        assert len(rows) == 2 and "stalled" not in play.text


async def test_one_step_and_n_steps(tmp_path):
    async with playing(tmp_path) as play:
        await play.add()
        await play.press("full_stop")
        await play.press("n")
        assert isinstance(play.app.screen, ValueDialog)
        await play.press("2", "5", "enter")
        assert play.manager.named("step_once") == [((1,), {}), ((25,), {})]


async def test_n_steps_refuses_what_is_no_number(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("n", "x", "enter")
        assert isinstance(play.app.screen, ValueDialog)
        await play.press("escape")
        assert play.manager.named("step_once") == []


async def test_pace_goes_down_and_up_a_ladder(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("minus", "minus", "plus", "plus", "plus")
        assert [args[0] for args, _ in play.manager.named("set_rate")] == [50.0, 20.0, 50.0, None, None]
        for _ in range(12):
            await play.press("minus")
        assert play.manager.named("set_rate")[-1][0] == (0.25,)
        assert play.app.chrome.rate == 0.25


async def test_in_the_timeline_the_same_keys_zoom(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("4", "plus", "plus", "minus")
        assert play.app.chrome.zoom == 64
        assert play.manager.named("set_rate") == []


async def test_stop_finishes_what_was_accepted(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=4)
        await play.press("s")
        await play.tick(1)
        assert play.app.chrome.engine == "draining"
        await play.press("s")
        assert play.notice == "stop: the engine is already finishing its work"
        await play.press("a")
        assert play.notice == "add: the engine is stopping and takes nothing new"
        await play.tick(20)
        assert play.app.chrome.engine == "stopped"
        assert {story.finish_reason for story in play.app.session.state.stories.values()} == {"length"}


async def test_a_stop_asked_for_by_mistake_says_what_can_be_done(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=30)
        await play.press("s")
        await play.tick(2)
        assert play.app.chrome.engine == "draining"
        assert "STOPPING" in play.text and "LIVE" not in play.text
        await play.press("S")
        assert "finishing its work; X ends it at once, and then S starts it again" in play.notice
        await play.press("X", "y")
        await play.tick()
        assert play.app.chrome.engine == "stopped" and "LIVE" not in play.text
        await play.press("S")
        await play.tick()
        assert play.app.chrome.engine == "running"


async def test_hard_stop_wants_y_and_nothing_else(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2)
        for answer in ("enter", "space", "x", "X"):
            await play.press("X", answer)
            assert isinstance(play.app.screen, ConfirmDialog)
            await play.press("n")
        assert play.manager.named("stop") == []
        await play.press("X", "y")
        assert play.manager.named("stop") == [((), {"block": False, "hard_stop": True})]
        await play.tick()
        assert play.app.chrome.engine == "stopped"
        assert {story.finish_reason for story in play.app.session.state.stories.values()} == {"stopped"}


async def test_start_again_builds_a_new_engine_on_the_loaded_model(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("S")
        assert play.notice == "start: the engine is running"
        await play.add(1)
        await play.press("X", "y")
        await play.tick()
        assert "S" in {hint.keys for hint in play.app.chrome.keys}
        await play.press("S")
        await play.tick()
        assert len(play.stage.managers) == 2 and play.stage.managers[0].destroyed
        assert play.app.chrome.engine == "running"
        await play.add(1)
        await play.tick(3)
        assert play.labels == ["A", "B"], "what the engine before did stays in the list"


async def test_what_has_to_wait_for_a_long_step_is_said_to_have_been_heard(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        step = play.manager.status.step
        await play.press("c")
        assert "asked" not in play.notice
        play.manager.hang()
        play.stage.clock.pass_(2.0)
        await play.press("space")
        assert play.notice == f"pause: asked, takes effect when step {step + 1} ends, 2.0 s now"


async def test_a_step_that_hangs_can_be_given_up(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        play.manager.hang()
        play.stage.clock.pass_(2.0)
        await play.tick()
        assert play.app.chrome.step_seconds == 2.0
        await play.press("X", "y")
        play.stage.clock.pass_(6.0)
        await play.tick()
        assert play.notice == "the step does not come back, 8 s now; X can give the engine up"
        assert "give up" in {hint.label for hint in play.app.chrome.keys}
        await play.press("X")
        assert "Give the engine up" in rendered(play)
        await play.press("y")
        await play.tick()
        assert "given up" in play.app.chrome.error
        await play.press("c")
        assert play.notice == "cancel: the engine was given up; S starts a new one"
        await play.press("S")
        await play.tick()
        assert len(play.stage.managers) == 2 and not play.stage.managers[0].destroyed
        assert play.app.chrome.engine == "running"


async def test_run_until_offers_conditions(tmp_path):
    pytest.importorskip("engine.manager")
    async with playing(tmp_path) as play:
        await play.press("b")
        assert isinstance(play.app.screen, ChoiceDialog)
        await play.press("3")
        await play.press("b", "5", "7", "enter")
        conditions = [args[0] for args, _ in play.manager.named("run_until")]
        assert len(conditions) == 2




@pytest.mark.parametrize(
    ("ack", "words"),
    [
        (("rate", "None"), "full speed from step 9"),
        (("rate", "2.0"), "at most 2 steps per second from step 9"),
        (("step", "5"), "5 steps from step 9, then a pause"),
        (("resume", "end"), "running from step 9 until a request ends"),
        (("pause", "", True, "the end of sequence 0 in step 8"), "paused: the end of A in step 8"),
        (("config", "safety_margin", True, "0.5"), "from step 9: safety_margin is 0.5"),
        (("config", "allow_block_sharing", True, "False"), "from step 9: allow_block_sharing is off"),
        (("rate", "-1", False, "too slow"), "rate -1 refused: too slow"),
    ],
)
async def test_commands_come_back_as_sentences(tmp_path, ack, words):
    async with playing(tmp_path) as play:
        await play.add()
        said = []
        feed = play.app.session._feed
        feed._say = lambda text, kind, unless: said.append(text)
        kind, target, accepted, detail = (*ack, True, "")[:4] if len(ack) == 2 else ack
        feed._tell(CommandAck(1, kind, target, accepted, detail), 9)
        assert said == [words]


async def test_settings_that_changed_together_are_one_sentence(tmp_path):
    async with playing(tmp_path) as play:
        await play.add()
        play.manager.set_config(safety_margin=0.5, max_batch_tokens=16)
        await play.tick(1)
        assert play.notice == "from step 2: safety_margin is 0.5, max_batch_tokens is 16"


async def test_settings_have_the_names_of_their_options(tmp_path):
    async with playing(tmp_path) as play:
        await play.add()
        play.manager.set_config(scheduler_type="prefill_first")
        await play.tick(1)
        assert "setting scheduler_type = prefill_first" in play.text
        assert "policy" not in play.text
        scene = Scene.of(play.app.session.state, play.app.chrome, play.app.look)
        figure = next(figure for figure in figures(scene) if figure.name == "policy")
        assert (figure.title, figure.value) == ("scheduler_type", "prefill_first")

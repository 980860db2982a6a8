"""How an engine begins: all is there before its first step, every step is recorded, a failure changes nothing."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from cbtui.app import MonitorApp
from cbtui.configuration import ConfigChange
from cbtui.launch import LaunchOptions, RequestSpec
from cbtui.session import Session
from cbtui.work import InlineWorker
from engine.core.errors import ConfigError
from engine.core.observe import Verdict
from engine.core.options import ContinuousBatchingConfig
from engine.manager import ContinuousBatchingManager
from tests.tiny import tiny_model
from tests.tui.fake_model import FakeLoaded, FakeTokenizer
from tests.tui.stage import PROMPT, playing
from tests.tui.test_app_states import LaterWorker, late_session

WAIT_SECONDS = 20.0
TWO = (RequestSpec("old stones", max_new_tokens=12), RequestSpec("rain ran", max_new_tokens=12))


class Eager(ContinuousBatchingManager):
    """Lets the engine run on for some steps whenever its caller could be quicker than it is."""

    def start(self) -> None:
        super().start()
        self._let_run()

    def add_request(self, *args: Any, **wanted: Any) -> str | None:
        name = super().add_request(*args, **wanted)
        if self.is_running():
            self._let_run()
        return name

    def _let_run(self) -> None:
        """Until it has made three steps, has nothing to do, or waits for the next beat of a slow pace."""
        engine = self._worker.engine
        wait(lambda: self.status.step >= 3 or engine.pace.held or engine.pace.rate or not engine.has_work)


def wait(met: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not met():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


class Real:
    """A session on real engines. Its questions are answered only when the test says so: the slowest worker there is."""

    def __init__(self, tmp_path: Any, queue: int = 0, **launch: Any) -> None:
        self.queue = queue
        self.model = tiny_model("llama")
        self.asked = LaterWorker()
        options = LaunchOptions(
            "tiny", lambda progress: FakeLoaded("tiny", FakeTokenizer()), self._make, prompts=TWO, config_dir=tmp_path,
            **launch,
        )  # fmt: skip
        self.session = Session(
            options, make_worker=lambda name: self.asked if name == "cbtui-ask" else InlineWorker()
        )
        self.session.load()

    def _make(self, loaded: Any, changes: Any) -> Eager:
        config = {"page_size": 4, "num_blocks": 40, "max_batch_tokens": 32, "max_requests_per_batch": 6,
                  "max_queue_size": self.queue, **changes}  # fmt: skip
        return Eager(self.model, config=ContinuousBatchingConfig(**config))

    def poll(self) -> None:
        self.session.poll(0.0)
        self.asked.run()
        self.session.poll(0.0)

    def until(self, met: Callable[[], bool]) -> None:
        def looked() -> bool:
            self.poll()
            return met()

        wait(looked)

    @property
    def stories(self) -> list[Any]:
        return [] if self.session.state is None else list(self.session.state.stories.values())

    def all_done(self) -> bool:
        return bool(self.stories) and all(story.ended >= 0 for story in self.stories)


@pytest.fixture
def real(tmp_path, request):
    made = Real(tmp_path, **getattr(request, "param", {}))
    yield made
    made.session.close(WAIT_SECONDS)


def test_all_prompts_are_in_the_first_step_and_it_is_recorded(real):
    real.until(real.all_done)
    state = real.session.state
    assert [(story.label, story.arrived) for story in real.stories] == [("A", 1), ("B", 1)]
    assert "2 requests queued at step 1" in [notice.text for notice in real.session.take_notices()]
    first = state.history.record(1)
    assert {part.seq for part in first.slices} == {0, 1}, "both run in the first step that computes"
    assert (state.series.first, len(state.series)) == (1, state.step)
    assert [entry.step for entry in state.log if entry.kind == Verdict.ADMIT.value] == [1, 1]
    assert first.invariants == (), "the first step of a watched engine is checked"


@pytest.mark.parametrize("real", [{"paused": True}], indirect=True)
def test_a_restart_of_a_held_engine_is_held_with_all_its_requests(real):
    real.until(lambda: len(real.stories) == 2)
    session = real.session
    assert session.engine == "held"
    rehearsed = session.manager.rehearse(page_size=8)
    session.apply_config(ConfigChange({}, {"page_size": 8}, "again"))
    real.until(lambda: len(real.stories) == 4)
    assert session.engine == "held" and session.state.pauses.held
    border = session.state.border
    assert [story.arrived for story in real.stories[2:]] == [border + 1] * 2
    session.command("step_once", 1)
    real.until(lambda: session.state.batch(session.state.picture).slices)
    record = session.state.batch(session.state.picture)
    assert (sum(part.query for part in record.slices), len(record.slices)) == (
        rehearsed.after.tokens, rehearsed.after.rows,
    )  # fmt: skip
    session.command("resume")
    real.until(real.all_done)
    session.apply_config(ConfigChange({}, {"page_size": 4}, "again"))
    real.until(lambda: session.phase == "ready")
    assert session.engine == "running", "it was not held any more"


@pytest.mark.parametrize("real", [{"rate": 0.25}], indirect=True)
def test_every_step_after_a_restart_is_recorded(real):
    session = real.session
    real.until(lambda: len(real.stories) == 2)
    session.apply_config(ConfigChange({}, {"page_size": 8}, "again"))
    real.until(lambda: session.phase == "ready")
    session.command("set_rate", None)
    real.until(lambda: len(real.stories) == 4 and real.all_done())
    state = session.state
    border = state.border
    assert [entry.step for entry in state.log if entry.kind == Verdict.ADMIT.value][-2:] == [border + 1] * 2
    assert all(state.history.record(step) is not None for step in range(border + 1, state.step + 1))


@pytest.mark.parametrize("real", [{"queue": 1}], indirect=True)
def test_what_the_queue_has_no_room_for_before_the_start_is_added_after_it(real):
    real.until(lambda: len(real.stories) == 2 and real.all_done())
    assert [story.label for story in real.stories] == ["A", "B"] and real.stories[0].arrived == 1


class Refusing:
    """Turns a stage's maker of engines into one that cannot build some: the changes it was asked for are in ``met``."""

    def __init__(self, play: Any, *, page_sizes: tuple[int, ...]) -> None:
        self._make, self._page_sizes = play.stage._make, page_sizes

    def __call__(self, loaded: Any, changes: Any) -> Any:
        if changes.get("page_size", 4) in self._page_sizes:
            raise ConfigError("such pages do not fit")
        return self._make(loaded, changes)


def refuse(play: Any, *page_sizes: int) -> None:
    object.__setattr__(play.stage.options, "make_manager", Refusing(play, page_sizes=page_sizes))


async def test_after_a_restart_that_failed_the_values_that_worked_come_back(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=40)
        session = play.app.session
        session.apply_config(ConfigChange({"skip_limit": 3}))
        await play.tick(2)
        refuse(play, 8)
        session.apply_config(ConfigChange({}, {"page_size": 8}, "again"))
        await play.tick()
        assert play.notice == "not restarted, the values before come back: such pages do not fit"
        await play.tick(2)
        assert session.engine == "running" and play.stage.changes[-1] == {"skip_limit": 3}
        assert play.labels == ["A", "B", "C", "D"] and play.app.unfinished == 2
        assert [story.finish_reason for story in session.state.stories.values()] == ["stopped", "stopped", None, None]
        assert "no new engine: such pages do not fit" in play.text
        await play.press("comma")
        assert play.app.screen.query_one("#page_size").value == "4"


async def test_nothing_can_be_built_any_more_and_the_requests_are_over(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=40)
        session, last = play.app.session, play.app.session.state.step
        refuse(play, 8, 4)
        session.apply_config(ConfigChange({}, {"page_size": 8}, "again"))
        await play.tick()
        assert session.phase == "failed" and "such pages do not fit" in play.text
        assert [story.ended for story in session.state.stories.values()] == [last] * 2
        assert play.app.unfinished == 0 and session.state.picture.used == 0 and "decode" not in play.text
        await play.press("comma")
        assert play.notice == "config: no engine could be built; S tries again"
        refuse(play)
        await play.press("S")
        await play.tick(2)
        assert session.engine == "running" and play.stage.changes[-1] == {}
        assert session.state.border > last and play.labels == ["A", "B", "C", "D"]


async def test_a_restart_that_was_given_up_changes_nothing(tmp_path):
    session, stage, later = late_session(tmp_path)
    app = MonitorApp(stage.options, session=session, clock=stage.clock, ticks_per_second=0)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        later.run()
        app.tick()
        stage.manager.add_request(list(PROMPT), max_new_tokens=40)
        stage.manager.run(3)
        app.tick()
        session.apply_config(ConfigChange({}, {"page_size": 8}, "again"))
        await pilot.press("escape")
        assert session.phase == "failed" and app.unfinished == 0
        later.run()
        await pilot.press("S")
        later.run()
        app.tick()
        stage.manager.run(2)
        app.tick()
        assert stage.changes[-1] == {} and [s.label for s in session.state.stories.values()] == ["A", "B"]
        assert session.state.border > 3, "its steps follow those of the engine before"

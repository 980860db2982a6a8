"""Every state the screen can be in: loading, given up, idle, dead, anew, late, and what is told of it."""

from cbtui.app import MonitorApp
from cbtui.session import Session
from cbtui.work import InlineWorker
from engine.core.errors import LoadError
from engine.models.progress import LoadProgress
from tests.tui.stage import Stage, playing


class LaterWorker(InlineWorker):
    """Keeps its jobs until told to run them."""

    def __init__(self) -> None:
        self.jobs: list = []

    def submit(self, job) -> None:
        self.jobs.append(job)

    def run(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()


def late_session(tmp_path, **options):
    """A session whose load jobs wait, and its stage."""
    stage = Stage(tmp_path, **options)
    later = LaterWorker()
    session = Session(
        stage.options, make_worker=lambda name: later if name == "cbtui-load" else InlineWorker(), clock=stage.clock
    )
    return session, stage, later


async def test_loading_says_its_phase_and_seconds(tmp_path):
    session, stage, later = late_session(tmp_path)
    app = MonitorApp(stage.options, session=session, clock=stage.clock, ticks_per_second=0)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        app.tick()
        assert "loading fake-model" in app.frame.text()
        session._loader._report(session._loader._attempt, LoadProgress("reading", "a.safetensors", 1.0, 1.0, 0.25))
        stage.clock.pass_(3.5)
        app.tick()
        assert "reading a.safetensors, 3.50s so far, 25%" in app.frame.text()
        await pilot.press("a")
        assert app.chrome.notice == "add: the model is still loading"
        later.run()
        app.tick()
        app.tick()
        assert "LIVE" in app.frame.text() and "no requests yet" in app.frame.text()


async def test_loading_can_be_given_up_and_begun_again(tmp_path):
    session, stage, later = late_session(tmp_path)
    app = MonitorApp(stage.options, session=session, clock=stage.clock, ticks_per_second=0)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        await pilot.press("escape")
        assert session.phase == "failed" and "cancelled" in app.frame.text()
        later.run()
        app.tick()
        assert session.phase == "failed" and session.manager is None
        assert stage.managers == []
        await pilot.press("S")
        later.run()
        app.tick()
        app.tick()
        assert session.phase == "ready" and len(stage.managers) == 1


async def test_an_engine_that_comes_after_giving_up_is_stopped(tmp_path):
    session, stage, later = late_session(tmp_path)
    app = MonitorApp(stage.options, session=session, clock=stage.clock, ticks_per_second=0)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        later.run()
        session.cancel_load()
        app.tick()
        assert session.phase == "failed" and session.manager is None
        assert stage.manager.named("stop") == [((), {"block": False, "hard_stop": True})]


async def test_a_model_that_cannot_be_loaded_gets_its_sentence(tmp_path):
    error = LoadError("There is no model 'nowhere'.", "Give a folder, a .gguf file or a hub name.")
    async with playing(tmp_path, fails=error) as play:
        assert "There is no model 'nowhere'. Give a folder" in play.text
        assert play.app.chrome.engine == "failed"
        await play.press("space")
        assert play.notice == "pause: no model is loaded"
        play.stage.fails = None
        await play.press("S")
        await play.tick()
        assert "LIVE" in play.text


async def test_an_error_without_words_shows_its_kind(tmp_path):
    async with playing(tmp_path, fails=MemoryError()) as play:
        assert "MemoryError" in play.text


async def test_idle_says_what_to_press(tmp_path):
    async with playing(tmp_path) as play:
        assert "no requests yet" in play.text and "a adds one" in play.text


async def test_a_dead_engine_stays_to_be_looked_at_and_starts_again(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=30)
        await play.tick(5)
        play.manager.die("RuntimeError: boom in step 7")
        await play.tick()
        assert play.app.chrome.engine == "failed" and "boom in step 7" in play.text
        await play.press("left_square_bracket")
        assert play.app.chrome.past == play.app.session.state.step - 1
        await play.press("end", "c")
        assert play.notice == "cancel: the engine died; S starts it again"
        await play.press("S")
        await play.tick()
        assert play.app.chrome.engine == "running" and "boom" not in play.text.splitlines()[1]
        assert "✗ failed" in play.text, "the requests it took with it stay in the list"


async def test_a_new_engine_goes_on_in_the_same_history(tmp_path):
    async with playing(tmp_path, num_blocks=40) as play:
        await play.add(1, tokens=3)
        await play.add(1, tokens=30)
        await play.tick(4)
        await play.press("X", "y")
        await play.tick()
        last = play.app.session.state.step
        await play.press("S")
        await play.tick()
        state = play.app.session.state
        border = state.step
        assert len(play.stage.managers) == 2 and border > last
        assert "✓ finished" in play.text and "✗ stopped" in play.text, "what was there stays"
        assert f"{border}  a new engine" in play.text
        await play.add(1, tokens=5)
        assert play.labels == ["A", "B", "C"] and state.step == border + 1
        assert list(state.stories) == [0, 1, 2]
        await play.press("left_square_bracket", "left_square_bracket")
        assert play.app.chrome.past == border - 1 and len(play.app.frame.visible_requests) == 2
        assert state.at(last - 1).used > 0 and state.at(border).used == 0
        await play.press("end", "m", "home", "M")
        await play.tick()
        assert "DIFFERENCE" in play.text


async def test_a_restart_ends_what_it_leaves_behind(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1, tokens=30)
        await play.tick(3)
        play.app.session.restart({}, [])
        await play.tick()
        (story,) = play.app.session.state.stories.values()
        assert story.ended == 4
        assert "engine stopped" in play.text


async def test_a_long_step_says_so(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        play.manager.hang()
        play.stage.clock.pass_(0.9)
        await play.tick()
        assert play.app.chrome.step_seconds is None
        play.stage.clock.pass_(2.1)
        await play.tick()
        assert play.app.chrome.step_seconds == 3.0 and "3.0" in play.text


async def test_missed_records_are_bridged_by_a_keyframe(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=40)
        play.manager.tap.capacity, play.manager.tap._ring = 4, [None] * 4
        play.manager.tap._sizes = [0] * 4
        play.manager.tap._oldest = play.manager.tap._written
        await play.tick(20)
        assert play.app.session.state.step == play.manager.status.step
        assert play.manager.questions.count("snapshot") == 2


async def test_a_question_that_fails_becomes_a_notice(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)

        def explain(request_id):
            raise TimeoutError("a step takes longer than 30 seconds")

        play.manager.explain = explain
        await play.press("e")
        await play.tick()
        assert play.notice == "a step takes longer than 30 seconds" and play.app.chrome.notice_kind == "error"


async def test_notices_go_after_a_while(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("u")
        assert play.notice
        play.stage.clock.pass_(5.1)
        await play.tick()
        assert play.notice == ""


async def test_nothing_new_paints_nothing(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2)
        await play.press("space")
        for _ in range(8):
            await play.tick()
        before = play.app.frame.rows
        await play.tick()
        assert all(a is b for a, b in zip(before, play.app.frame.rows, strict=True))


async def test_an_engine_that_takes_nothing_is_told(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("a")
        await play.type("rain")
        play.manager.add_request = lambda *args, **kwargs: None
        await play.press("enter")
        await play.tick()
        assert play.notice == "not added: the engine is stopping or stopped and takes no requests"

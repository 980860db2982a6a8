"""Work put off until somebody sees it: records that wait, plans of an engine that stands, slow beats."""

import asyncio
from typing import Any

import pytest

from cbtui.app import ANSWERS
from cbtui.beat import SETTLED, SLOWER, Beat
from cbtui.feed import BACKLOG
from tests.tui.stage import Play, playing
from tests.tui.test_pace import Machine


def state_of(play: Play) -> Any:
    assert play.app.session.state is not None
    return play.app.session.state


def wait_to_draw(play: Play) -> None:
    """From now on the turn of the next frame does not come: the last one cost a lot, and no time passes."""
    machine = Machine()
    play.app.pace = machine.pace(0.03)
    play.app.pace.begin()
    machine.spent += 1.0


async def test_records_wait_for_the_frame_they_are_drawn_in(tmp_path: Any) -> None:
    async with playing(tmp_path) as play:
        await play.add(1, tokens=2 * BACKLOG)
        shown, text = state_of(play).step, play.text
        wait_to_draw(play)
        await play.tick(3)
        assert state_of(play).step == shown and play.text == text
        await play.tick(BACKLOG)
        assert state_of(play).step == shown + 3 + BACKLOG, "but not too many of them"


async def test_answers_to_commands_are_taken_in_at_once_and_drawn_in_turn(tmp_path: Any) -> None:
    async with playing(tmp_path) as play:
        await play.add(1, tokens=60)
        wait_to_draw(play)
        play.manager.add_request([5, 6, 7], max_new_tokens=9)
        await play.tick(1)
        assert state_of(play).step == play.manager.status.step
        assert "B queued" in play.notice and "B queued" not in play.text
        play.app.session.say("it went wrong", "error")
        await play.tick()
        assert "it went wrong" in play.text, "an error does not wait"


async def test_an_engine_that_stands_is_shown_at_once(tmp_path: Any) -> None:
    async with playing(tmp_path) as play:
        await play.add(1, tokens=60)
        wait_to_draw(play)
        play.manager.run(2)
        play.manager.hold()
        await play.tick()
        assert state_of(play).step == play.manager.status.step
        assert "PAUSED" in play.text and f"step {play.manager.status.step} " in play.text


async def test_after_a_key_nothing_waits_for_its_turn(tmp_path: Any) -> None:
    async with playing(tmp_path) as play:
        await play.add(2, tokens=60)
        wait_to_draw(play)
        await play.press("c")
        await play.tick(1)
        assert "cancelled at" in play.text
        play.stage.clock.pass_(2 * ANSWERS)
        wait_to_draw(play)
        shown = play.text
        await play.tick(1)
        assert play.text == shown


async def test_a_running_engine_is_shown_at_a_step_that_says_what_comes_next(tmp_path: Any) -> None:
    async with playing(tmp_path) as play:
        await play.add(1, tokens=60)
        known = play.manager.status.step + 2
        play.manager.run(2)
        play.manager.want_preview(0)
        play.manager.run(3)
        play.app.tick()
        state = state_of(play)
        assert state.step == known and state.preview(state.picture) is not None
        await play.tick()
        assert state.step == play.manager.status.step, "without another one all are shown"


async def test_the_last_records_are_shown_although_nothing_comes_after_them(tmp_path: Any) -> None:
    async with playing(tmp_path) as play:
        await play.add(1, tokens=6)
        play.manager.run(20)
        play.app.tick()
        assert state_of(play).step == play.manager.status.step
        assert all(story.ended >= 0 for story in state_of(play).stories.values())


async def test_an_engine_that_stands_is_asked_once_what_would_come_next(tmp_path: Any) -> None:
    async with playing(tmp_path) as play:
        await play.add(1, tokens=60)
        play.manager.want_preview(0)
        play.manager.hold()
        play.manager.run()
        state, step = state_of(play), play.manager.status.step
        await play.tick()
        assert state.picture.record.next is None and state.planned == (step, play.manager.scheduler.preview())
        assert f"next {step + 1} " in " ".join(play.text.split()) and "not planned yet" not in play.text
        await play.tick()
        assert play.manager.questions.count("preview") == 1


class Loop:
    """An event loop whose time passes when told."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, []  # type: ignore[var-annotated]

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Any) -> Any:
        return self.call_at(self.now + delay, call)

    def call_at(self, when: float, call: Any) -> Any:
        self.calls.append((when, call))
        return self

    def strike(self) -> float:
        """The next beat; returns how long it took to come."""
        when, call = self.calls.pop()
        passed, self.now = when - self.now, when
        call()
        return passed


def test_quiet_beats_slow_down_and_news_speeds_them_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, news = Loop(), [False]
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    Beat(4, lambda: news[0], lambda error: None)
    assert [loop.strike() for _ in range(SETTLED + 3)][-3:] == [0.25, SLOWER / 4, SLOWER / 4]
    news[0] = True
    loop.strike()
    assert loop.strike() == 0.25


def test_a_beat_that_fails_is_told_and_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, told = Loop(), []  # type: ignore[var-annotated]
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)

    def tick() -> bool:
        raise RuntimeError("no")

    Beat(4, tick, told.append)
    loop.strike()
    assert [str(error) for error in told] == ["no"] and not loop.calls

"""When steps may begin: the rate, late and early steps, pauses; and what does not wait for the next one."""

from itertools import pairwise

import pytest

from engine.control import LATE, Pace
from engine.core.errors import RequestError
from engine.core.fold import fold
from engine.delivery import Router
from engine.thread import SOON
from engine.worker import Worker
from tests.engine.fakes import expected, fake_engine

RATE = 8.0
PERIOD = 1.0 / RATE


def walk(pace, lateness, start=0.0):
    """Begins steps as soon as they may, each later by its number of seconds; returns when they began."""
    now, begun = start, []
    for late in lateness:
        now += pace.delay(now) + late
        pace.began(now)
        begun.append(now)
    return begun


def paced():
    pace = Pace()
    pace.set_rate(RATE)
    return pace


def test_a_little_late_is_caught_up_with_so_that_the_rate_is_reached():
    begun = walk(paced(), [0.0, *[0.1 * PERIOD] * 40, 0.0])
    assert begun[-1] == pytest.approx(41 * PERIOD)


def test_after_a_late_step_the_missed_ones_do_not_follow_at_once():
    begun = walk(paced(), [0, 0, 5.5 * PERIOD, 0, 0, 0, 0.9 * PERIOD, 0, 0])
    gaps = [b - a for a, b in pairwise(begun)]
    assert min(gaps) >= (1 - LATE) * PERIOD - 1e-9 and max(gaps) == pytest.approx(6.5 * PERIOD)
    assert gaps[2:5] == pytest.approx([PERIOD] * 3) and gaps[6:] == pytest.approx([PERIOD] * 2)


def test_no_window_ever_holds_more_than_the_rate_and_one():
    late = [((7 * n) % 11) / 4 * PERIOD for n in range(200)]
    begun = walk(paced(), late)
    for first, start in enumerate(begun):
        assert sum(start <= time < start + 1.0 for time in begun[first:]) <= RATE + 1


def test_after_a_pause_the_next_step_is_one_step_and_a_new_beat():
    pace = paced()
    walk(pace, [0, 0, 0])
    pace.hold()
    pace.resume()
    begun = walk(pace, [0, 0, 0], start=10.0)
    assert begun == pytest.approx([10.0, 10.0 + PERIOD, 10.0 + 2 * PERIOD])


def test_steps_before_their_time_put_nothing_off_but_the_next_one():
    pace = paced()
    pace.began(0.0)
    for now in (0.01, 0.02, 0.03):  # single steps by hand
        pace.began(now)
    assert pace.delay(0.03) == pytest.approx(PERIOD)


def test_another_rate_counts_from_the_last_step():
    pace = paced()
    pace.began(5.0)
    pace.set_rate(2.0)
    assert pace.delay(5.1) == pytest.approx(0.4)
    pace.set_rate(None)
    assert pace.delay(5.1) == 0.0


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Waits:
    """Stands for a condition: who waits moves the clock on, and somebody may come meanwhile."""

    def __init__(self, clock):
        self.clock = clock
        self.waited = []
        self.meanwhile = []

    def wait(self, seconds):
        self.waited.append(seconds)
        if self.meanwhile:
            self.clock.now += seconds / 2
            self.meanwhile.pop(0)()
        else:
            self.clock.now += seconds

    def __enter__(self):
        return self

    def __exit__(self, *error): ...

    def notify_all(self): ...


def slow_thread(rate=2.0, **config):
    engine, clock = fake_engine(**config), Clock()
    engine.clock = clock
    thread = Worker(lambda: engine, Router())
    thread._alive = thread._started = True
    thread._changed = waits = Waits(clock)
    engine.tap.attach()
    engine.pace.set_rate(rate)
    engine.submit([1, 2], "a", max_new_tokens=40)
    thread._round(engine)
    return thread, engine, clock, waits


def test_news_during_a_wait_begins_no_step_before_its_time():
    """Questions are answered and the pace is changed at once; a request comes with the step, which is not earlier."""
    thread, engine, clock, waits = slow_thread()
    heard = []
    waits.meanwhile = [
        lambda: engine.ask(lambda: heard.append((clock.now, engine.scheduler.step))),
        lambda: engine.submit([3], "b", max_new_tokens=3),
        lambda: engine.ask(lambda: heard.append((clock.now, engine.scheduler.step))),
    ]
    while engine.scheduler.step < 2:
        assert thread._round(engine)
    assert [step for _, step in heard] == [1, 2], "the second question stands behind the request"
    assert heard[0][0] < 100.5
    records, _ = engine.tap.read(0)
    assert [record.step for record in records] == [1, 2]
    assert records[1].time == pytest.approx(100.5) and [part.seq for part in records[1].slices] == [0, 1]


def test_a_pause_during_a_wait_holds_at_once_and_takes_no_number():
    thread, engine, clock, waits = slow_thread()
    waits.meanwhile = [lambda: engine.post("pause", "", engine.pace.hold)]
    thread._round(engine)
    assert engine.pace.held and clock.now < 100.5 and thread.status.state == "held"
    engine.post("resume", "", engine.pace.resume)
    thread._round(engine)
    records, missed = engine.tap.read(0)
    assert not missed and [(record.step, bool(record.slices)) for record in records] == [(1, True), (2, True)]
    assert [ack.kind for ack in records[1].commands] == ["pause", "resume"]


def test_a_faster_rate_during_a_wait_shortens_it():
    thread, engine, clock, waits = slow_thread()
    waits.meanwhile = [lambda: engine.post("rate", "4.0", lambda: engine.pace.set_rate(4.0))]
    while engine.scheduler.step < 2:
        thread._round(engine)
    assert clock.now == pytest.approx(100.25)


class TestAsked:
    """What somebody asks for while the next step is far off."""

    def test_a_cancellation_takes_effect_at_once_in_a_record_of_its_own(self):
        thread, engine, clock, waits = slow_thread(0.2)
        held = engine.keyframe().sequences[0].tables
        assert any(held[0])
        waits.meanwhile = [lambda: thread.post("cancel", "a", lambda: engine.cancel_now("a"))]
        assert thread._round(engine) and clock.now == pytest.approx(102.5), "half of the wait, no step"
        (_, second), _ = engine.tap.read(0)
        assert (second.step, len(second.slices), [ack.kind for ack in second.commands]) == (2, 0, ["cancel"])
        assert [output.finish_reason for output in engine.take_outputs()] == ["cancelled"]
        assert all(view.state != "owned" for view in engine.keyframe().blocks) and not engine.has_work

    def test_an_addition_is_queued_at_once_and_runs_with_the_step_that_is_due(self):
        thread, engine, _, waits = slow_thread(0.2)
        waits.meanwhile = [lambda: thread.enqueue(engine.build_request([3], "b", max_new_tokens=3), 0)]
        thread._round(engine)
        (_, second), _ = engine.tap.read(0)
        assert [info.request_id for info in second.requests] == ["b"] and second.num_waiting == 1
        while engine.scheduler.step < 3:
            thread._round(engine)
        third = engine.tap.latest
        assert third.time == pytest.approx(105.0) and [part.seq for part in third.slices] == [0, 1]

    def test_a_setting_changes_at_once(self):
        thread, engine, clock, waits = slow_thread(0.2)
        waits.meanwhile = [lambda: thread.configure(safety_margin=0.5)]
        thread._round(engine)
        assert engine.tap.latest.step == 2 and engine.tap.latest.settings["safety_margin"] == 0.5
        assert thread.status.config.safety_margin.value == 0.5 and clock.now == pytest.approx(102.5)

    def test_a_question_asked_after_it_is_answered_after_it(self):
        thread, engine, clock, waits = slow_thread(0.2)
        heard = []

        def both():
            thread.post("cancel", "a", lambda: engine.cancel_now("a"))
            engine.ask(lambda: heard.append(len(engine.scheduler.running)))

        waits.meanwhile = [both]
        thread._round(engine)
        assert heard == [0] and clock.now < 105.0

    def test_with_a_step_that_comes_soon_it_waits_and_takes_no_number(self):
        thread, engine, _, waits = slow_thread(0.2)
        engine.pace.set_rate(1 / SOON)
        waits.meanwhile = [lambda: thread.enqueue(engine.build_request([3], "b", max_new_tokens=3), 0)]
        thread._round(engine)
        assert engine.tap.latest.step == 2 and [part.seq for part in engine.tap.latest.slices] == [0, 1]

    def test_what_a_follower_posts_belongs_to_the_next_step_whatever_the_pace(self):
        """It posts on the engine's thread; neither the wait nor another pace nor a question draws it out."""
        thread, engine, _, waits = slow_thread(0.2)
        engine.submit([3], "b", max_new_tokens=3)
        waits.meanwhile = [
            lambda: thread.post("rate", "0.25", lambda: engine.pace.set_rate(0.25)),
            lambda: engine.ask(lambda: None),
        ]
        while engine.scheduler.step < 2:
            thread._round(engine)
        assert engine.tap.latest.slices and [info.request_id for info in engine.tap.latest.requests] == ["b"]
        assert not waits.meanwhile

    def test_a_step_in_flight_is_not_disturbed(self):
        """Its records still add up to the state of the engine, and the text is the same as at full speed."""
        thread, engine, _, waits = slow_thread(0.2, use_async_batching=True)
        start = engine.keyframe()
        for new in range(4):
            waits.meanwhile = [
                lambda new=new: thread.enqueue(engine.build_request([5, new], f"b{new}", max_new_tokens=4), 0),
                lambda: thread.post("cancel", "b1", lambda: engine.cancel_now("b1")),
            ]
            for _ in range(3):
                thread._round(engine)
        records, missed = engine.tap.read(start.step)
        assert not missed and sum(not record.slices for record in records) >= 6
        assert fold(start, *records) == engine.keyframe()
        engine.pace.set_rate(None)
        while engine.has_work:
            thread._round(engine)
        texts = {output.request_id: output.generated_tokens for output in engine.take_outputs()}
        assert texts["a"] == expected([1, 2], 40) and texts["b2"] == expected([5, 2], 4)
        assert texts["b1"] == expected([5, 1], 4)[: len(texts["b1"])]


class TestNumbers:
    def test_the_pace_takes_no_steps_and_what_changes_the_state_does(self):
        engine = fake_engine()
        engine.tap.attach()
        engine.submit([1, 2], "a", max_new_tokens=9)
        engine.step()
        for kind, act in (("pause", engine.pace.hold), ("rate", lambda: None), ("pause", engine.pace.hold)):
            engine.post(kind, "", act)
            engine.step()
        assert engine.scheduler.step == 1
        engine.submit([3], "b", max_new_tokens=2)
        engine.step()
        engine.post("step", "1", lambda: engine.pace.allow(1))
        engine.step()
        engine.post("resume", "", engine.pace.resume)
        engine.step()
        records, missed = engine.tap.read(0)
        assert not missed
        told = [(record.step, len(record.slices), [ack.kind for ack in record.commands]) for record in records]
        assert told == [(1, 1, ["add"]), (2, 0, ["pause", "rate", "pause", "add"]), (3, 2, ["step"]),
                        (4, 2, ["resume"])]  # fmt: skip
        assert [record.was_held for record in records] == [False, True, True, True]

    def test_what_was_said_before_the_start_holds_from_its_first_moment(self, managers):
        manager = managers()
        manager.tap.attach()
        manager.set_rate(0.25)
        manager.hold()
        manager.add_request([1] * 4, "a", max_new_tokens=4)
        manager.start()
        assert manager.status.state == "held"
        manager.snapshot()
        (record,), _ = manager.tap.read(0)
        assert record.was_held and not record.slices

    def test_a_refusal_is_told_at_once(self):
        def refuse():
            raise RequestError("too slow")

        engine = fake_engine()
        engine.tap.attach()
        engine.post("rate", "-1", refuse)
        engine.step()
        (record,) = engine.tap.read(0)[0]
        assert [(ack.kind, ack.accepted, ack.detail) for ack in record.commands] == [("rate", False, "too slow")]

    def test_a_hard_stop_and_the_end_of_the_cache_are_one_step(self, start):
        manager = start()
        manager.tap.attach()
        manager.hold()
        manager.add_request([1] * 20, "a", max_new_tokens=30)
        manager.step_once(6)
        while (before := manager.snapshot().step) < 6:
            assert manager.is_running()
        manager.stop(hard_stop=True)
        records, missed = manager.tap.read(0)
        assert not missed and records[-1].step == before + 1 == manager.status.step
        assert all(view.state == "free" for view in manager.snapshot().blocks)

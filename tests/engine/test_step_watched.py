"""An engine that is watched, stepped by the caller: its records, its pace, when it holds."""

import math

import pytest

from engine import ConfigError, FinishReason, RunUntil
from engine.core.fold import fold
from engine.loop import Engine
from tests.engine.fakes import FakeRunner, fake_blueprint, fake_engine
from tests.engine.reading import outputs_by_id, records_of


class TestRecords:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_folding_them_gives_the_live_state(self, is_async):
        engine = fake_engine(use_async_batching=is_async, num_blocks=12, cpu_offload_space=1e-4)
        engine.tap.attach()
        frame = engine.keyframe()
        for n in range(6):
            engine.submit([n] * (3 + 2 * n), max_new_tokens=9)
        engine.cancel("req_3")
        while engine.has_news or engine.has_work:
            engine.step()
            live = engine.keyframe()
            frame = fold(frame, *records_of(engine, frame.step))
            assert (frame.blocks, frame.sequences, frame.waiting, frame.counters) == (
                live.blocks, live.sequences, live.waiting, live.counters,
            )  # fmt: skip
        assert frame.step == engine.scheduler.step

    def test_a_watcher_that_comes_late_starts_from_a_keyframe(self):
        engine = fake_engine()
        engine.submit([1] * 9, max_new_tokens=6)
        for _ in range(3):
            engine.step()
        engine.tap.attach()
        frame = engine.keyframe()
        engine.run_until_idle()
        frame = fold(frame, *records_of(engine, frame.step))
        assert frame.sequences == engine.keyframe().sequences

    def test_the_parts_of_a_step_add_up(self):
        now = iter(range(10_000))
        engine = Engine(None, runner=FakeRunner(), blueprint=fake_blueprint(), clock=lambda: float(next(now)))
        engine.tap.attach()
        engine.submit([1, 2], max_new_tokens=2)
        engine.step()
        (record,) = records_of(engine)
        parts = (record.spans.commands, record.spans.plan, record.spans.launch, record.spans.wait, record.spans.apply)
        assert all(part >= 1 for part in parts)
        assert record.time + record.spans.total <= next(now)

    def test_the_next_step_is_previewed_when_asked(self):
        engine = fake_engine()
        engine.tap.attach()
        engine.submit([1] * 20, max_new_tokens=2)
        engine.want_preview()
        engine.step()
        engine.step()
        first, second = records_of(engine)
        assert [(piece.kind, piece.query) for piece in first.next.slices] == [("prefill", 8)]
        assert [piece.query for piece in second.slices] == [8]
        assert second.next is None

    def test_watched_and_unwatched_runs_plan_the_same(self):
        plans = []
        for watched in (False, True):
            engine = fake_engine(num_blocks=10)
            if watched:
                engine.tap.attach()
            for n in range(6):
                engine.submit([n] * (3 + 2 * n), max_new_tokens=9)
            engine.run_until_idle()
            plans.append([[(p.seq.key, p.start, p.length) for p in plan.slices] for plan in engine.runner.plans])
        assert plans[0] == plans[1]


class TestPace:
    def test_a_held_engine_takes_commands_and_no_steps(self):
        engine = fake_engine()
        engine.pace.hold()
        engine.submit([1, 2], request_id="a", max_new_tokens=3)
        assert engine.step() is False
        assert [seq.request.request_id for seq in engine.scheduler.waiting] == ["a"]
        engine.cancel("a")
        engine.step()
        assert outputs_by_id(engine)["a"].finish_reason is FinishReason.CANCELLED
        assert engine.runner.launches == 0

    def test_so_many_steps_and_then_hold(self):
        engine = fake_engine()
        engine.submit([1, 2], max_new_tokens=9)
        engine.pace.allow(3)
        while engine.may_step or engine.has_news:
            engine.step()
        assert engine.runner.launches == 3

    def test_in_async_a_held_engine_has_nothing_in_flight(self):
        engine = fake_engine(use_async_batching=True)
        engine.submit([1, 2], request_id="a", max_new_tokens=9, streaming=True)
        engine.pace.allow(3)
        while engine.may_step or engine.has_news:
            engine.step()
        assert engine.scheduler.num_in_flight == 0
        assert [len(output.generated_tokens) for output in engine.take_outputs()] == [1, 2, 3]

    def test_slow_motion_spaces_the_steps(self):
        pace = fake_engine().pace
        pace.set_rate(4)
        assert pace.delay(100.0) == 0
        pace.began(100.0)
        assert math.isclose(pace.delay(100.0), 0.25)
        assert math.isclose(pace.delay(100.2), 0.05)
        assert pace.delay(100.3) == 0
        pace.began(107.0)
        assert math.isclose(pace.delay(107.0), 0.25), "a late step must not be made up for by a burst"
        pace.set_rate(None)
        assert pace.delay(107.0) == 0

    @pytest.mark.parametrize(
        ("condition", "holds"),
        [
            (RunUntil("first_token"), lambda e: e.scheduler.running[0].num_output == 1),
            (RunUntil("first_token", request_id="b"), lambda e: e.scheduler.sequences_of("b")[0].num_output == 1),
            (RunUntil("end"), lambda e: len(e.scheduler.running) + len(e.scheduler.waiting) < 3),
            (RunUntil("end", request_id="c"), lambda e: not e.scheduler.sequences_of("c")),
            (RunUntil("free_below", 6), lambda e: len(e.scheduler.cache.pool.free) < 6),
            (RunUntil("step", 4), lambda e: e.scheduler.step == 4),
            (RunUntil("preemption"), lambda e: e.scheduler.state.counters().preemptions == 1),
        ],
        ids=lambda value: str(getattr(value, "kind", "")),
    )
    def test_runs_until_something_happens(self, condition, holds):
        engine = fake_engine(num_blocks=10, safety_margin=0.0)
        for name in "abc":
            engine.submit([ord(name) % 90] * 9, request_id=name, max_new_tokens=16)
        engine.pace.run_until(condition)
        while engine.may_step or engine.has_news:
            engine.step()
        assert engine.pace.held
        assert holds(engine)

    def test_runs_until_an_offload(self):
        engine = fake_engine(num_blocks=10, safety_margin=0.0, cpu_offload_space=1e-3)
        for name in "abc":
            engine.submit([ord(name) % 90] * 9, request_id=name, max_new_tokens=16)
        engine.pace.run_until(RunUntil("offload"))
        while engine.may_step or engine.has_news:
            engine.step()
        assert engine.scheduler.state.counters().offloads == 1

    def test_runs_until_the_bookkeeping_is_broken(self):
        engine = fake_engine()
        engine.submit([1] * 9, max_new_tokens=30)
        engine.pace.run_until(RunUntil("invariant"))
        for _ in range(3):
            engine.step()
        assert not engine.pace.held
        engine.scheduler.cache.pool.refs[engine.scheduler.running[0].tables[0][0]] += 1
        engine.step()
        assert engine.pace.held

    @pytest.mark.parametrize("wrong", [("sometime", None), ("free_below", None), ("free_below", 0), ("step", None)])
    def test_a_moment_nobody_knows_is_refused(self, wrong):
        with pytest.raises(ConfigError, match="run until"):
            RunUntil(*wrong)

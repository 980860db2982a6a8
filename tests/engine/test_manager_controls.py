"""What a person does with a manager that runs: hold, steps, settings, questions, forecasts."""

import threading

import pytest

from engine import ConfigError, FinishReason, RequestError, RunUntil
from tests.engine.fakes import FakeRunner, expected, fake_manager


class TestControls:
    def test_held_it_takes_requests_and_steps_only_when_told(self, start):
        manager = start()
        manager.tap.attach()
        manager.hold()
        name = manager.add_request([1, 2], max_new_tokens=5, streaming=True)
        manager.snapshot()
        assert manager.status.state == "held"
        manager.step_once(2)
        assert [len(manager.get_result(name).generated_tokens) for _ in range(2)] == [1, 2]
        manager.snapshot()
        assert manager.get_result(name, timeout=0.02) is None
        assert manager.status.state == "held"
        manager.resume()
        assert [len(output.generated_tokens) for output in manager.request_id_iter(name)] == [3, 4, 5]
        assert manager.status.state == "running"
        records, missed = manager.tap.read(0)
        kinds = [ack.kind for record in records for ack in record.commands]
        assert not missed and kinds == ["pause", "add", "step", "resume"]

    def test_a_hold_before_the_start_counts(self):
        manager = fake_manager()
        manager.hold()
        manager.add_request([1], request_id="a", max_new_tokens=1)
        manager.start()
        manager.snapshot()
        assert manager.status.state == "held"
        assert manager.get_result("a", timeout=0.02) is None
        manager.stop()
        assert manager.get_result("a").finish_reason is FinishReason.LENGTH, "a stop lets a held engine finish"

    def test_run_until_holds_and_says_why(self, start):
        manager = start()
        manager.tap.attach()
        manager.hold()
        name = manager.add_request([1] * 30, max_new_tokens=50, streaming=True)
        manager.run_until(RunUntil("first_token"))
        assert len(manager.get_result(name).generated_tokens) == 1
        manager.snapshot()
        assert manager.status.state == "held"
        assert manager.get_result(name, timeout=0.02) is None
        manager.snapshot()
        records, _ = manager.tap.read(0)
        assert any(ack.kind == "pause" and "first token" in ack.detail for r in records for ack in r.commands)

    def test_configuration_changes_while_it_runs(self, start):
        manager = start()
        manager.tap.attach()
        ticket = manager.set_config(safety_margin=0.4, max_queue_size=3)
        manager.snapshot()
        assert manager.status.config.safety_margin.value == 0.4
        assert manager.config.max_queue_size.value == 3
        records, _ = manager.tap.read(0)
        acks = [ack for record in records for ack in record.commands]
        assert ticket in [ack.ticket for ack in acks]
        assert [(ack.target, ack.detail) for ack in acks] == [("safety_margin", "0.4"), ("max_queue_size", "3")]
        with pytest.raises(ConfigError, match="num_blocks is built into the engine"):
            manager.set_config(num_blocks=3)

    def test_what_makes_no_sense_is_refused(self, start):
        manager = start()
        with pytest.raises(RequestError, match="at least 1 step"):
            manager.step_once(0)
        with pytest.raises(RequestError, match="steps per second"):
            manager.set_rate(0)

    def test_slow_motion(self, start):
        manager = start()
        manager.set_rate(1000.0)
        name = manager.add_request([1], max_new_tokens=5)
        assert manager.get_result(name).generated_tokens == expected([1], 5)

    def test_commands_do_not_wait_for_a_step_that_is_far_off(self, start):
        manager = start()
        manager.tap.attach()
        manager.set_rate(0.001)
        first = manager.add_request([1], max_new_tokens=50)
        while manager.snapshot().step < 1:
            assert manager.is_running()
        second = manager.add_request([2], max_new_tokens=50)
        manager.set_config(safety_margin=0.4)
        for name in (first, second):
            manager.cancel_request(name)
            output = manager.get_result(name, timeout=60)
            assert output is not None and output.finish_reason == "cancelled"
        records, _ = manager.tap.read(0)
        assert sum(bool(record.slices) for record in records) <= 1, "no step came before its time"
        assert manager.config.safety_margin.value == 0.4

    def test_a_keyframe_can_be_had_in_every_state(self):
        manager = fake_manager(FakeRunner(fail_at=2))
        assert manager.snapshot().step == 0
        manager.start()
        assert manager.snapshot().step == 0
        manager.get_result(manager.add_request([1], max_new_tokens=5))
        manager.join()
        assert manager.status.state == "failed"
        assert manager.snapshot().sequences == {}

    def test_a_question_during_a_long_step_gives_up_in_time(self, start):
        gate = threading.Event()
        runner = FakeRunner(gate=gate)
        manager = start(runner)
        name = manager.add_request([1], max_new_tokens=2)
        runner.collecting.wait(10)
        with pytest.raises(TimeoutError, match="step 1"):
            manager.snapshot(timeout=0.02)
        gate.set()
        manager.get_result(name)

    def test_why_a_request_waits(self, start):
        manager = start(num_blocks=8, max_requests_per_batch=1)
        manager.hold()
        manager.add_request([1] * 8, request_id="first", max_new_tokens=5)
        manager.add_request([2] * 8, request_id="second", max_new_tokens=5)
        manager.step_once(1)
        manager.snapshot()
        explanation = manager.explain("second")
        assert explanation is not None
        with pytest.raises(RequestError, match="no live request 'third'"):
            manager.explain("third")

    def test_the_prefix_cache_can_be_cleared(self, start):
        manager = start()
        manager.get_result(manager.add_request([1] * 8, max_new_tokens=2))
        manager.clear_prefix_cache()
        assert manager.get_result(manager.add_request([1] * 8, max_new_tokens=2)).cached_tokens == 0


class TestForesight:
    def test_a_forecast_comes_true_and_queues_nothing(self, start):
        manager = start(num_blocks=16)
        manager.tap.attach()
        manager.hold()
        first = manager.add_request([1] * 20, max_new_tokens=12)
        manager.step_once(1)
        manager.snapshot()
        found = manager.forecast([2] * 40, max_new_tokens=6)
        assert found.steps > 1 and found.full <= found.pool == 16
        name = manager.add_request([2] * 40, max_new_tokens=6)
        manager.resume()
        manager.get_result(first)
        manager.get_result(name)
        records, _ = manager.tap.read(0)
        key = next(info.seq for record in records for info in record.requests if info.request_id == name)
        # commands have steps of their own: count those that computed something
        computed = [record for record in records if record.slices]
        begun = next(place for place, r in enumerate(computed) if key in {part.seq for part in r.slices})
        assert begun == found.steps, "one step had run before"
        with pytest.raises(RequestError, match="tokens"):
            manager.forecast([2] * 30, max_new_tokens=4000)

    def test_a_forecast_counts_the_step_number_that_adding_takes(self, start):
        """Held it takes one; far from the next step it may; else it comes with the step itself."""
        manager = start(num_blocks=64)
        manager.tap.attach()

        def begun(name):
            records, _ = manager.tap.read(0)
            key = next(info.seq for record in records for info in record.requests if info.request_id == name)
            return next(record.step for record in records if key in {part.seq for part in record.slices})

        def add_and_see(new_tokens):
            found = manager.forecast([2] * 4, max_new_tokens=new_tokens)
            name = manager.add_request([2] * 4, max_new_tokens=new_tokens, streaming=True)
            if manager.status.state == "held":
                manager.snapshot()
                manager.step_once(1)
            manager.get_result(name)
            manager.snapshot()
            return found, begun(name)

        found, step = add_and_see(1)
        assert step == found.step and not found.early, "it was idle"
        manager.hold()
        manager.snapshot()
        for _ in range(2):
            found, step = add_and_see(40)
            assert step == found.step and not found.early and found.steps == 1
        manager.set_rate(3.9)
        manager.resume()
        manager.snapshot()
        found, step = add_and_see(1)
        assert found.early == 1 and found.step - 1 <= step <= found.step

    def test_what_would_help_counts_the_step_number_that_doing_it_takes(self, start):
        manager = start(num_blocks=64, max_requests_per_batch=1)
        manager.tap.attach()
        manager.hold()
        first = manager.add_request([1] * 4, max_new_tokens=30)
        second = manager.add_request([2] * 4, max_new_tokens=3)
        manager.step_once(1)
        why = manager.explain(second)
        wait = next(trial for trial in why.trials if trial.kind == "wait")
        trial = next(trial for trial in why.trials if trial.kind == "cancel")
        assert (wait.step, trial.step, trial.steps) == (why.step + 30, why.step + 2, 1)
        manager.cancel_request(first)
        manager.snapshot()
        manager.resume()
        manager.get_result(first)
        manager.get_result(second)
        manager.snapshot()
        records, _ = manager.tap.read(0)
        key = why.seq
        assert next(r.step for r in records if key in {part.seq for part in r.slices}) == trial.step

    def test_a_rehearsal_changes_nothing(self, start):
        manager = start(num_blocks=16)
        manager.hold()
        manager.add_request([1] * 20, max_new_tokens=12)
        before = manager.config
        found = manager.rehearse(max_requests_per_batch=1, safety_margin=0.5)
        assert (found.before.max_rows, found.after.max_rows, found.after.margin) == (8, 1, 8)
        assert not found.anew and manager.config == before
        more = manager.rehearse(max_batch_tokens=500, num_blocks=30, page_size=8)
        assert more.anew and (more.after.budget, more.after.blocks) == (500, 30)
        decided = manager.plan_restart(num_blocks=None)
        assert manager.rehearse(num_blocks=None).after.blocks == decided.num_blocks.value != 16
        few = manager.rehearse(num_blocks=3)
        assert few.after.max_rows == 3, "as the new engine would: a row needs a block"

    def test_a_restart_that_would_not_fit_is_refused_with_the_sum(self, start):
        manager = start(num_blocks=16)
        for fields in (
            {"num_blocks": 10**9},
            {"page_size": 10**10},
            {"max_batch_tokens": 10**10},
            {"max_batch_tokens": 10**10, "max_requests_per_batch": 10**10, "skip_limit": 1},
        ):
            for ask in (manager.plan_restart, manager.rehearse):
                with pytest.raises(ConfigError, match=r"does not fit: KV cache .* may be used .*; lower num_blocks"):
                    ask(**fields)
        with pytest.raises(ConfigError, match="skip_limit=-1 is not allowed"):
            manager.plan_restart(skip_limit=-1, num_blocks=4)

    def test_a_restart_keeps_what_was_changed_meanwhile(self, start):
        manager = start(num_blocks=16)
        manager.set_config(skip_limit=3, max_requests_per_batch=2)
        manager.snapshot()
        planned = manager.plan_restart(num_blocks=20)
        assert (planned.num_blocks.value, planned.skip_limit.value, planned.max_requests_per_batch.value) == (20, 3, 2)

"""The manager's life with its real thread: start, stop, hard stop, again, and pauses."""

import threading

import pytest

from engine import EngineError, FinishReason, RequestStatus
from engine.loop import Engine
from tests.engine.fakes import FakeRunner, expected
from tests.engine.reading import finals


class TestStartAndStop:
    def test_what_is_queued_before_the_start_begins_with_it(self, managers):
        manager = managers()
        assert manager.status.state == "new"
        manager.add_request([1, 2], request_id="early", max_new_tokens=3)
        assert manager.get_result() is None, "nothing can come before the start"
        manager.start()
        assert manager.get_result("early").generated_tokens == expected([1, 2], 3)

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_start_long_before_the_first_request_is_normal(self, managers, is_async):
        manager = managers(use_async_batching=is_async)
        manager.start()
        assert manager.get_result(timeout=0.05) is None
        assert manager.status.state == "running"
        manager.add_request([1, 2], request_id="late", max_new_tokens=3)
        assert manager.get_result("late").generated_tokens == expected([1, 2], 3)

    def test_stop_finishes_what_was_accepted_and_takes_nothing_new(self, managers, caplog):
        gate = threading.Event()
        manager = managers(FakeRunner(gate=gate))
        manager.start()
        names = manager.add_requests([[1], [2], [3]], max_new_tokens=4)
        manager.stop(block=False)
        assert manager.status.state == "draining"
        assert manager.add_request([9], request_id="no") is None
        assert manager.add_requests([[9]]) is None
        assert "takes no requests" in caplog.text
        gate.set()
        manager.join()
        assert manager.status.state == "stopped" and not manager.is_running()
        assert set(finals(manager)) == set(names)

    def test_hard_stop_ends_waiting_and_running_requests_at_once(self, managers):
        gate = threading.Event()
        runner = FakeRunner(gate=gate)
        manager = managers(runner, max_requests_per_batch=2)
        manager.start()
        names = manager.add_requests([[n] for n in range(5)], max_new_tokens=50)
        runner.collecting.wait(10)
        manager.stop(block=False, hard_stop=True)
        gate.set()
        manager.join()
        found = finals(manager)
        assert set(found) == set(names)
        for output in found.values():
            assert (output.status, output.finish_reason) == (RequestStatus.FAILED, FinishReason.STOPPED)
            assert output.error.startswith("RuntimeError: hard stop")
        assert sorted(len(output.generated_tokens) for output in found.values()) == [0, 0, 0, 1, 1]
        assert runner.launches == 1 and runner.closed == 1

    def test_the_same_manager_starts_again(self, managers):
        manager = managers()
        for round_ in range(3):
            manager.start()
            name = manager.add_request([1, 2, round_], max_new_tokens=3)
            assert manager.get_result(name).generated_tokens == expected([1, 2, round_], 3)
            manager.stop(hard_stop=round_ == 1)
            assert manager.status.state == "stopped"

    def test_a_tap_goes_on_over_a_restart(self, managers):
        manager = managers()
        manager.tap.attach()
        tap = manager.tap
        for _ in range(2):
            manager.start()
            manager.get_result(manager.add_request([1, 2], max_new_tokens=2))
            manager.stop()
        records, missed = tap.read(0)
        assert manager.tap is tap and not missed
        steps = [record.step for record in records]
        assert steps == list(range(1, len(steps) + 1))

    def test_kept_for_the_next_session_the_prefixes_are_still_there(self, managers):
        for keep, cached in ((True, 4), (False, 0)):
            manager = managers()
            manager.start()
            manager.get_result(manager.add_request([1] * 8, max_new_tokens=2))
            manager.stop(keep_for_next_session=keep)
            manager.start()
            assert manager.get_result(manager.add_request([1] * 8, max_new_tokens=2)).cached_tokens == cached

    def test_starting_twice_and_stopping_what_does_not_run_only_warn(self, managers, caplog):
        manager = managers()
        manager.stop()
        assert "not running" in caplog.text
        manager.start()
        manager.start()
        assert "running already" in caplog.text

    @pytest.mark.parametrize("hard", [False, True])
    def test_stopping_again_is_no_fault(self, managers, caplog, hard):
        manager = managers()
        manager.start()
        manager.stop()
        manager.stop(hard_stop=hard)
        assert "not running" not in caplog.text

    def test_destroy_is_final(self, managers, caplog):
        manager = managers()
        manager.start()
        name = manager.add_request([1], max_new_tokens=2)
        manager.destroy()
        manager.destroy()
        assert manager.get_result(name).finish_reason is FinishReason.LENGTH
        with pytest.raises(EngineError, match="destroyed"):
            manager.start()
        caplog.clear()
        assert manager.add_request([1]) is None
        assert "destroyed and takes no requests; make a new manager" in caplog.text
        assert "begins anew" not in caplog.text

    def test_destroying_what_never_started_ends_its_requests(self, managers):
        manager = managers()
        name = manager.add_request([1], max_new_tokens=2)
        manager.destroy()
        output = manager.get_result(name)
        assert (output.status, output.finish_reason) == (RequestStatus.FAILED, FinishReason.STOPPED)
        assert "destroyed" in output.error

    def test_the_thread_does_not_keep_a_program_alive(self, managers):
        manager = managers()
        manager.start()
        (thread,) = (t for t in threading.enumerate() if t.name == "continuous-batching")
        assert thread.daemon

    def test_warming_up_builds_the_runner_and_reports(self, managers):
        class Warming(FakeRunner):
            def warmup(self, progress):
                for done in (1, 2):
                    progress(done, 2)

        manager = managers(lambda blueprint: Warming())
        seen = []
        manager.warmup(lambda done, total: seen.append((done, total)))
        assert seen == [(1, 2), (2, 2)] and manager.warmed_up


class TestPause:
    def test_nothing_runs_inside_and_everything_goes_on_after(self, managers):
        runner = FakeRunner()
        manager = managers(runner, use_async_batching=True, num_blocks=128)
        manager.start()
        name = manager.add_request([1, 2], max_new_tokens=400)
        while runner.launches < 3:
            threading.Event().wait(0.001)
        with manager.pause():
            assert manager._worker.engine.scheduler.num_in_flight == 0
            before = runner.launches
            assert manager.snapshot().step >= before
            threading.Event().wait(0.02)
            assert runner.launches == before
        assert manager.get_result(name).generated_tokens == expected([1, 2], 400)

    @pytest.mark.parametrize(("clear", "cached"), [(True, 0), (False, 4)])
    def test_it_forgets_prefixes_unless_told_otherwise(self, managers, clear, cached):
        manager = managers()
        manager.start()
        manager.get_result(manager.add_request([1] * 8, max_new_tokens=2))
        with manager.pause(clear_prefix_cache=clear):
            pass
        assert manager.get_result(manager.add_request([1] * 8, max_new_tokens=2)).cached_tokens == cached

    def test_two_threads_may_pause_and_the_last_one_lets_go(self, managers):
        runner = FakeRunner()
        manager = managers(runner)
        manager.start()
        inside, leave = threading.Event(), threading.Event()

        def other():
            with manager.pause():
                inside.set()
                leave.wait(10)

        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(10)
        with manager.pause():
            name = manager.add_request([1], max_new_tokens=2)
        assert manager.get_result(name, timeout=0.05) is None, "the other thread still pauses"
        leave.set()
        thread.join(10)
        assert manager.get_result(name).finish_reason is FinishReason.LENGTH

    def test_it_needs_a_running_engine(self, managers):
        with pytest.raises(EngineError, match="start"), managers().pause():
            pass

    def test_stopping_inside_would_wait_forever_and_is_refused(self, managers):
        manager = managers()
        manager.start()
        with manager.pause(), pytest.raises(EngineError, match="leave the pause"):
            manager.stop()
        manager.stop()

    def test_an_engine_that_dies_first_says_so(self, managers):
        gate = threading.Event()
        runner = FakeRunner(fail_at=2, gate=gate)
        manager = managers(runner, use_async_batching=True)
        manager.add_request([1], max_new_tokens=9)
        manager.start()
        errors = []

        def pause():
            try:
                with manager.pause():
                    pass
            except EngineError as error:
                errors.append(str(error))

        threads = [threading.Thread(target=pause) for _ in range(2)]
        for thread in threads:
            thread.start()
        gate.set()
        manager.join()
        for thread in threads:
            thread.join(10)
        assert all("ended before it could pause" in error or "start()" in error for error in errors)


def test_an_engine_is_built_with_errors_in_the_callers_thread():
    with pytest.raises(TypeError, match="ContinuousBatchingConfig"):
        Engine(None, config={"page_size": 4})

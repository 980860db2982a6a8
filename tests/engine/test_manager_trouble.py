"""The manager when something goes wrong, and that everybody gets exactly one output whatever happens."""

import threading

import pytest

from engine import EngineError, FinishReason, RequestStatus
from engine.core.errors import InvariantError
from tests.engine.fakes import FakeRunner, expected
from tests.engine.reading import finals


class TestFailure:
    def test_a_forward_pass_that_raises_gives_all_their_output_and_refuses_more(self, managers):
        manager = managers(FakeRunner(fail_at=3), max_requests_per_batch=3)
        names = [manager.add_request([n] * 4, max_new_tokens=9) for n in range(5)]
        manager.start()
        found = finals(manager)
        assert set(found) == set(names)
        for output in found.values():
            assert output.status is RequestStatus.FAILED
            assert "RuntimeError: the forward pass broke" in output.error and "step 3" in output.error
        manager.join()
        assert manager.status.state == "failed" and "the forward pass broke" in manager.status.error
        with pytest.raises(EngineError, match=r"died.*the forward pass broke.*start\(\)") as refused:
            manager.add_request([1])
        assert isinstance(refused.value.__cause__, RuntimeError)
        with pytest.raises(EngineError, match="died"):
            manager.add_requests([[1]])
        assert manager.get_result(timeout=5) is None
        assert manager.get_result("nobody") is None

    def test_it_starts_again_after_a_failure(self, managers):
        runner = FakeRunner(fail_at=2)
        manager = managers(runner)
        manager.add_request([1], request_id="a", max_new_tokens=5)
        manager.start()
        manager.get_result("a")
        manager.join()
        manager.start()
        manager.add_request([1], request_id="a", max_new_tokens=5)
        assert manager.get_result("a").generated_tokens == expected([1], 5)
        assert manager.status.error is None and runner.closed == 1

    def test_lost_bookkeeping_costs_the_engine_but_no_output(self, managers, monkeypatch):
        manager = managers()
        manager.add_request([1], request_id="a", max_new_tokens=5)

        def broken(*_, **__):
            raise InvariantError("the bookkeeping is broken")

        monkeypatch.setattr(manager._worker.engine.scheduler, "plan", broken)
        monkeypatch.setattr(manager._worker.engine.scheduler, "fail_all", broken)
        manager.start()
        output = manager.get_result("a")
        assert output.status is RequestStatus.FAILED and "the bookkeeping is broken" in output.error
        manager.join()
        before = manager.tap
        manager.start()
        assert manager.tap is not before
        manager.add_request([1], request_id="a", max_new_tokens=5)
        assert manager.get_result("a").generated_tokens == expected([1], 5)

    def test_a_runner_that_cannot_be_built_is_told_to_who_starts_it(self, managers):
        def refuse(blueprint):
            raise MemoryError("the cache does not fit")

        manager = managers(refuse)
        with pytest.raises(MemoryError, match="does not fit"):
            manager.start()
        assert manager.status.state == "new"

    def test_a_step_that_does_not_come_back_can_be_given_up(self, managers):
        gate = threading.Event()
        runners = [FakeRunner(gate=gate), FakeRunner()]
        made = iter(runners)
        manager = managers(lambda blueprint: next(made))
        manager.add_request([1, 2], request_id="stuck", max_new_tokens=5)
        manager.add_request([3] * 30, request_id="waiting", max_new_tokens=5)
        manager.start()
        runners[0].collecting.wait(10)
        assert manager.status.step_started is not None
        manager.stop(hard_stop=True, timeout=0.05)
        assert not manager.is_running()
        found = finals(manager)
        assert {name: output.finish_reason for name, output in found.items()} == {
            "stuck": FinishReason.STOPPED,
            "waiting": FinishReason.STOPPED,
        }
        assert "did not come back" in found["stuck"].error
        with pytest.raises(EngineError, match="given up"):
            manager.add_request([1])
        manager.start()
        manager.add_request([1, 2], request_id="stuck", max_new_tokens=5)
        assert manager.get_result("stuck").generated_tokens == expected([1, 2], 5)
        gate.set()
        while runners[0].closed == 0:
            threading.Event().wait(0.001)
        assert manager.get_result(timeout=0.01) is None, "the lost step must not deliver anything"


class TestOneOutputEach:
    @pytest.mark.parametrize("end", ["drain", "hard", "fail", "destroy"])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_whatever_happens_everybody_gets_exactly_one(self, managers, end, is_async):
        runner = FakeRunner(fail_at=15 if end == "fail" else None, nan={"c1": 2})
        manager = managers(runner, use_async_batching=is_async, num_blocks=12, max_requests_per_batch=4)
        manager.start()
        accepted, lock = [], threading.Lock()

        def client(letter):
            for n in range(12):
                try:
                    name = manager.add_request(
                        [ord(letter) % 90] * (n + 1), request_id=f"{letter}{n}", max_new_tokens=n, streaming=n % 2 == 0
                    )
                except EngineError:
                    return
                if name is None:
                    return
                with lock:
                    accepted.append(name)
                if n % 4 == 3:
                    manager.cancel_request(f"{letter}{n - 1}")

        threads = [threading.Thread(target=client, args=(letter,)) for letter in "abcd"]
        for thread in threads:
            thread.start()
        if end in ("hard", "destroy"):
            while runner.launches < 5:
                threading.Event().wait(0.001)
            manager.stop(hard_stop=True) if end == "hard" else manager.destroy()
        for thread in threads:
            thread.join(10)
        if end == "drain":
            manager.stop()
        manager.join()
        terminal = []
        while (output := manager.get_result(timeout=0)) is not None:
            if output.is_finished():
                terminal.append(output)
                if output.status is RequestStatus.FINISHED:
                    assert output.finish_reason is FinishReason.LENGTH
                    assert len(output.generated_tokens) == int(output.request_id[1:])
                elif output.status is RequestStatus.FAILED:
                    assert output.error
        assert sorted(output.request_id for output in terminal) == sorted(accepted)

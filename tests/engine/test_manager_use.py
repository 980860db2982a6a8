"""What callers do with a running manager: add, cancel, read."""

import asyncio
import threading

import pytest

from engine import FinishReason, QueueFullError, RequestError, RequestStatus
from engine import worker as worker_module
from tests.engine.fakes import FakeRunner, expected


class TestAdding:
    def test_names_are_made_up_or_given(self, start):
        manager = start()
        assert manager.add_request([1], max_new_tokens=1) == "req_0"
        assert manager.add_request([1], request_id="mine", max_new_tokens=1) == "mine"
        assert manager.add_request([1], max_new_tokens=1) == "req_1"

    def test_a_batch_is_queued_sorted_and_answered_in_order(self, start):
        manager = start(FakeRunner())
        manager.hold()
        prompts = [[1, 2], [5], [1, 2, 3], [5, 6]]
        names = manager.add_requests(prompts, max_new_tokens=2)
        assert names == ["req_0", "req_1", "req_2", "req_3"]
        frame = manager.snapshot()
        queued = [frame.sequences[key].info.request_id for key in frame.waiting]
        assert queued == ["req_3", "req_1", "req_2", "req_0"]
        manager.resume()
        for name, prompt in zip(names, prompts, strict=True):
            assert manager.get_result(name).generated_tokens == expected(prompt, 2)

    @pytest.mark.parametrize("switch", [{"reorder_requests": False}, {"allow_block_sharing": False}])
    def test_the_sorting_can_be_switched_off(self, start, switch):
        manager = start(**switch)
        manager.hold()
        manager.add_requests([[1], [3], [2]], max_new_tokens=2)
        frame = manager.snapshot()
        assert [frame.sequences[key].info.request_id for key in frame.waiting] == ["req_0", "req_1", "req_2"]

    def test_one_bad_prompt_keeps_the_whole_batch_out(self, start):
        manager = start()
        with pytest.raises(RequestError, match="empty"):
            manager.add_requests([[1], [], [2]], max_new_tokens=2)
        assert list(manager) == []

    def test_refusals_happen_in_the_callers_thread_and_hurt_nobody(self, start):
        manager = start()
        manager.hold()
        name = manager.add_request([1, 2], max_new_tokens=20)
        for wrong in ({"input_ids": []}, {"input_ids": [1], "temperature": -1}, {"input_ids": [97]}):
            with pytest.raises(RequestError):
                manager.add_request(**wrong)
        with pytest.raises(RequestError, match="in use"):
            manager.add_request([3], request_id=name)
        with pytest.raises(TypeError):
            manager.add_request({"ids": [1]})
        manager.resume()
        assert manager.get_result(name).generated_tokens == expected([1, 2], 20)

    def test_many_threads_may_add_at_once(self, start):
        manager = start()
        threads = [
            threading.Thread(target=lambda n=n: [manager.add_request([n, i], max_new_tokens=2) for i in range(25)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        outputs = list(manager)
        assert len({output.request_id for output in outputs}) == 100
        assert all(output.generated_tokens == expected(output.prompt_ids, 2) for output in outputs)


class TestBackPressure:
    def test_a_full_queue_makes_the_caller_wait_until_somebody_starts(self, start):
        gate = threading.Event()
        runner = FakeRunner(gate=gate)
        manager = start(runner, max_queue_size=2, max_requests_per_batch=1)
        manager.add_request([1], max_new_tokens=1)
        runner.collecting.wait(10)
        for n in (2, 3):
            manager.add_request([n], max_new_tokens=1)
        added = threading.Event()
        thread = threading.Thread(target=lambda: (manager.add_request([4], max_new_tokens=1), added.set()))
        thread.start()
        assert not added.wait(0.05)
        gate.set()
        assert added.wait(10)
        thread.join()
        assert len(list(manager)) == 4

    def test_it_is_refused_when_nobody_starts_in_time(self, start, monkeypatch):
        monkeypatch.setattr(worker_module, "QUEUE_PATIENCE", 0.01)
        manager = start(max_queue_size=2)
        manager.hold()
        names = [manager.add_request([n], max_new_tokens=1) for n in range(2)]
        with pytest.raises(QueueFullError, match=r"2 requests wait already \(max_queue_size\)"):
            manager.add_request([3], request_id="no", max_new_tokens=1)
        manager.resume()
        assert sorted(output.request_id for output in manager) == names

    def test_a_batch_that_finds_no_room_half_way_is_taken_back(self, start, monkeypatch):
        monkeypatch.setattr(worker_module, "QUEUE_PATIENCE", 0.01)
        manager = start(max_queue_size=2)
        manager.hold()
        with pytest.raises(QueueFullError):
            manager.add_requests([[1], [2], [3]], max_new_tokens=1)
        assert [output.finish_reason for output in manager] == [FinishReason.CANCELLED] * 2

    def test_a_stop_wakes_who_waits(self, start):
        manager = start(max_queue_size=1)
        manager.hold()
        manager.add_request([1], max_new_tokens=1)
        results = []
        thread = threading.Thread(target=lambda: results.append(manager.add_request([2], max_new_tokens=1)))
        thread.start()
        while manager._worker._room_seekers == 0:
            threading.Event().wait(0.001)
        manager.stop(hard_stop=True)
        thread.join(10)
        assert results == [None]


class TestCancelling:
    def test_running_waiting_and_unknown(self, start):
        gate = threading.Event()
        runner = FakeRunner(gate=gate)
        manager = start(runner, max_requests_per_batch=1)
        manager.add_request([1], request_id="running", max_new_tokens=100)
        runner.collecting.wait(10)
        manager.add_request([2], request_id="waiting", max_new_tokens=5)
        assert manager.cancel_request("running") and manager.cancel_request("waiting")
        assert not manager.cancel_request("nobody")
        gate.set()
        outputs = list(manager)
        assert {output.request_id: output.status for output in outputs} == {
            "running": RequestStatus.CANCELLED,
            "waiting": RequestStatus.CANCELLED,
        }
        lengths = {output.request_id: len(output.generated_tokens) for output in outputs}
        assert lengths == {"running": 1, "waiting": 0}

    def test_what_is_over_cannot_be_cancelled(self, start):
        manager = start()
        name = manager.add_request([1], max_new_tokens=1)
        assert manager.get_result(name).status is RequestStatus.FINISHED
        assert not manager.cancel_request(name)
        assert manager.get_result(name, timeout=0.02) is None


class TestReading:
    def test_iterating_ends_when_all_work_is_delivered(self, start):
        manager = start()
        names = manager.add_requests([[n] for n in range(10)], max_new_tokens=3)
        assert sorted(output.request_id for output in manager) == sorted(names)
        assert list(manager) == []

    def test_three_streams_see_every_length_while_others_wait_unread(self, start):
        manager = start()
        manager.add_request([9], request_id="unread", max_new_tokens=30, streaming=True)
        for name in "abc":
            manager.add_request([ord(name) % 90], request_id=name, max_new_tokens=20, streaming=True)
        seen = {}

        def read(name):
            seen[name] = [len(output.generated_tokens) for output in manager.request_id_iter(name)]

        threads = [threading.Thread(target=read, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert seen == {name: list(range(1, 21)) for name in "abc"}
        assert [len(output.generated_tokens) for output in manager] == list(range(1, 31))

    async def test_handlers_of_one_loop_get_their_own(self, start):
        manager = start()
        received = {name: [] for name in "ab"}
        done = asyncio.Event()

        def handler(output):
            received[output.request_id].append(len(output.generated_tokens))
            if all(lengths[-1:] == [5] for lengths in received.values()):
                done.set()

        for name in "ab":
            manager.register_result_handler(name, handler)
            manager.add_request([1], request_id=name, max_new_tokens=5, streaming=True)
        await asyncio.wait_for(done.wait(), 10)
        assert received == {"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 5]}

"""Results reach exactly the reader they are meant for, without polling."""

import asyncio
import threading
import time

import pytest

from engine import delivery
from engine.core.errors import InvariantError, RequestError
from engine.core.request import GenerationOutput, Request, RequestStatus
from engine.delivery import Router


def partial(name, *tokens):
    return GenerationOutput(name, generated_tokens=list(tokens), status=RequestStatus.DECODING)


def final(name, *tokens):
    return GenerationOutput(name, generated_tokens=list(tokens), status=RequestStatus.FINISHED)


def router(*names, copies=1):
    made = Router()
    made.set_open(True)
    for name in names:
        made.accept(Request(name, (1,), num_return_sequences=copies))
    return made


def in_thread(function):
    """Runs ``function`` on a thread; the returned function waits for its result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()

    def wait():
        thread.join(10)
        assert not thread.is_alive(), "the reader still waits"
        return results[0]

    return wait


class TestOwed:
    def test_a_live_id_cannot_be_taken_again(self):
        made = router("a")
        with pytest.raises(RequestError, match="'a' is in use"):
            made.accept(Request("a", (1,)))
        made.deliver([final("a")])
        made.accept(Request("a", (1,)))

    def test_the_name_of_a_sibling_is_taken_too(self):
        made = router("a", copies=2)
        names = sorted(made.live)
        assert len(names) == 2
        with pytest.raises(RequestError):
            made.accept(Request(names[1], (1,)))

    def test_a_second_terminal_output_is_a_bug_and_everything_else_arrives(self):
        made = router("a", "b")
        made.deliver([final("a")])
        with pytest.raises(InvariantError, match="a second terminal output for a"):
            made.deliver([final("a"), final("b")])
        assert [made.next(0).request_id, made.next(0).request_id, made.next(0)] == ["a", "b", None]

    def test_made_up_names_avoid_live_ones(self):
        made = router("req_0", "req_2")
        assert [made.new_id(), made.new_id()] == ["req_1", "req_3"]


class TestReading:
    def test_the_order_of_arrival_is_kept_over_all_ids(self):
        made = router("a", "b")
        made.deliver([partial("a", 1), partial("b", 1), partial("a", 1, 2), final("b", 1), final("a", 1, 2)])
        assert [made.next(0).request_id for _ in range(5)] == ["a", "b", "a", "b", "a"]

    def test_one_id_can_be_read_past_the_others(self):
        made = router("a", "b")
        made.deliver([final("a"), final("b")])
        assert made.next_of("b", 0).request_id == "b"
        assert made.next(0).request_id == "a"
        assert made.next(0) is None

    def test_a_claimed_id_is_for_its_reader_alone(self):
        made = router("a", "b")
        stream = made.all_of("a")
        made.deliver([partial("a", 1)])
        assert next(stream).generated_tokens == [1]
        made.deliver([partial("a", 1, 2), final("b"), final("a", 1, 2, 3)])
        assert made.next(0).request_id == "b"
        assert made.next(0) is None
        assert [output.generated_tokens for output in stream] == [[1, 2], [1, 2, 3]]

    def test_what_a_reader_leaves_behind_goes_to_everybody(self):
        made = router("a")
        stream = made.all_of("a")
        made.deliver([partial("a", 1), final("a", 1, 2)])
        next(stream)
        stream.close()
        assert made.next(0).generated_tokens == [1, 2]

    def test_an_unknown_id_ends_at_once_and_a_timeout_waits_for_it(self):
        made = router()
        assert made.next_of("nobody") is None
        assert list(made.all_of("nobody")) == []
        began = time.monotonic()
        assert made.next_of("nobody", 0.05) is None
        assert time.monotonic() - began >= 0.05

    def test_a_reader_with_a_timeout_may_come_before_its_request(self):
        made = router()
        wait = in_thread(lambda: made.next_of("late", 10))
        made.accept(Request("late", (1,)))
        made.deliver([final("late")])
        assert wait().request_id == "late"

    def test_closing_wakes_everybody(self):
        made = router("a")
        waits = [in_thread(made.next), in_thread(lambda: made.next_of("a")), in_thread(lambda: list(made.all_of("a")))]
        made.set_open(False)
        assert [wait() for wait in waits] == [None, None, []]

    def test_what_arrived_can_still_be_read_after_closing(self):
        made = router("a", "b")
        made.deliver([final("a"), final("b")])
        made.set_open(False)
        assert made.next().request_id == "a"
        assert made.next_of("b").request_id == "b"
        assert made.next() is None

    def test_reading_until_done_ends_with_the_last_debt_even_if_another_takes_it(self):
        made = router("a")
        wait = in_thread(lambda: made.next(until_done=True))
        claim = in_thread(lambda: made.next_of("a"))
        while "a" not in made._boxes or not made._boxes["a"].claims:
            time.sleep(0.001)
        made.deliver([final("a")])
        assert claim().request_id == "a"
        assert wait() is None

    def test_nothing_is_kept_of_what_was_read(self):
        made = router("a", "b")
        made.deliver([final("a"), final("b")])
        made.next_of("a", 0)
        made.next(0)
        made.next_of("nobody", 0)
        assert made._boxes == {} and made.live == {}


class TestWaiting:
    def test_a_reader_wakes_for_its_own_output_only(self, monkeypatch):
        wakes, wait = [], delivery._wait
        monkeypatch.setattr(delivery, "_wait", lambda *arguments: wakes.append(1) or wait(*arguments))
        made = router("a", *(f"other{i}" for i in range(50)))
        waits = [in_thread(lambda: made.next_of("a", 10)) for _ in range(2)]
        while len(wakes) < 2:
            time.sleep(0.001)
        for i in range(50):
            made.deliver([final(f"other{i}")])
        assert len(wakes) == 2, "waiting for one id looked again when another arrived"
        made.deliver([partial("a", 1), final("a", 1, 2)])
        assert sorted(len(result().generated_tokens) for result in waits) == [1, 2]

    def test_many_readers_each_get_their_own_in_order(self):
        names = [f"r{i}" for i in range(8)]
        made = router(*names)
        waits = {name: in_thread(lambda name=name: [o.generated_tokens for o in made.all_of(name)]) for name in names}
        for length in range(1, 21):
            made.deliver([partial(name, *range(length)) if length < 20 else final(name, *range(20)) for name in names])
        lengths = [[len(tokens) for tokens in wait()] for wait in waits.values()]
        assert lengths == [list(range(1, 21))] * 8
        assert made.next(0) is None


class TestHandlers:
    async def test_each_output_is_called_on_the_loop_in_order(self):
        made = router("a")
        received, done = [], asyncio.Event()
        threads = set()

        def handler(output):
            threads.add(threading.current_thread())
            received.append(output.generated_tokens)
            if output.is_finished():
                done.set()

        made.deliver([partial("a", 1)])
        made.on_result("a", handler)
        in_thread(lambda: made.deliver([partial("a", 1, 2), final("a", 1, 2, 3)]))()
        await asyncio.wait_for(done.wait(), 10)
        assert received == [[1], [1, 2], [1, 2, 3]]
        assert threads == {threading.current_thread()}
        assert made._boxes == {}

    async def test_a_handler_may_come_before_its_request(self):
        made = router()
        done = asyncio.get_running_loop().create_future()
        made.on_result("a", done.set_result)
        made.accept(Request("a", (1,)))
        made.deliver([final("a")])
        assert (await asyncio.wait_for(done, 10)).request_id == "a"

    async def test_a_handler_that_raises_hurts_nobody_else(self):
        made = router("a", "b")
        done = asyncio.get_running_loop().create_future()
        problems = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context["exception"]))
        made.on_result("a", lambda output: 1 / 0)
        made.on_result("b", done.set_result)
        made.deliver([final("a"), final("b")])
        assert (await asyncio.wait_for(done, 10)).request_id == "b"
        assert [type(problem) for problem in problems] == [ZeroDivisionError]

    def test_results_of_a_closed_loop_are_kept_for_whoever_asks(self):
        made = router("a")

        async def register():
            made.on_result("a", lambda output: None)

        asyncio.run(register())
        made.deliver([final("a")])
        assert made.next(0).request_id == "a"

    def test_a_handler_needs_a_loop(self):
        with pytest.raises(RuntimeError):
            router().on_result("a", print)

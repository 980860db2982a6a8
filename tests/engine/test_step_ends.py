"""How requests of an engine end, stepped by the caller: failures, stop strings and text, the names of the ends."""

import pytest

from engine import FinishReason, RequestStatus
from engine.core.errors import Stalled
from engine.core.invariants import check
from tests.engine.fakes import CharTokenizer, FakeRunner, expected, fake_engine
from tests.engine.reading import outputs_by_id


class TestFailures:
    def test_a_row_that_is_not_finite_fails_its_request_only(self):
        engine = fake_engine(FakeRunner(nan={"bad": 2}))
        engine.submit([1, 2], request_id="good", max_new_tokens=5)
        engine.submit([3] * 9, request_id="bad", max_new_tokens=5)
        engine.run_until_idle()
        found = outputs_by_id(engine)
        assert found["good"].generated_tokens == expected([1, 2], 5)
        bad = found["bad"]
        assert (bad.status, bad.finish_reason) == (RequestStatus.FAILED, FinishReason.FAILED)
        assert bad.generated_tokens == expected([3] * 9, 2)
        assert bad.error == "non-finite logits at step 3"
        engine.submit([3] * 9, request_id="again", max_new_tokens=1)
        engine.run_until_idle()
        assert outputs_by_id(engine)["again"].cached_tokens == 0, "blocks of a failed request must not be found"

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_forward_pass_that_raises_ends_everything_with_its_cause(self, is_async):
        engine = fake_engine(FakeRunner(fail_at=3), use_async_batching=is_async, max_requests_per_batch=3)
        for n in range(5):
            engine.submit([n] * 4, request_id=f"r{n}", max_new_tokens=9)
        with pytest.raises(RuntimeError, match="the forward pass broke"):
            engine.run_until_idle()
        engine.submit([9], request_id="queued", max_new_tokens=3)
        engine.fail(FinishReason.FAILED, "the forward pass broke")
        found = outputs_by_id(engine)
        assert set(found) == {"r0", "r1", "r2", "r3", "r4", "queued"}
        for output in found.values():
            assert (output.status, output.error) == (RequestStatus.FAILED, "the forward pass broke")
        assert check(engine.scheduler) == []
        assert engine.results.live == {}

    def test_a_plan_that_stays_empty_is_a_bug_and_is_raised(self):
        engine = fake_engine()
        engine.submit([1] * 100, max_new_tokens=20)
        engine.scheduler.cache.pool.free.clear()  # a fault of the bookkeeping: all blocks are lost
        with pytest.raises(Stalled, match="wait_blocks") as stalled:
            engine.step()
        assert [decision.seq for decision in stalled.value.decisions] == [0]


class TestText:
    tokenizer = CharTokenizer(["ab", "cd", "DEF", "G", "HI", "J", "x", "bc"])

    def run(self, tokens, stop, streaming=True):
        engine = fake_engine(FakeRunner(token_of=lambda seq, at: tokens[at]), tokenizer=self.tokenizer)
        engine.submit([6], request_id="t", max_new_tokens=len(tokens), stop_strings=stop, streaming=streaming)
        engine.run_until_idle()
        return engine.take_outputs()

    def test_a_stop_string_over_two_tokens_is_cut_exactly_and_never_shown(self):
        outputs = self.run([0, 1, 6], ["bc"])
        assert [output.text for output in outputs] == ["a", "a"]
        assert outputs[-1].finish_reason is FinishReason.STOP_STRING
        assert outputs[-1].generated_tokens == [0, 1]

    def test_a_match_over_four_tokens(self):
        outputs = self.run([6, 2, 3, 4, 5, 6], ["DEFGHIJ"])
        assert [output.text for output in outputs] == ["x", "x", "x", "x", "x"]

    def test_held_text_is_let_out_when_the_match_breaks(self):
        outputs = self.run([2, 3, 6, 6], ["DEFGHIJ"])
        assert [output.text for output in outputs] == ["", "", "DEFGx", "DEFGxx"]
        assert outputs[-1].finish_reason is FinishReason.LENGTH

    def test_held_text_is_let_out_at_the_end(self):
        assert self.run([6, 2, 3], ["DEFGHIJ"])[-1].text == "xDEFG"

    def test_text_grows_with_the_stream_without_stop_strings_too(self):
        assert [output.text for output in self.run([0, 1, 6], None)] == ["ab", "abcd", "abcdx"]

    def test_without_streaming_there_is_one_text_at_the_end(self):
        assert [output.text for output in self.run([0, 1, 6], None, streaming=False)] == ["abcdx"]

    def test_without_a_tokenizer_there_is_none(self):
        engine = fake_engine()
        engine.submit([1], max_new_tokens=1)
        engine.run_until_idle()
        assert engine.take_outputs()[0].text is None


class TestReasons:
    def test_each_end_has_its_name(self):
        tokens = {"eos": [5, 7], "stop": [0, 1], "length": [5, 5], "bad": [5, 5], "cancelled": [5] * 9, "rest": [5] * 9}
        runner = FakeRunner(token_of=lambda seq, at: tokens[seq.request.request_id][at], nan={"bad": 1})
        engine = fake_engine(runner, tokenizer=TestText.tokenizer)
        engine.submit([6], request_id="eos", max_new_tokens=9, eos_token_id=[7])
        engine.submit([6], request_id="stop", max_new_tokens=9, stop_strings="bc")
        engine.submit([6], request_id="length", max_new_tokens=2)
        engine.submit([6], request_id="bad", max_new_tokens=9)
        engine.submit([6], request_id="cancelled", max_new_tokens=30)
        engine.submit([6], request_id="rest", max_new_tokens=30)
        for _ in range(4):
            engine.step()
        engine.cancel("cancelled")
        engine.step()
        engine.fail(FinishReason.STOPPED, "stopped")
        reasons = {name: output.finish_reason for name, output in outputs_by_id(engine).items()}
        assert reasons == {
            "eos": FinishReason.EOS, "stop": FinishReason.STOP_STRING, "length": FinishReason.LENGTH,
            "bad": FinishReason.FAILED, "cancelled": FinishReason.CANCELLED, "rest": FinishReason.STOPPED,
        }  # fmt: skip

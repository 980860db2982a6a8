"""The loop body without threads: commands, records, pace, failures."""

import math

import pytest

from engine import ConfigError, FinishReason, RequestError, RequestStatus, RunUntil
from engine.core.errors import Stalled
from engine.core.fold import fold
from engine.core.invariants import check
from engine.loop import Engine
from tests.engine.fakes import CharTokenizer, FakeRunner, expected, fake_blueprint, fake_engine


def records_of(engine, after=0):
    records, missed = engine.tap.read(after)
    assert not missed
    return records


def acks_of(engine):
    return [ack for record in records_of(engine) for ack in record.commands]


def outputs_by_id(engine):
    return {output.request_id: output for output in engine.take_outputs() if output.is_finished()}


class TestRunning:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_all_requests_end_with_their_tokens(self, is_async):
        engine = fake_engine(use_async_batching=is_async)
        prompts = [[n] * (1 + 3 * n) for n in range(1, 8)]
        names = [engine.submit(prompt, max_new_tokens=4 + n) for n, prompt in enumerate(prompts)]
        engine.run_until_idle()
        found = outputs_by_id(engine)
        for n, (name, prompt) in enumerate(zip(names, prompts, strict=True)):
            assert found[name].generated_tokens == expected(prompt, 4 + n)
            assert found[name].finish_reason is FinishReason.LENGTH
        assert check(engine.scheduler) == []
        assert not engine.has_work

    def test_async_keeps_one_step_in_flight_and_brings_all_home(self):
        engine = fake_engine(use_async_batching=True)
        engine.submit([1, 2], max_new_tokens=5)
        engine.step()
        assert engine.scheduler.num_in_flight == 1
        engine.step()
        assert engine.scheduler.num_in_flight == 1
        engine.run_until_idle()
        assert engine.scheduler.num_in_flight == 0

    def test_nothing_to_do_is_nothing_done(self):
        engine = fake_engine()
        assert engine.step() is False
        assert engine.runner.launches == 0

    def test_a_request_for_no_tokens_ends_without_a_step(self):
        engine = fake_engine()
        engine.submit([1, 2, 3], request_id="none", max_new_tokens=0)
        engine.step()
        (output,) = engine.take_outputs()
        assert (output.generated_tokens, output.finish_reason) == ([], FinishReason.LENGTH)
        assert output.status is RequestStatus.FINISHED
        assert engine.runner.launches == 0

    def test_times_and_numbers_of_an_output(self):
        now = iter(range(1, 10_000))
        engine = Engine(None, runner=FakeRunner(), blueprint=fake_blueprint(), clock=lambda: float(next(now)))
        engine.submit([1] * 8, request_id="first", max_new_tokens=3, record_timestamps=True)
        engine.run_until_idle()
        first = outputs_by_id(engine)["first"]
        assert len(first.timestamps) == 3 and first.timestamps == sorted(first.timestamps)
        assert first.created_time < first.lifespan[0] < first.timestamps[0] <= first.lifespan[1]
        assert first.time_to_first_token == first.timestamps[0] - first.created_time

    def test_a_second_request_with_the_same_prompt_reports_cached_tokens(self):
        engine = fake_engine()
        for name in ("first", "again"):
            engine.submit([1] * 8, request_id=name, max_new_tokens=3)
            engine.run_until_idle()
        found = outputs_by_id(engine)
        assert (found["first"].cached_tokens, found["again"].cached_tokens) == (0, 4)
        assert found["again"].timestamps is None

    def test_streaming_shows_every_length_once(self):
        engine = fake_engine()
        engine.submit([1, 2], request_id="s", max_new_tokens=5, streaming=True)
        engine.run_until_idle()
        outputs = engine.take_outputs()
        assert [len(output.generated_tokens) for output in outputs] == [1, 2, 3, 4, 5]
        assert [output.status for output in outputs] == [RequestStatus.DECODING] * 4 + [RequestStatus.FINISHED]
        assert [output.finish_reason for output in outputs] == [None] * 4 + [FinishReason.LENGTH]

    def test_log_probabilities_go_to_those_who_asked(self):
        engine = fake_engine()
        engine.submit([1, 2], request_id="with", max_new_tokens=3, logprobs=0)
        engine.submit([1, 3], request_id="without", max_new_tokens=3)
        engine.run_until_idle()
        found = outputs_by_id(engine)
        assert found["with"].logprobs == [-token / 97 for token in expected([1, 2], 3)]
        assert found["without"].logprobs == []

    def test_siblings_have_ids_of_their_own(self):
        engine = fake_engine()
        engine.submit([1, 2], request_id="n", max_new_tokens=3, num_return_sequences=3, seed=5, do_sample=True)
        engine.run_until_idle()
        found = outputs_by_id(engine)
        assert len(found) == 3
        tokens = [output.generated_tokens for output in found.values()]
        assert tokens == [expected([1, 2], 3, seed=5, child=child) for child in range(3)]


class TestCommands:
    def test_each_is_acknowledged_with_the_step_it_took_effect_in(self):
        engine = fake_engine()
        engine.tap.attach()
        engine.submit([1, 2], request_id="a", max_new_tokens=3)
        engine.step()
        engine.cancel("a")
        engine.cancel("nobody")
        engine.step()
        first, second = records_of(engine)
        assert [(ack.kind, ack.target, ack.accepted) for ack in first.commands] == [("add", "a", True)]
        assert [(ack.kind, ack.accepted) for ack in second.commands] == [("cancel", True), ("cancel", False)]
        assert "no live request 'nobody'" in second.commands[1].detail
        assert len({ack.ticket for ack in acks_of(engine)}) == 3

    def test_commands_of_an_idle_engine_get_a_step_of_their_own(self):
        engine = fake_engine()
        engine.tap.attach()
        engine.cancel("nobody")
        engine.step()
        engine.post("pause", "", engine.pace.hold)
        engine.step()
        steps = [record.step for record in records_of(engine)]
        assert steps == [1, 2]
        engine.post("resume", "", engine.pace.resume)
        engine.submit([1], max_new_tokens=1)
        engine.step()
        assert records_of(engine)[-1].step == 3

    def test_unwatched_nothing_is_recorded(self):
        engine = fake_engine()
        engine.submit([1, 2], max_new_tokens=3)
        engine.run_until_idle()
        assert engine.tap.published == 0
        assert engine.scheduler.state.journal.on is False

    def test_a_live_id_is_refused_and_nobody_is_disturbed(self):
        engine = fake_engine()
        engine.submit([1, 2], request_id="a", max_new_tokens=3)
        with pytest.raises(RequestError, match="'a' is in use"):
            engine.submit([3], request_id="a", max_new_tokens=3)
        engine.step()
        with pytest.raises(RequestError, match="'a' is in use"):
            engine.submit([3], request_id="a", max_new_tokens=3)
        engine.run_until_idle()
        assert outputs_by_id(engine)["a"].generated_tokens == expected([1, 2], 3)

    def test_a_request_larger_than_the_pool_is_refused_with_numbers(self):
        engine = fake_engine(num_blocks=8, max_requests_per_batch=4)
        engine.submit([1], request_id="behind", max_new_tokens=2)
        with pytest.raises(RequestError, match=r"64 tokens need 16 blocks of 4 tokens, but the pool has 8"):
            engine.submit([1] * 60, max_new_tokens=4)
        engine.run_until_idle()
        assert outputs_by_id(engine)["behind"].generated_tokens == expected([1], 2)

    def test_without_a_limit_a_request_runs_to_the_end_of_the_pool(self):
        engine = fake_engine(num_blocks=8, max_requests_per_batch=4)
        engine.submit([1] * 5, request_id="a")
        engine.run_until_idle()
        assert len(outputs_by_id(engine)["a"].generated_tokens) == 8 * 4 + 1 - 5

    @pytest.mark.parametrize("cut", range(12))
    @pytest.mark.parametrize("is_async", [False, True])
    def test_cancelled_at_any_step_it_ends_once_with_what_it_has(self, cut, is_async):
        engine = fake_engine(use_async_batching=is_async, num_blocks=16)
        engine.submit([1] * 20, request_id="a", max_new_tokens=8, num_return_sequences=2, do_sample=True, seed=1)
        engine.submit([2] * 20, request_id="b", max_new_tokens=8)
        for _ in range(cut):
            engine.step()
        engine.cancel("a")
        engine.run_until_idle()
        ended = [output for output in engine.take_outputs() if output.is_finished()]
        assert len(ended) == 3 and len({output.request_id for output in ended}) == 3
        for output in ended:
            if output.request_id == "b":
                assert output.generated_tokens == expected([2] * 20, 8)
                continue
            child = 0 if output.request_id == "a" else 1
            whole = expected([1] * 20, 8, seed=1, child=child)
            assert output.generated_tokens == whole[: len(output.generated_tokens)]
            if output.finish_reason is not FinishReason.LENGTH:
                assert (output.status, output.finish_reason) == (RequestStatus.CANCELLED, FinishReason.CANCELLED)
                assert output.error is None
        assert check(engine.scheduler) == []


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


class TestConfigure:
    def test_it_takes_effect_at_the_next_step_and_says_so(self):
        engine = fake_engine()
        engine.tap.attach()
        engine.submit([1] * 20, max_new_tokens=2)
        engine.configure(max_batch_tokens=5, scheduler_type="prefill_first")
        engine.step()
        (record,) = records_of(engine)
        assert [ack.target for ack in record.commands] == ["req_0", "max_batch_tokens", "scheduler_type"]
        assert [piece.query for piece in record.slices] == [5]
        assert record.settings["max_batch_tokens"] == 5 and record.settings["policy"] == "prefill_first"
        assert engine.config.max_batch_tokens.value == 5

    def test_a_refused_field_changes_nothing(self):
        engine = fake_engine()
        with pytest.raises(ConfigError, match="page_size is built into the engine"):
            engine.configure(max_batch_tokens=5, page_size=8)
        assert not engine.has_news
        assert engine.config.max_batch_tokens.value == 12

    def test_log_probabilities_can_be_switched_on_for_those_who_come_later(self):
        engine = fake_engine()
        engine.configure(return_logprobs=True)
        engine.step()
        engine.submit([1], request_id="a", max_new_tokens=2)
        engine.run_until_idle()
        assert len(outputs_by_id(engine)["a"].logprobs) == 2


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

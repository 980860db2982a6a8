"""The loop body without threads: requests that run, commands, configuration."""

import pytest

from engine import ConfigError, FinishReason, RequestError, RequestStatus
from engine.core.invariants import check
from engine.loop import Engine
from tests.engine.fakes import FakeRunner, expected, fake_blueprint, fake_engine
from tests.engine.reading import acks_of, outputs_by_id, records_of


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
        engine.post("clear_prefix_cache", "", engine.clear_cache)
        engine.step()
        steps = [record.step for record in records_of(engine)]
        assert steps == [1, 2]
        engine.post("pause", "", engine.pace.hold)
        engine.step()
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

"""The engine on a real model when blocks are short, and when weights change or fail."""

import threading

import pytest

from engine import (
    ContinuousBatchingConfig,
    ContinuousBatchingManager,
    Engine,
    RequestStatus,
)
from tests.engine.on_model import SMALL, engine_of, prompt, run
from tests.tiny import reference, tiny_model


class TestPressure:
    def test_parallel_sampling_in_a_pool_for_two(self, model):
        wanted = {"id": "a", "max_new_tokens": 12, "num_return_sequences": 4, "temperature": 1.0, "seed": 5}
        runs = [run(engine_of(model, num_blocks=blocks), {"prompt": prompt(1, 13), **wanted}) for blocks in (64, 12)]
        alone, tight = ({name: output.generated_tokens for name, output in found.items()} for found in runs)
        assert len(tight) == 4
        assert tight == alone
        assert all(len(tokens) == 12 for tokens in tight.values())
        assert len({tuple(tokens) for tokens in tight.values()}) > 1

    @pytest.mark.parametrize("space", [0.0, 1e-4])
    def test_times_survive_a_lost_place(self, model, space):
        now = iter(range(100_000))
        engine = Engine(
            model, config=ContinuousBatchingConfig(**{**SMALL, "num_blocks": 10, "cpu_offload_space": space}),
            clock=lambda: float(next(now)),
        )  # fmt: skip
        wanted = [
            {"prompt": prompt(n, 9), "id": f"r{n}", "max_new_tokens": 16, "record_timestamps": True, "logprobs": 0}
            for n in range(4)
        ]
        found = run(engine, *wanted)
        counters = engine.scheduler.state.counters()
        assert counters.preemptions + counters.offloads > 0
        for n in range(4):
            output = found[f"r{n}"]
            assert output.generated_tokens == reference(model, prompt(n, 9), 16)
            assert len(output.timestamps) == len(output.logprobs) == 16
            assert output.timestamps == sorted(output.timestamps)
            assert output.time_to_first_token == output.timestamps[0] - output.created_time
            assert output.created_time < output.lifespan[0] < output.timestamps[0]

    @pytest.mark.parametrize("is_async", [False, True])
    def test_penalties_see_real_tokens_with_and_without_a_step_in_flight(self, model, is_async):
        engine = engine_of(model, use_async_batching=is_async, num_blocks=12)
        wanted = {
            "rep": {"repetition_penalty": 1.7}, "ngram": {"no_repeat_ngram_size": 2}, "min": {"min_new_tokens": 6},
            "both": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3}, "plain": {},
        }  # fmt: skip
        eos = reference(model, prompt(3, 7), 4)[2]
        requests = [
            {"prompt": prompt(3, 7), "id": name, "max_new_tokens": 10, "eos_token_id": eos, **extra}
            for name, extra in wanted.items()
        ]
        found = run(engine, *requests)
        for name, extra in wanted.items():
            alone = reference(model, prompt(3, 7), 10, eos_token_id=eos, pad_token_id=0, **extra)
            assert found[name].generated_tokens == alone, name

    def test_cancel_while_the_step_is_in_flight(self, model):
        engine = engine_of(model, use_async_batching=True)
        engine.submit(prompt(1, 6), "a", max_new_tokens=20)
        engine.submit(prompt(2, 6), "b", max_new_tokens=8)
        for _ in range(3):
            engine.step()
        assert engine.scheduler.num_in_flight == 1
        engine.cancel("a")
        found = run(engine)
        assert found["a"].status is RequestStatus.CANCELLED
        count = len(found["a"].generated_tokens)
        assert found["a"].generated_tokens == reference(model, prompt(1, 6), 20)[:count]
        assert found["b"].generated_tokens == reference(model, prompt(2, 6), 8)
        assert engine.scheduler.cache.pool.usable == engine.scheduler.layout.num_blocks


class TestWeights:
    def test_changed_under_a_pause_they_count_from_then_on(self):
        model, other = tiny_model("llama"), tiny_model("llama", seed=1)
        manager = ContinuousBatchingManager(model, config=ContinuousBatchingConfig(**SMALL))
        manager.start()
        try:
            first = manager.get_result(manager.add_request(prompt(1, 13), max_new_tokens=5))
            assert first.generated_tokens == reference(tiny_model("llama"), prompt(1, 13), 5)
            with manager.pause():
                model.load_state_dict(other.state_dict())
            second = manager.get_result(manager.add_request(prompt(1, 13), max_new_tokens=5))
            assert second.generated_tokens == reference(other, prompt(1, 13), 5)
            assert second.cached_tokens == 0
        finally:
            manager.destroy()

    def test_a_model_that_raises_fails_all_with_the_cause(self):
        model = tiny_model("llama")
        calls = iter(range(100))

        def fail_at_the_third_pass(*_):
            if next(calls) == 2:
                raise RuntimeError("no more memory")

        model.model.layers[1].register_forward_pre_hook(fail_at_the_third_pass)
        manager = ContinuousBatchingManager(model, config=ContinuousBatchingConfig(**SMALL, safety_margin=0.0))
        names = [manager.add_request(prompt(n, 6), max_new_tokens=9) for n in range(5)]
        manager.start()
        found = {output.request_id: output for output in manager}
        assert set(found) == set(names)
        assert all("no more memory" in output.error for output in found.values())
        manager.join()
        assert model.config._attn_implementation == "eager"
        assert not any(thread.name == "continuous-batching" for thread in threading.enumerate())

"""The whole engine on tiny models: every answer is what the model gives for that prompt alone."""

import threading

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from engine import (
    ContinuousBatchingConfig,
    ContinuousBatchingManager,
    Engine,
    FinishReason,
    RequestError,
    RequestStatus,
)
from engine.core.invariants import check
from tests.engine.fakes import CharTokenizer
from tests.tiny import VOCAB, reference, tiny_model

SMALL = {"page_size": 4, "num_blocks": 24, "max_batch_tokens": 12, "max_requests_per_batch": 8}
LETTERS = CharTokenizer([chr(0x100 + n) for n in range(VOCAB)])


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def slow():
    """A model whose positions end at 32."""
    return tiny_model("llama", max_position_embeddings=32)


def engine_of(model, *, tokenizer=None, generation_config=None, **config):
    return Engine(model, tokenizer, generation_config, ContinuousBatchingConfig(**{**SMALL, **config}))


def run(engine, *requests):
    """Outputs by id of requests given as keyword dictionaries."""
    try:
        for request in requests:
            engine.submit(request.pop("prompt"), request.pop("id"), **request)
        engine.run_until_idle()
        assert check(engine.scheduler) == []
        return {output.request_id: output for output in engine.take_outputs() if output.is_finished()}
    finally:
        engine.close()


def prompt(n, length):
    return [(7 * n + 3 * i * i) % VOCAB for i in range(length)]


class TestIsolation:
    def test_one_id_twice_leaves_the_first_alone(self, model):
        for is_running in (False, True):
            engine = engine_of(model)
            engine.submit(prompt(1, 6), "a", max_new_tokens=8)
            for _ in range(3 if is_running else 0):
                engine.step()
            with pytest.raises(RequestError, match="in use"):
                engine.submit(prompt(2, 6), "a", max_new_tokens=8)
            assert run(engine)["a"].generated_tokens == reference(model, prompt(1, 6), 8)

    @pytest.mark.parametrize(
        "bad",
        [
            {"prompt": []}, {"prompt": [VOCAB]}, {"prompt": [-1]}, {"prompt": [1], "temperature": -1.0},
            {"prompt": [1], "temperature": float("nan")}, {"prompt": [1], "top_k": 0}, {"prompt": [1], "top_k": 98},
            {"prompt": [1], "top_p": 0.0}, {"prompt": [1], "top_p": 2.0}, {"prompt": [1], "max_new_tokens": -1},
            {"prompt": [1] * 97}, {"prompt": [1] * 200},
        ],
        ids=lambda bad: " ".join(bad),
    )  # fmt: skip
    def test_a_bad_request_is_refused_and_its_neighbours_do_not_notice(self, model, bad):
        engine = engine_of(model)
        engine.submit(prompt(1, 6), "a", max_new_tokens=6)
        engine.step()
        values = dict(bad)
        with pytest.raises(RequestError):
            engine.submit(values.pop("prompt"), **values)
        found = run(engine, {"prompt": prompt(2, 9), "id": "b", "max_new_tokens": 6})
        assert found["a"].generated_tokens == reference(model, prompt(1, 6), 6)
        assert found["b"].generated_tokens == reference(model, prompt(2, 9), 6)

    def test_temperature_zero_is_greedy(self, model):
        found = run(engine_of(model), {"prompt": prompt(1, 6), "id": "a", "max_new_tokens": 6, "temperature": 0.0})
        assert found["a"].generated_tokens == reference(model, prompt(1, 6), 6)

    @pytest.mark.parametrize(
        "form",
        [
            list, tuple, torch.tensor, lambda ids: torch.tensor([ids]), np.array,
            lambda ids: BatchEncoding({"input_ids": ids}),
        ],
    )  # fmt: skip
    def test_every_form_of_prompt_gives_the_same(self, model, form):
        found = run(engine_of(model), {"prompt": form(prompt(1, 6)), "id": "a", "max_new_tokens": 4})
        assert found["a"].generated_tokens == reference(model, prompt(1, 6), 4)

    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    @pytest.mark.parametrize("kind", ["llama", "mistral", "gemma3"])
    def test_plain_passes_beside_a_running_engine_are_what_they_were(self, kind, attention):
        model = tiny_model(kind)
        model.set_attn_implementation(attention)
        ids = torch.tensor([prompt(1, 14), prompt(2, 14)])

        def probe():
            model.zero_grad()
            output = model(input_ids=ids, labels=ids)
            output.loss.backward()
            return output.logits.tolist(), model.get_input_embeddings().weight.grad.tolist()

        before, generated = probe(), reference(model, prompt(3, 9), 12)
        engine = engine_of(model)
        engine.submit(prompt(1, 6), "a", max_new_tokens=12)
        for _ in range(3):
            engine.step()
        assert probe() == before
        assert reference(model, prompt(3, 9), 12) == generated
        found = run(engine)
        assert probe() == before
        assert found["a"].generated_tokens == reference(model, prompt(1, 6), 12)

    def test_the_model_is_the_same_before_in_a_pause_and_after(self):
        model = tiny_model("gemma2").train()

        def probe():
            ids = torch.tensor([prompt(1, 8)])
            model.zero_grad()
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            return model.config._attn_implementation, model.training, loss.item()

        before = probe()
        manager = ContinuousBatchingManager(model, config=ContinuousBatchingConfig(**SMALL))
        manager.start()
        name = manager.add_request(prompt(1, 6), max_new_tokens=40, streaming=True)
        manager.get_result(name)
        with manager.pause():
            assert probe() == before
        tokens = [output.generated_tokens for output in manager.request_id_iter(name)][-1]
        manager.destroy()
        assert probe() == before
        assert tokens == reference(model.eval(), prompt(1, 6), 40)

    def test_a_broken_row_fails_alone(self, model):
        """Weights that make one prompt's logits not a number: its only token's embedding is infinite."""
        broken = tiny_model("llama")
        with torch.no_grad():
            broken.get_input_embeddings().weight[96].fill_(float("inf"))
        engine = engine_of(broken)
        found = run(
            engine,
            {"prompt": [1, 2, 3], "id": "good", "max_new_tokens": 6},
            {"prompt": [96, 96, 96, 96, 96], "id": "bad", "max_new_tokens": 6},
        )
        assert found["bad"].status is RequestStatus.FAILED
        assert found["bad"].error == "non-finite logits at step 1"
        assert found["good"].generated_tokens == reference(model, [1, 2, 3], 6)

    def test_with_and_without_processors_joining_in_mid_prefill(self, model):
        engine = engine_of(model)
        engine.submit(prompt(1, 30), "plain", max_new_tokens=6)
        engine.step()
        found = run(engine, {"prompt": prompt(2, 20), "id": "odd", "max_new_tokens": 6, "repetition_penalty": 1.5})
        assert found["plain"].generated_tokens == reference(model, prompt(1, 30), 6)
        assert found["odd"].generated_tokens == reference(model, prompt(2, 20), 6, repetition_penalty=1.5)


class TestEnds:
    def test_any_of_several_end_tokens_ends_it(self, model):
        whole = reference(model, prompt(1, 6), 8)
        found = run(
            engine_of(model),
            {"prompt": prompt(1, 6), "id": "third", "max_new_tokens": 8, "eos_token_id": [whole[2], 96]},
            {"prompt": prompt(1, 6), "id": "stop", "max_new_tokens": 8, "stop_token_ids": [whole[4]]},
        )
        at, later = whole.index(whole[2]) + 1, whole.index(whole[4]) + 1
        assert (found["third"].generated_tokens, found["third"].finish_reason) == (whole[:at], FinishReason.EOS)
        assert (found["stop"].generated_tokens, found["stop"].finish_reason) == (whole[:later], FinishReason.EOS)

    @pytest.mark.parametrize(("length", "new"), [(31, 1), (32, 0)])
    def test_a_prompt_up_to_the_limit_of_the_positions(self, slow, length, new):
        found = run(engine_of(slow), {"prompt": prompt(1, length), "id": "a"})
        assert found["a"].generated_tokens == reference(slow, prompt(1, length), max(new, 1))[:new]
        assert found["a"].finish_reason is FinishReason.LENGTH

    def test_a_prompt_past_the_limit_is_refused(self, slow):
        with pytest.raises(RequestError, match="33 tokens but the model allows 32"):
            engine_of(slow).submit(prompt(1, 33))

    @pytest.mark.parametrize("new", [0, 1, None])
    def test_none_one_and_all_there_is_room_for(self, slow, new):
        found = run(engine_of(slow), {"prompt": prompt(1, 20), "id": "a", "max_new_tokens": new})
        count = 12 if new is None else new
        assert found["a"].generated_tokens == reference(slow, prompt(1, 20), 12)[:count]
        assert found["a"].finish_reason is FinishReason.LENGTH

    def test_a_stop_string_over_two_tokens(self, model):
        whole = reference(model, prompt(1, 6), 8)
        stop = LETTERS.decode(whole[3:5])
        engine = engine_of(model, tokenizer=LETTERS)
        found = run(engine, {"prompt": prompt(1, 6), "id": "a", "max_new_tokens": 8, "stop_strings": stop})
        end = LETTERS.decode(whole).index(stop) + 2
        assert found["a"].generated_tokens == whole[:end]
        assert found["a"].text == LETTERS.decode(whole[: end - 2])
        assert found["a"].finish_reason is FinishReason.STOP_STRING


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

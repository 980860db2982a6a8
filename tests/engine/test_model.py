"""The whole engine on tiny models: every answer is what the model gives for that prompt alone."""

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from engine import (
    ContinuousBatchingConfig,
    ContinuousBatchingManager,
    FinishReason,
    RequestError,
    RequestStatus,
)
from tests.engine.fakes import CharTokenizer
from tests.engine.on_model import SMALL, engine_of, prompt, run
from tests.tiny import VOCAB, reference, tiny_model

LETTERS = CharTokenizer([chr(0x100 + n) for n in range(VOCAB)])




@pytest.fixture(scope="module")
def slow():
    """A model whose positions end at 32."""
    return tiny_model("llama", max_position_embeddings=32)








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

"""The entry points, used the ways people use continuous batching in ``transformers``, on a tiny model."""

import logging

import pytest
import torch
from transformers import BatchEncoding, GenerationConfig
from transformers.generation import ContinuousBatchingConfig as ReferenceConfig
from transformers.generation.continuous_batching import RequestStatus as ReferenceStatus

from engine import (
    ConfigError,
    ContinuousBatchingConfig,
    EngineError,
    FinishReason,
    RequestError,
    RequestStatus,
    continuous_batching_context_manager,
    destroy_cached_continuous_batching_manager,
    generate_batch,
    init_continuous_batching,
)
from engine.manager import CACHED_NAME
from tests.engine.fakes import CharTokenizer
from tests.tiny import VOCAB, reference, tiny_model

PROMPTS = [[5, 17, 3, 80], [9, 9, 9, 9, 9, 9, 2, 41, 6], [70]]
SMALL = ContinuousBatchingConfig(page_size=4, num_blocks=64, max_batch_tokens=32)


@pytest.fixture(scope="module")
def model():
    made = tiny_model("llama")
    yield made
    destroy_cached_continuous_batching_manager(made)


@pytest.fixture(scope="module")
def answers(model):
    return [reference(model, prompt, 8) for prompt in PROMPTS]


@pytest.fixture(autouse=True)
def _left_as_found(model):
    yield
    assert model.config._attn_implementation == "eager"


class TestGenerateBatch:
    def test_a_list_of_prompts_gives_outputs_in_order(self, model, answers):
        outputs = generate_batch(model, inputs=PROMPTS, generation_config=GenerationConfig(max_new_tokens=8))
        assert [output.generated_tokens for output in outputs.values()] == answers
        assert list(outputs) == [output.request_id for output in outputs.values()]
        for output, prompt in zip(outputs.values(), PROMPTS, strict=True):
            assert output.prompt_ids == prompt
            assert (output.status, output.finish_reason) == (RequestStatus.FINISHED, FinishReason.LENGTH)
            assert output.error is None and output.timestamps is None and output.logprobs == []

    @pytest.mark.parametrize(
        "fields",
        [
            {}, {"use_async_batching": True}, {"scheduler_type": "prefill_first"}, {"allow_block_sharing": False},
            {"safety_margin": 0.5}, {"page_size": 128}, {"max_batch_tokens": 8}, {"max_requests_per_batch": 2},
            {"max_memory_percent": 0.1}, {"cpu_offload_space": 0.01, "cpu_offload_space_safety_threshold": 0.5},
        ],
        ids=str,
    )  # fmt: skip
    def test_a_configuration_does_not_change_the_tokens(self, model, answers, fields):
        outputs = generate_batch(
            model, PROMPTS, max_new_tokens=8, continuous_batching_config=ContinuousBatchingConfig(**fields)
        )
        assert [output.generated_tokens for output in outputs.values()] == answers

    @pytest.mark.parametrize(
        "fields",
        [
            {"use_cuda_graph": True}, {"kv_padding_interval_size": 512}, {"max_blocks_per_request": 64},
            {"use_cuda_graph": True, "q_padding_interval_size": 64},
        ],
        ids=str,
    )  # fmt: skip
    def test_what_needs_a_gpu_is_named_once_and_left_out(self, model, answers, fields):
        with pytest.warns(UserWarning, match="is switched off|has no effect") as told:
            outputs = generate_batch(
                model, PROMPTS, max_new_tokens=8, continuous_batching_config=ContinuousBatchingConfig(**fields)
            )
        assert [output.generated_tokens for output in outputs.values()] == answers
        messages = [str(warning.message) for warning in told]
        assert [sum(name in message for message in messages) for name in fields] == [1] * len(fields)

    def test_the_configuration_class_of_transformers_works_too(self, model, answers):
        outputs = generate_batch(
            model, PROMPTS, max_new_tokens=8, continuous_batching_config=ReferenceConfig(page_size=8, num_blocks=32)
        )
        assert [output.generated_tokens for output in outputs.values()] == answers

    def test_a_configuration_inside_the_generation_config_works_with_a_warning(self, model, answers):
        with pytest.warns(FutureWarning, match="continuous_batching_config"):
            inside = GenerationConfig(max_new_tokens=8, continuous_batching_config=SMALL)
        with pytest.warns(FutureWarning, match="pass it beside it"):
            outputs = generate_batch(model, PROMPTS, generation_config=inside)
        assert [output.generated_tokens for output in outputs.values()] == answers

    def test_a_page_size_under_four_is_a_value_error(self, model):
        with pytest.raises(ValueError, match="page_size=2"):
            generate_batch(model, PROMPTS, continuous_batching_config=ReferenceConfig(page_size=2))

    def test_several_sequences_of_a_prompt_follow_each_other(self, model):
        config = GenerationConfig(max_new_tokens=6, num_return_sequences=2, do_sample=True, temperature=1.2)
        outputs = generate_batch(model, PROMPTS, config, SMALL, seed=3)
        assert len(outputs) == 6
        assert [output.prompt_ids for output in outputs.values()] == [p for p in PROMPTS for _ in range(2)]
        again = generate_batch(model, PROMPTS, config, SMALL, seed=3)
        assert [o.generated_tokens for o in outputs.values()] == [o.generated_tokens for o in again.values()]

    def test_log_probabilities_are_those_of_the_raw_scores(self, model):
        config = ContinuousBatchingConfig(page_size=4, num_blocks=64, return_logprobs=True)
        outputs = generate_batch(
            model, PROMPTS, max_new_tokens=6, continuous_batching_config=config, temperature=0.5, top_k=5, seed=1
        )
        for output in outputs.values():
            ids = output.prompt_ids + output.generated_tokens
            with torch.no_grad():
                scores = model(torch.tensor([ids[:-1]])).logits[0, len(output.prompt_ids) - 1 :].log_softmax(-1)
            expected = [scores[n, token].item() for n, token in enumerate(output.generated_tokens)]
            assert output.logprobs == pytest.approx(expected, abs=1e-4)
            assert output.top_logprobs == []

    def test_the_likeliest_tokens_beside_it_on_request(self, model):
        outputs = generate_batch(model, PROMPTS[:1], max_new_tokens=3, continuous_batching_config=SMALL, logprobs=2)
        (output,) = outputs.values()
        assert [len(top) for top in output.top_logprobs] == [2, 2, 2]
        for token, logprob, top in zip(output.generated_tokens, output.logprobs, output.top_logprobs, strict=True):
            assert top[0] == (token, pytest.approx(logprob)) and top[0][1] >= top[1][1]

    def test_timestamps(self, model):
        outputs = generate_batch(model, PROMPTS, None, SMALL, record_timestamps=True, max_new_tokens=4)
        assert all(len(output.timestamps) == 4 for output in outputs.values())

    @pytest.mark.parametrize(
        "inputs",
        [
            torch.tensor([[5, 6, 7], [8, 9, 10]]),
            BatchEncoding({"input_ids": [[0, 5, 6, 7], [8, 9, 10]], "attention_mask": [[0, 1, 1, 1], [1, 1, 1]]}),
            ((5, 6, 7), torch.tensor([8, 9, 10])),
        ],
    )
    def test_tensors_and_tokenizer_outputs(self, model, inputs):
        outputs = generate_batch(model, inputs, max_new_tokens=3, continuous_batching_config=SMALL)
        expected = [reference(model, prompt, 3) for prompt in ([5, 6, 7], [8, 9, 10])]
        assert [output.generated_tokens for output in outputs.values()] == expected

    def test_texts_with_a_tokenizer(self, model):
        tokenizer = CharTokenizer([chr(0x100 + n) for n in range(VOCAB)])
        texts = [tokenizer.decode(prompt) for prompt in PROMPTS]
        outputs = generate_batch(
            model, texts, max_new_tokens=4, continuous_batching_config=SMALL, tokenizer=tokenizer
        )
        for output, prompt in zip(outputs.values(), PROMPTS, strict=True):
            assert output.prompt_ids == prompt
            assert output.text == tokenizer.decode(reference(model, prompt, 4))

    def test_nothing_in_nothing_out(self, model):
        assert generate_batch(model, []) == {}

    def test_a_bad_prompt_is_refused_before_anything_runs(self, model):
        with pytest.raises(RequestError, match="the prompt is empty"):
            generate_batch(model, [[1, 2], []], continuous_batching_config=SMALL)
        with pytest.raises(TypeError, match="flat list"):
            generate_batch(model, [1, 2])

    def test_a_progress_bar_counts_requests(self, model, capsys):
        generate_batch(model, PROMPTS, max_new_tokens=2, continuous_batching_config=SMALL, progress_bar=True)
        assert "3/3" in capsys.readouterr().err

    def test_a_failed_request_is_among_the_outputs(self):
        broken = tiny_model("llama")
        with torch.no_grad():
            broken.get_input_embeddings().weight[96].fill_(float("inf"))
        good, bad = generate_batch(broken, [[1, 2], [96]], None, SMALL, max_new_tokens=4).values()
        assert good.generated_tokens == reference(broken, [1, 2], 4)
        assert bad.status is RequestStatus.FAILED and "non-finite" in bad.error

    def test_generation_settings_we_lack_are_dropped_loudly_or_refused(self, model):
        config = GenerationConfig(max_new_tokens=2, typical_p=0.5)
        with pytest.warns(UserWarning, match=r"typical_p=0\.5 .* was dropped"):
            generate_batch(model, PROMPTS[:1], config, SMALL)
        strict = ContinuousBatchingConfig(page_size=4, num_blocks=64, drop_unsupported_processors=False)
        with pytest.raises(ConfigError, match=r"typical_p=0\.5"):
            generate_batch(model, PROMPTS[:1], config, strict)


class TestContextManager:
    def test_requests_of_different_length_leave_as_they_finish(self, model):
        with continuous_batching_context_manager(model, continuous_batching_config=SMALL) as manager:
            manager.add_request(input_ids=PROMPTS[1], request_id="long", max_new_tokens=40)
            manager.add_request(input_ids=PROMPTS[0], request_id="short_0", max_new_tokens=4)
            manager.add_request(input_ids=PROMPTS[2], request_id="short_1", max_new_tokens=4)
            order, found = [], {}
            for result in manager:
                order.append(result.request_id)
                found[result.request_id] = result.generated_tokens
        assert order[-1] == "long" and set(order) == {"long", "short_0", "short_1"}
        assert found["long"] == reference(model, PROMPTS[1], 40)
        assert found["short_1"] == reference(model, PROMPTS[2], 4)
        with pytest.raises(EngineError, match="destroyed"):
            manager.start()

    def test_leaving_finishes_what_was_accepted(self, model):
        with continuous_batching_context_manager(model, continuous_batching_config=SMALL) as manager:
            name = manager.add_request(PROMPTS[0], max_new_tokens=30)
        assert manager.get_result(name).generated_tokens == reference(model, PROMPTS[0], 30)

    def test_leaving_by_an_error_ends_it_at_once(self, model):
        context = continuous_batching_context_manager(model, continuous_batching_config=SMALL)
        with pytest.raises(KeyError), context as manager:
            manager.set_rate(5.0)
            name = manager.add_request(PROMPTS[0], max_new_tokens=50)
            raise KeyError("of the caller")
        assert manager.get_result(name).finish_reason is FinishReason.STOPPED

    def test_persistent_it_stays_on_the_model_with_its_cache(self, model):
        prompt = list(range(20))
        with continuous_batching_context_manager(
            model, continuous_batching_config=SMALL, persistent_manager=True
        ) as first:
            first.get_result(first.add_request(prompt, max_new_tokens=2))
        assert not first.is_running() and getattr(model, CACHED_NAME) is first
        with continuous_batching_context_manager(model, persistent_manager=True) as second:
            output = second.get_result(second.add_request(prompt, max_new_tokens=2))
        assert second is first and output.cached_tokens == 16
        assert output.generated_tokens == reference(model, prompt, 2)
        outputs = generate_batch(model, [prompt], max_new_tokens=2, persistent_manager=True)
        assert next(iter(outputs.values())).cached_tokens == 16
        destroy_cached_continuous_batching_manager(model)
        assert not hasattr(model, CACHED_NAME)
        destroy_cached_continuous_batching_manager(model)
        assert init_continuous_batching(model, continuous_batching_config=SMALL) is not first


class TestManager:
    def test_the_life_cycle_by_hand(self, model, caplog):
        last = reference(model, PROMPTS[2], 5)
        manager = init_continuous_batching(model, GenerationConfig(max_new_tokens=5), SMALL)
        manager.start()
        assert manager.is_running()
        name = manager.add_request(PROMPTS[0])
        manager.stop()
        assert not manager.is_running()
        assert manager.get_result(name).generated_tokens == reference(model, PROMPTS[0], 5)
        with caplog.at_level(logging.WARNING):
            assert manager.add_request(PROMPTS[0]) is None
        assert "takes no requests" in caplog.text
        manager.start()
        assert manager.get_result(manager.add_request(PROMPTS[2])).generated_tokens == last
        manager.set_rate(2.0)
        name = manager.add_request(PROMPTS[1], max_new_tokens=200)
        manager.stop(hard_stop=True)
        assert "RuntimeError" in manager.get_result(name).error
        manager.destroy()

    def test_each_request_has_its_own_sampling(self, model):
        config = ContinuousBatchingConfig(page_size=4, num_blocks=64, per_request_processors=True)
        with continuous_batching_context_manager(model, continuous_batching_config=config) as manager:
            creative = manager.add_request(PROMPTS[0], max_new_tokens=6, temperature=1.8, top_p=0.95, seed=1)
            precise = manager.add_request(PROMPTS[0], max_new_tokens=6, temperature=0.1, top_k=1, seed=1)
            plain = manager.add_request(PROMPTS[0], max_new_tokens=6)
            found = {output.request_id: output.generated_tokens for output in manager}
        greedy = reference(model, PROMPTS[0], 6)
        assert found[precise] == found[plain] == greedy
        assert found[creative] != greedy

    def test_one_result_or_the_next_one(self, model):
        with continuous_batching_context_manager(model, continuous_batching_config=SMALL) as manager:
            names = manager.add_requests(inputs=PROMPTS, max_new_tokens=3)
            assert manager.get_result(request_id=names[1]).request_id == names[1]
            assert {manager.get_result().request_id, manager.get_result().request_id} == {names[0], names[2]}
            manager.cancel_request(request_id="gone")

    def test_streaming_until_the_status_says_finished(self, model):
        with continuous_batching_context_manager(model, continuous_batching_config=SMALL) as manager:
            manager.add_request(input_ids=PROMPTS[0], request_id="streamed", streaming=True, max_new_tokens=8)
            tokens = []
            for chunk in manager.request_id_iter(request_id="streamed"):
                tokens += chunk.generated_tokens[-1:]
                if chunk.status == ReferenceStatus.FINISHED:
                    break
        assert tokens == reference(model, PROMPTS[0], 8)

    def test_the_model_may_ask_for_paged_attention_by_name(self):
        paged = tiny_model("llama")
        paged.set_attn_implementation("paged|eager")
        (output,) = generate_batch(paged, PROMPTS[:1], max_new_tokens=4, continuous_batching_config=SMALL).values()
        assert output.generated_tokens == reference(tiny_model("llama"), PROMPTS[0], 4)
        assert paged.config._attn_implementation == "paged|eager"

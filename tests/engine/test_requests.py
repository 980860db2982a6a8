"""What callers hand in becomes a checked request, or is refused by name."""

import math
import re

import numpy as np
import pytest
import torch
from transformers import BatchEncoding, GenerationConfig

from engine import ConfigError, RequestError
from engine.generation import UNSUPPORTED, request_defaults
from engine.inputs import prompt_rows, token_ids
from engine.requests import Limits, RequestBuilder
from tests.engine.fakes import VOCAB, CharTokenizer

NAN = float("nan")


def builder(defaults=None, *, limits=Limits(VOCAB, 64, 1000), **more):
    if isinstance(defaults, GenerationConfig):
        defaults, _ = request_defaults(defaults, drop_unsupported=False)
    return RequestBuilder(limits, defaults or {}, **more)


def build(prompt=(1, 2, 3), defaults=None, *, builder_options=None, **wanted):
    made = builder(defaults, **(builder_options or {}))
    return made.build(prompt, request_id="r", created_time=0.0, **wanted)


class TestPrompts:
    @pytest.mark.parametrize(
        "prompt",
        [
            [5, 6, 7],
            (5, 6, 7),
            range(5, 8),
            torch.tensor([5, 6, 7]),
            torch.tensor([[5, 6, 7]]),
            np.array([5, 6, 7]),
            np.array([[5, 6, 7]]),
            [np.int64(5), 6, torch.tensor(7)],
            [[5, 6, 7]],
            {"input_ids": [5, 6, 7]},
            BatchEncoding({"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1]}),
            BatchEncoding({"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.tensor([[1, 1, 1]])}),
            {"input_ids": torch.tensor([[0, 0, 5, 6, 7]]), "attention_mask": torch.tensor([[0, 0, 1, 1, 1]])},
        ],
        ids=lambda prompt: type(prompt).__name__,
    )
    def test_every_usual_form_is_taken(self, prompt):
        assert token_ids(prompt) == [5, 6, 7]

    def test_text_needs_a_tokenizer(self):
        assert token_ids("ba", CharTokenizer(["a", "b"])) == [1, 0]
        with pytest.raises(TypeError, match="no tokenizer"):
            token_ids("ba")

    @pytest.mark.parametrize(
        "prompt", [3, 2.5, None, object(), b"ab", {1, 2}, [1.5], [True], ["a"], [None], {"ids": [1]}]
    )
    def test_a_wrong_type_says_what_is_expected(self, prompt):
        with pytest.raises(TypeError, match=r"input_ids|token ids are ints"):
            token_ids(prompt)

    def test_several_rows_are_no_single_prompt(self):
        with pytest.raises(RequestError, match=r"2 rows.*add_requests"):
            token_ids(torch.tensor([[1, 2], [3, 4]]))

    def test_a_mask_must_fit(self):
        with pytest.raises(RequestError, match="attention_mask has 2 entries for 3"):
            token_ids({"input_ids": [1, 2, 3], "attention_mask": [1, 1]})

    @pytest.mark.parametrize(
        "inputs",
        [
            [[1, 2], [3, 4]],
            torch.tensor([[1, 2], [3, 4]]),
            np.array([[1, 2], [3, 4]]),
            (torch.tensor([1, 2]), [3, 4]),
            BatchEncoding({"input_ids": [[0, 1, 2], [3, 4]], "attention_mask": [[0, 1, 1], [1, 1]]}),
        ],
    )
    def test_a_batch_gives_its_prompts(self, inputs):
        assert [token_ids(row) for row in prompt_rows(inputs)] == [[1, 2], [3, 4]]

    @pytest.mark.parametrize("inputs", ["text", [1, 2, 3], torch.tensor([1, 2]), 5])
    def test_a_single_prompt_is_no_batch(self, inputs):
        with pytest.raises(TypeError, match="expected a list of prompts"):
            prompt_rows(inputs)


class TestRefused:
    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            ({"prompt": []}, "the prompt is empty"),
            ({"prompt": [1, VOCAB, 2]}, f"token 1 of the prompt is {VOCAB}, outside 0 … {VOCAB - 1}"),
            ({"prompt": [1, -4]}, "token 1 of the prompt is -4"),
            ({"prompt": [1] * 65}, "65 tokens but the model allows 64"),
            ({"temperature": -1}, "temperature=-1 is out of range"),
            ({"temperature": NAN}, "temperature=nan is out of range"),
            ({"temperature": math.inf}, "temperature=inf"),
            ({"top_k": 0}, "top_k=0 .* between 1 and the vocabulary size \\(97\\); pass top_k=97 to keep all"),
            ({"top_k": VOCAB + 1}, "top_k=98"),
            ({"top_k": -5}, "top_k=-5"),
            ({"top_p": 0}, "top_p=0 .*\\(0, 1\\]"),
            ({"top_p": 2}, "top_p=2"),
            ({"top_p": NAN}, "top_p=nan"),
            ({"min_p": 1.5}, "min_p=1.5"),
            ({"max_new_tokens": -1}, "max_new_tokens=-1"),
            ({"max_length": -1}, "max_length=-1"),
            ({"max_length": 2}, "max_length=2 is less than the prompt's 3 tokens"),
            ({"repetition_penalty": 0}, "repetition_penalty=0"),
            ({"presence_penalty": NAN}, "presence_penalty=nan"),
            ({"frequency_penalty": math.inf}, "frequency_penalty=inf"),
            ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1"),
            ({"min_new_tokens": 9, "max_new_tokens": 4}, "=9 is more than the 4 new tokens allowed; lower it or raise"),
            ({"min_length": 9, "max_new_tokens": 4}, "min_length=9 is more than the 4 new tokens allowed"),
            ({"min_new_tokens": 900, "max_new_tokens": 900}, "=900 is too much: the model has 64 positions, .* 61 new"),
            ({"seed": -1}, "seed=-1"),
            ({"seed": 2**63}, "seed="),
            ({"num_return_sequences": 0}, "num_return_sequences=0"),
            ({"stop_token_ids": [VOCAB]}, f"stop token id {VOCAB}"),
            ({"eos_token_id": VOCAB}, f"stop token id {VOCAB}"),
            ({"bad_words_ids": [[]]}, "bad_words_ids entry \\[\\]"),
            ({"bad_words_ids": [[VOCAB]]}, "bad_words_ids entry"),
            ({"logit_bias": {VOCAB: 1.0}}, "logit_bias for token 97"),
            ({"logit_bias": {1: NAN}}, "logit_bias of token 1 is nan"),
            ({"sequence_bias": {(1, 2): 1.0}}, "a bias on the sequence \\[1, 2\\]"),
            ({"forced_first": VOCAB}, "forced_bos_token_id=97"),
            ({"logprobs": VOCAB + 1}, "logprobs=98"),
            ({"prompt_logprobs": 1}, "prompt_logprobs is not supported.*logprobs=n"),
            ({"stop_strings": ["x"]}, "stop strings need a tokenizer"),
            ({"temprature": 0.5}, "unknown sampling parameter 'temprature'; did you mean 'temperature'"),
            ({"zzzzzz": 1}, "unknown sampling parameter 'zzzzzz'; known names: do_sample"),
        ],
        ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
    )
    def test_with_the_value_and_the_limit(self, wanted, message):
        with pytest.raises(RequestError, match=message):
            build(**wanted)

    @pytest.mark.parametrize(
        "wanted",
        [
            {"temperature": "hot"}, {"top_k": 1.5}, {"top_k": True}, {"top_p": "x"}, {"max_new_tokens": 2.0},
            {"do_sample": 1}, {"seed": 1.5}, {"stop_strings": [3]}, {"eos_token_id": "x"}, {"eos_token_id": 1.5},
            {"bad_words_ids": [3]}, {"logit_bias": [1]}, {"stop_token_ids": [1.5]}, {"salt": "x"},
            {"num_return_sequences": True}, {"suppress_tokens": 3},
        ],
        ids=str,
    )  # fmt: skip
    def test_a_wrong_type_names_the_parameter(self, wanted):
        name = next(iter(wanted))
        with pytest.raises(TypeError, match=name.split("_")[0]):
            build(builder_options={"tokenizer": CharTokenizer(["a"])}, **wanted)

    def test_an_id_must_be_text(self):
        with pytest.raises(TypeError, match="request_id must be a str but is int"):
            builder().build([1], request_id=3, created_time=0.0)

    def test_an_empty_stop_string_would_match_at_once(self):
        with pytest.raises(RequestError, match="empty"):
            build(stop_strings=["ok", ""], builder_options={"tokenizer": CharTokenizer(["a"])})


class TestSampling:
    def test_without_a_wish_it_is_greedy(self):
        assert build().sampling.is_greedy

    @pytest.mark.parametrize("wanted", [{"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}])
    def test_a_parameter_of_drawing_means_to_draw(self, wanted):
        assert build(**wanted).sampling.do_sample
        assert not build(do_sample=False, **wanted).sampling.do_sample

    def test_temperature_zero_is_greedy(self):
        assert build(temperature=0).sampling.is_greedy
        assert build(temperature=0, do_sample=True).sampling.is_greedy

    def test_the_generation_config_gives_the_defaults_and_the_request_overrides(self):
        defaults = GenerationConfig(
            do_sample=True, temperature=0.5, top_k=7, top_p=0.8, repetition_penalty=1.3, no_repeat_ngram_size=2,
            max_new_tokens=9, min_new_tokens=2, bad_words_ids=[[1, 2]], suppress_tokens=[4], num_return_sequences=2,
            sequence_bias=[[[5], 1.5]], forced_bos_token_id=6,
        )  # fmt: skip
        request = build(defaults=defaults)
        params = request.sampling
        assert (params.do_sample, params.temperature, params.top_k, params.top_p) == (True, 0.5, 7, 0.8)
        assert (params.repetition_penalty, params.no_repeat_ngram, params.min_new_tokens) == (1.3, 2, 2)
        assert params.bad_words == ((1, 2), (4,))
        assert params.logit_bias == ((5, 1.5),)
        assert params.forced_first == 6
        assert (request.max_new_tokens, request.num_return_sequences) == (9, 2)
        own = build(defaults=defaults, temperature=0.9, top_k=3, max_new_tokens=4, num_return_sequences=1)
        assert (own.sampling.temperature, own.sampling.top_k, own.sampling.top_p) == (0.9, 3, 0.8)
        assert (own.max_new_tokens, own.num_return_sequences) == (4, 1)

    def test_a_top_k_default_of_zero_or_past_the_vocabulary_keeps_all(self):
        assert build(defaults={"top_k": 0}).sampling.top_k == 0
        assert build(defaults={"top_k": 500}).sampling.top_k == VOCAB
        assert build(defaults={"top_k": 4}, top_k=VOCAB).sampling.top_k == VOCAB

    def test_penalties_of_the_output_come_from_extra_attributes_too(self):
        assert build(defaults=GenerationConfig(presence_penalty=0.5)).sampling.presence_penalty == 0.5

    def test_short_and_long_names_mean_the_same(self):
        assert build(no_repeat_ngram=3).sampling.no_repeat_ngram == 3
        assert build(bad_words=[[3]]).sampling.bad_words == ((3,),)
        assert build(forced_first=3).sampling.forced_first == 3

    def test_none_means_not_given(self):
        assert build(temperature=None, top_k=None, defaults={"top_k": 4}).sampling.top_k == 4

    @pytest.mark.parametrize(("given", "kept"), [(True, 0), (False, -1), (0, 0), (5, 5)])
    def test_log_probabilities(self, given, kept):
        assert build(logprobs=given).sampling.logprobs == kept

    def test_the_engine_may_ask_for_log_probabilities(self):
        assert build(builder_options={"return_logprobs": True}).sampling.logprobs == 0
        assert build(builder_options={"return_logprobs": True}, logprobs=False).sampling.logprobs == -1

    def test_min_length_counts_the_prompt(self):
        assert build(min_length=8, max_new_tokens=20).sampling.min_new_tokens == 5


class TestSeeds:
    def test_the_request_wins(self):
        assert build(seed=42).sampling.seed == 42

    def test_the_engine_seed_gives_each_id_its_own_and_the_same_again(self):
        made = builder(seed=7)
        one, two, again = (
            made.build([1], request_id=name, created_time=0.0).sampling.seed for name in ("a", "b", "a")
        )
        assert one == again != two
        assert builder(seed=8).build([1], request_id="a", created_time=0.0).sampling.seed != one

    def test_without_any_it_is_drawn(self):
        assert len({build().sampling.seed for _ in range(8)}) == 8


class TestLength:
    def test_none_goes_to_the_limit_of_the_positions(self):
        assert build([1] * 10).max_new_tokens == 54

    def test_none_goes_to_the_limit_of_the_pool(self):
        options = {"limits": Limits(VOCAB, None, 24)}
        assert build([1] * 10, builder_options=options).max_new_tokens == 14

    @pytest.mark.parametrize(("prompt", "new"), [(63, 1), (64, 0)])
    def test_a_prompt_up_to_the_limit_is_taken(self, prompt, new):
        assert build([1] * prompt, max_new_tokens=5).max_new_tokens == new

    def test_a_wish_past_the_positions_is_lowered(self):
        assert build([1] * 10, max_new_tokens=500).max_new_tokens == 54

    def test_zero_is_zero(self):
        assert build(max_new_tokens=0).max_new_tokens == 0

    def test_max_length_counts_the_prompt(self):
        assert build([1] * 10, max_length=12).max_new_tokens == 2
        assert build([1] * 10, defaults={"max_length": 13}).max_new_tokens == 3

    def test_the_number_of_new_tokens_wins_over_the_length(self):
        assert build([1] * 10, defaults={"max_length": 13, "max_new_tokens": 7}).max_new_tokens == 7
        assert build([1] * 10, max_length=12, defaults={"max_new_tokens": 7}).max_new_tokens == 2
        assert build([1] * 10, max_length=12, max_new_tokens=4).max_new_tokens == 4


class TestEndOfSequence:
    @pytest.mark.parametrize(
        ("request_eos", "config_eos", "model_eos", "expected"),
        [
            (None, None, None, set()),
            (None, None, 3, {3}),
            (None, None, [3, 4], {3, 4}),
            (None, 5, [3, 4], {5}),
            (None, [5, 6], 3, {5, 6}),
            (7, [5, 6], 3, {7}),
            ([7, 8], 5, 3, {7, 8}),
            (-1, 5, 3, set()),
            (None, -1, 3, set()),
        ],
    )
    def test_request_then_generation_config_then_model(self, request_eos, config_eos, model_eos, expected):
        defaults = GenerationConfig(eos_token_id=config_eos)
        options = {"model_eos": model_eos}
        assert build(defaults=defaults, builder_options=options, eos_token_id=request_eos).eos_ids == expected

    def test_stop_ids_are_added(self):
        assert build(eos_token_id=3, stop_token_ids=[4, 5]).eos_ids == {3, 4, 5}

    def test_an_id_outside_the_vocabulary_in_a_config_can_never_come_and_is_no_reason_to_refuse(self):
        assert build(defaults={"eos_token_id": [2, 500]}).eos_ids >= {2}


class TestGenerationConfig:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("num_beams", 4), ("typical_p", 0.9), ("guidance_scale", 1.5), ("encoder_repetition_penalty", 1.2),
            ("begin_suppress_tokens", [3]), ("forced_eos_token_id", 3), ("exponential_decay_length_penalty", (3, 1.1)),
            ("renormalize_logits", True), ("epsilon_cutoff", 0.1), ("max_time", 3.0), ("output_scores", True),
        ],
    )  # fmt: skip
    def test_what_we_lack_is_refused_by_name_or_dropped_with_a_notice(self, name, value):
        assert name in UNSUPPORTED
        config = GenerationConfig()
        setattr(config, name, value)
        with pytest.raises(ConfigError, match=f"{name}={re.escape(repr(value))}.*drop_unsupported_processors=True"):
            request_defaults(config, drop_unsupported=False)
        defaults, notices = request_defaults(config, drop_unsupported=True)
        assert name not in defaults
        assert len(notices) == 1 and f"{name}=" in notices[0]

    def test_the_defaults_of_transformers_ask_for_nothing_we_lack(self):
        assert request_defaults(GenerationConfig(), drop_unsupported=False) == ({}, ())

    def test_a_field_of_the_engine_in_the_generation_config_is_pointed_out(self):
        _, notices = request_defaults(GenerationConfig(max_batch_tokens=512), drop_unsupported=False)
        assert "max_batch_tokens belongs in ContinuousBatchingConfig" in notices[0]

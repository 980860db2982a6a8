"""What a request gets that it did not ask for: sampling, seeds, end tokens, the generation config."""

import re

import pytest
from transformers import GenerationConfig

from engine import ConfigError
from engine.generation import UNSUPPORTED, request_defaults
from tests.engine.building import build, builder
from tests.engine.fakes import VOCAB


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

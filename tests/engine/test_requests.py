"""What callers hand in becomes a checked request, or is refused by name."""

import math

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from engine import RequestError
from engine.inputs import prompt_rows, token_ids
from engine.requests import Limits
from tests.engine.building import build, builder
from tests.engine.fakes import VOCAB, CharTokenizer

NAN = float("nan")






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

"""Every sampling parameter of the engine on its way from a person: a file of prompts, the command line, a request."""

from pathlib import Path

import pytest

from cbtui.forms import REQUEST_FIELDS, read_request, texts_of
from cbtui.launch import RequestSpec
from cbtui.options import OptionError, read_choices
from cbtui.promptfile import PromptFileError, read_prompts
from cbtui.sampling import FURTHER, OWN, check_further, read_further, write_further
from cbtui.submit import submit
from engine.requests import SAMPLING_NAMES
from tests.engine.fakes import fake_engine

VALUES = {
    "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": -0.5, "no_repeat_ngram_size": 2,
    "min_new_tokens": 3, "min_length": 4, "max_length": 40, "forced_bos_token_id": 7, "logit_bias": {5: -2.0},
    "sequence_bias": [[[6], 1.5]], "bad_words_ids": [[8, 9]], "suppress_tokens": [10, 11], "stop_token_ids": [12],
    "eos_token_id": 13,
}  # fmt: skip


def given(**values):
    names = ("prompt", "model", "device", "dtype", "attn", "trust_remote_code", "threads", "yes", "prompts_file",
             "chat", "max_new_tokens", "stop", "temperature", "top_k", "top_p", "min_p", "sampling",
             "seed")  # fmt: skip
    return {**dict.fromkeys(names), **values}


def built(spec: RequestSpec):
    """The request the engine makes of it."""
    made = []

    def add(ids, request_id=None, **wanted):
        made.append(fake_engine().build_request(ids, "x", **wanted))
        return "x"

    submit(add, spec, [1, 2, 3])
    return made[0]


def test_none_is_left_out():
    assert set(FURTHER) == set(VALUES)
    assert set(SAMPLING_NAMES) <= set(FURTHER) | OWN


def test_they_survive_the_way_into_a_text_and_back():
    more = tuple(VALUES.items())
    assert read_further(write_further(more)) == more
    assert read_further(" min_new_tokens=3, max_length = 40 ") == (("min_new_tokens", 3), ("max_length", 40))
    assert read_further("") == ()


def test_they_reach_the_engine():
    request = built(RequestSpec("a", max_new_tokens=20, temperature=0.5, min_p=0.25, further=tuple(VALUES.items())))
    sampling = request.sampling
    assert (sampling.temperature, sampling.min_p, sampling.repetition_penalty) == (0.5, 0.25, 1.2)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.no_repeat_ngram) == (0.5, -0.5, 2)
    assert request.max_new_tokens == 37, "max_length counts the prompt"
    assert sampling.min_new_tokens == 3 and sampling.forced_first == 7
    assert sampling.logit_bias == ((5, -2.0), (6, 1.5)) and (8, 9) in sampling.bad_words and (10,) in sampling.bad_words
    assert request.eos_ids == {12, 13}


def test_penalties_hold_for_greedy_requests_and_min_p_does_not():
    sampling = built(RequestSpec("a", max_new_tokens=9, min_p=0.25, further=(("repetition_penalty", 1.5),))).sampling
    assert sampling.is_greedy and sampling.repetition_penalty == 1.5 and sampling.min_p == 0.0


def test_a_line_of_a_file_may_give_them_all(tmp_path: Path):
    import json

    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": "a", "temperature": 0.5, "min_p": 0.25, **VALUES}) + '\n{"prompt": "b"}\n')
    first, second = read_prompts(path, RequestSpec(further=(("min_new_tokens", 1),)))
    assert first.min_p == 0.25 and dict(first.further) == VALUES
    assert second.further == (("min_new_tokens", 1),), "what a line leaves open"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"min_p": 2', "min_p must be at least 0 and at most 1"),
        ('"repetition_penalty": 0', "repetition_penalty=0 is out of range: it must be finite and > 0; 1 is off"),
        ('"min_length": 1.5', "min_length must be int"),
        ('"logit_bias": [1]', "logit_bias must be mapping"),
        ('"suppress_tokens": [-1]', "suppress_tokens="),
    ],
)
def test_a_wrong_one_is_told_by_the_rules_of_the_engine(line: str, said: str, tmp_path: Path):
    path = tmp_path / "prompts.jsonl"
    path.write_text(f'{{"prompt": "a", {line}}}\n')
    with pytest.raises(PromptFileError) as caught:
        read_prompts(path, RequestSpec())
    assert f"line 1: {said}" in str(caught.value)


def test_options_give_them():
    spec = read_choices(given(min_p="0.1", sampling=["min_length=4 logit_bias={\"5\": -2}", "min_length=6"])).spec
    assert spec.min_p == 0.1 and spec.further == (("min_length", 6), ("logit_bias", {5: -2}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("repetition_penalti=1", "repetition_penalti is not known; did you mean repetition_penalty?"),
        ("colour=1", "colour is not known; there are repetition_penalty, "),
        ("top_p=1", "top_p has a field of its own"),
        ("min_length", "'min_length' must be name=value"),
        ("min_length=few", "min_length must have a number or a JSON value"),
        ("min_length=1 min_length=2", "min_length is given twice"),
        ("no_repeat_ngram_size=-1", "no_repeat_ngram_size=-1 is out of range: it must be >= 0; 0 is off"),
        ("eos_token_id=1.5", "eos_token_id must be ids"),
    ],
)
def test_a_wrong_option_says_what_is_right(text: str, said: str):
    with pytest.raises(OptionError) as caught:
        read_choices(given(sampling=[text]))
    assert said in str(caught.value) and str(caught.value).startswith(f"--sampling {text}: ")


def test_fields_of_the_dialog_hold_them():
    spec = RequestSpec("text", temperature=0.5, min_p=0.05, further=tuple(VALUES.items()))
    assert read_request(RequestSpec("text"), texts_of(spec, REQUEST_FIELDS)) == (spec, {})
    _, errors = read_request(RequestSpec(), {**texts_of(spec, REQUEST_FIELDS), "further": "colour=1", "min_p": "3"})
    assert errors["min_p"] == "min_p must be at least 0 and at most 1" and "colour is not known" in errors["further"]


def test_keys_of_a_mapping_are_ids_again():
    assert check_further("logit_bias", {"5": 1.0, "6 ": 2}) == {5: 1.0, 6: 2}

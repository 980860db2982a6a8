"""The type and range of each per-request value, in one table."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.core.errors import RequestError


@dataclass(frozen=True, slots=True)
class Rule:
    """``kind`` is what the value must be; ``ok(value, vocab)`` whether it is in range; the rest is for the message."""

    kind: str
    ok: Callable[[Any, int], bool]
    range: str
    advice: str = ""


def _finite(value: float, _: int) -> bool:
    return math.isfinite(value)


def _not_negative(value: int, _: int) -> bool:
    return value >= 0


def _is_id(value: Any, vocab_size: int) -> bool:
    return hasattr(value, "__index__") and 0 <= value < vocab_size


RULES: Mapping[str, Rule] = {
    "do_sample": Rule("bool", lambda v, n: True, "True or False"),
    "temperature": Rule("float", lambda v, n: math.isfinite(v) and v >= 0, "finite and >= 0", "0 is greedy"),
    "top_k": Rule("int", lambda v, n: 1 <= v <= n, "between 1 and the vocabulary size", "leave it out to keep all"),
    "top_p": Rule("float", lambda v, n: 0 < v <= 1, "in (0, 1]", "1 keeps all tokens"),
    "min_p": Rule("float", lambda v, n: 0 <= v <= 1, "in [0, 1]", "0 keeps all tokens"),
    "repetition_penalty": Rule("float", lambda v, n: math.isfinite(v) and v > 0, "finite and > 0", "1 is off"),
    "presence_penalty": Rule("float", _finite, "finite", "0 is off"),
    "frequency_penalty": Rule("float", _finite, "finite", "0 is off"),
    "no_repeat_ngram_size": Rule("int", _not_negative, ">= 0", "0 is off"),
    "min_new_tokens": Rule("int", _not_negative, ">= 0", "0 is off"),
    "min_length": Rule("int", _not_negative, ">= 0", "0 is off"),
    "max_length": Rule("int", _not_negative, ">= 0", "it counts prompt and output"),
    "max_new_tokens": Rule("int", _not_negative, ">= 0", "leave it out to go on to the end"),
    "num_return_sequences": Rule("int", lambda v, n: v >= 1, ">= 1"),
    "seed": Rule("int", lambda v, n: 0 <= v < 2**63, "between 0 and 2**63 - 1", "leave it out to have one drawn"),
    "forced_bos_token_id": Rule("int", lambda v, n: 0 <= v < n, "a token id of the model"),
    "logprobs": Rule("int or bool", lambda v, n: -1 <= v <= n, "True, False or between 0 and the vocabulary size"),
    "logit_bias": Rule("mapping", lambda v, n: True, "a mapping of token id to a number"),
    "sequence_bias": Rule("mapping or list", lambda v, n: True, "a mapping of token ids to a number"),
    "bad_words_ids": Rule("list", lambda v, n: True, "a list of token id lists"),
    "suppress_tokens": Rule("list", lambda v, n: all(_is_id(t, n) for t in v), "token ids of the model"),
    "stop_token_ids": Rule("ids", lambda v, n: True, "a token id or a list of them"),
}

_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "bool": lambda v: isinstance(v, bool),
    "int": lambda v: hasattr(v, "__index__") and not isinstance(v, bool),
    "float": lambda v: hasattr(v, "__float__") and not isinstance(v, bool | str),
    "int or bool": lambda v: hasattr(v, "__index__"),
    "mapping": lambda v: isinstance(v, Mapping),
    "mapping or list": lambda v: isinstance(v, Mapping | list | tuple),
    "list": lambda v: isinstance(v, Iterable) and not isinstance(v, str | bytes | Mapping),
    "ids": lambda v: hasattr(v, "__index__") or (isinstance(v, Iterable) and not isinstance(v, str | bytes | Mapping)),
}


def check_value(name: str, value: Any, vocab_size: int) -> Any:
    """``value`` itself when type and range are right.

    Raises:
        TypeError: wrong type.
        RequestError: out of range; names the value, the range and what to do.
    """
    rule = RULES[name]
    if not _KINDS[rule.kind](value):
        raise TypeError(f"{name} must be {rule.kind} but is {type(value).__name__} ({value!r})")
    if not rule.ok(value, vocab_size):
        advice = f"; {rule.advice}" if rule.advice else ""
        vocabulary = f" ({vocab_size})" if "vocabulary" in rule.range else ""
        raise RequestError(f"{name}={value!r} is out of range: it must be {rule.range}{vocabulary}{advice}")
    return value


def too_many_at_least(
    what: str, shortest: int, new_tokens: int, prompt: int, max_length: int | None
) -> RequestError:
    """The error for ``what``, which asks for at least ``shortest`` new tokens where only ``new_tokens`` are allowed.

    Args:
        prompt: tokens of the prompt. max_length: positions of the model, None for no bound.
    """
    if max_length is not None and shortest > max_length - prompt:
        left = f"the model has {max_length} positions, which leaves {max_length - prompt} new tokens"
        return RequestError(f"{what} is too much: {left} after a prompt of {prompt}; ask for at most that many")
    return RequestError(f"{what} is more than the {new_tokens} new tokens allowed; lower it or raise max_new_tokens")


def id_sequences(name: str, value: Any, vocab_size: int) -> tuple[tuple[int, ...], ...]:
    """Non-empty sequences of token ids, for example words that may not be produced.

    Raises:
        TypeError, RequestError: not a list of id lists, an empty one, or an id outside the vocabulary.
    """
    result = []
    for entry in value:
        if not _KINDS["list"](entry):
            raise TypeError(f"{name} must hold lists of token ids but has {type(entry).__name__} ({entry!r})")
        ids = tuple(entry)
        if not ids or not all(_KINDS["int"](token) and 0 <= token < vocab_size for token in ids):
            raise RequestError(f"{name} entry {list(ids)!r} must hold token ids in 0 … {vocab_size - 1}, at least one")
        result.append(tuple(int(token) for token in ids))
    return tuple(result)


def token_biases(bias: Mapping[Any, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    """(token id, bias) pairs in ascending order of id. Keys are ids, or tuples of one id.

    Raises:
        RequestError: a key of several ids, an id outside the vocabulary, or a bias that is NaN or +inf.
    """
    result: dict[int, float] = {}
    for key, value in bias.items():
        ids = tuple(key) if isinstance(key, tuple | list) else (key,)
        if len(ids) != 1:
            raise RequestError(f"a bias on the sequence {list(ids)} is not supported; give single tokens a bias")
        token = ids[0]
        if not _KINDS["int"](token) or not 0 <= token < vocab_size:
            raise RequestError(f"logit_bias for token {token!r}: ids must be in 0 … {vocab_size - 1}")
        if not _KINDS["float"](value) or math.isnan(value) or value == math.inf:
            raise RequestError(f"logit_bias of token {token} is {value!r}: it must be a number below infinity")
        result[int(token)] = float(value)
    return tuple(sorted(result.items()))

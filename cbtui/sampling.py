"""Sampling parameters that have no field of their own: read, checked by the engine's rules, and written as text."""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from engine.core.errors import RequestError
from engine.sampling_rules import RULES, check_value

More = tuple[tuple[str, Any], ...]
"""Names and values, in the order they were given."""

OWN = frozenset({
    "do_sample", "temperature", "top_k", "top_p", "min_p", "seed", "max_new_tokens", "num_return_sequences", "logprobs",
})  # fmt: skip
"""Have a field of their own; whether to draw follows from the temperature, and ``copies`` asks for several."""
FURTHER = (*(name for name in RULES if name not in OWN), "eos_token_id")
"""All the others the engine knows."""
_VOCABULARY = 2**31
"""Stands for the size of a vocabulary before a model is there: the engine checks ids once more."""
_START = re.compile(r"[\s,]*([A-Za-z_]\w*)\s*=\s*")


def check_further(name: str, value: Any) -> Any:
    """A value as the engine takes it.

    Raises:
        ValueError: unknown name, wrong type or out of range, in one sentence.
    """
    if name in OWN:
        raise ValueError(f"{name} has a field of its own")
    if name not in FURTHER:
        near = get_close_matches(name, FURTHER, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FURTHER)}"
        raise ValueError(f"{name} is not known; {hint}")
    if name in ("logit_bias", "sequence_bias") and isinstance(value, Mapping):  # keys of JSON are texts
        value = {int(key) if re.fullmatch(r"\s*\d+\s*", str(key)) else key: bias for key, bias in value.items()}
    try:
        return check_value("stop_token_ids" if name == "eos_token_id" else name, value, _VOCABULARY)
    except (TypeError, RequestError) as error:
        raise ValueError(str(error).replace("stop_token_ids", name)) from error


def read_further(text: str) -> More:
    """Reads ``repetition_penalty=1.2 suppress_tokens=[3, 4]``: names and JSON values, blanks or commas between them.

    Raises:
        ValueError: not of that form, a name given twice, or a value that is not right.
    """
    found: dict[str, Any] = {}
    place, decoder = 0, json.JSONDecoder()
    while text[place:].strip(" ,\t\n"):
        start = _START.match(text, place)
        if start is None:
            raise ValueError(f"{text[place:].strip()!r} must be name=value, for example repetition_penalty=1.2")
        try:
            value, place = decoder.raw_decode(text, start.end())
        except json.JSONDecodeError:
            raise ValueError(f"{start[1]} must have a number or a JSON value, without quotes for names") from None
        if start[1] in found:
            raise ValueError(f"{start[1]} is given twice")
        found[start[1]] = check_further(start[1], value)
    return tuple(found.items())


def write_further(more: More) -> str:
    """As ``read_further`` reads it."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in more)

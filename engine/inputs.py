"""What callers hand in as a prompt, turned into a plain list of token ids."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.errors import RequestError

EXPECTED = (
    "a list or tuple of ints, a tensor or array of shape [n] or [1, n], a tokenizer's output with 'input_ids', "
    "or (with a tokenizer) a string"
)


def token_ids(prompt: Any, tokenizer: Any = None) -> list[int]:
    """Token ids of one prompt.

    Args:
        prompt: list, tuple or range of ints; torch tensor or numpy array of shape [n] or [1, n]; a mapping with
            ``input_ids`` as tokenizers and chat templates return it (positions masked by its ``attention_mask`` are
            padding and left out); a string when ``tokenizer`` is given.
        tokenizer: used for strings only.

    Raises:
        TypeError: naming the type found and what is expected. Nothing was queued.
        RequestError: the prompt has several rows.
    """
    if isinstance(prompt, str):
        if tokenizer is None:
            raise TypeError(f"the prompt is a string but there is no tokenizer; expected {EXPECTED}")
        return token_ids(tokenizer(prompt)["input_ids"])
    if isinstance(prompt, Mapping) or (hasattr(prompt, "keys") and hasattr(prompt, "__getitem__")):
        return _from_mapping(prompt)
    if isinstance(prompt, bytes | bytearray):
        raise TypeError(f"a prompt cannot be {type(prompt).__name__}; expected {EXPECTED}")
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if not isinstance(prompt, Sequence):
        raise TypeError(f"a prompt cannot be {type(prompt).__name__}; expected {EXPECTED}")
    row = _single_row(prompt)
    return [_as_id(value, index) for index, value in enumerate(row)]


def prompt_rows(inputs: Any) -> list[Any]:
    """The prompts of a batch: rows of a 2-D tensor, of a tokenizer's output, or the elements of a list.

    Raises:
        TypeError: ``inputs`` is a single string, or nothing one can take rows from.
    """
    if isinstance(inputs, str | bytes):
        raise TypeError(f"expected a list of prompts but got {type(inputs).__name__}; wrap the prompt in a list")
    if isinstance(inputs, Mapping) or (hasattr(inputs, "keys") and hasattr(inputs, "__getitem__")):
        rows = prompt_rows(_input_ids(inputs))
        mask = inputs["attention_mask"] if "attention_mask" in inputs else None
        if mask is None:
            return rows
        return [{"input_ids": row, "attention_mask": kept} for row, kept in zip(rows, mask, strict=True)]
    if not hasattr(inputs, "__iter__"):
        raise TypeError(f"expected a list of prompts but got {type(inputs).__name__}")
    rows = list(inputs)
    if rows and isinstance(rows[0], int):
        raise TypeError("expected a list of prompts but got a flat list of ints; wrap the prompt in a list")
    if getattr(inputs, "ndim", 2) == 1 and hasattr(inputs, "tolist"):
        raise TypeError("expected a list of prompts but got a 1-D tensor; wrap the prompt in a list")
    return rows


def _input_ids(mapping: Any) -> Any:
    if "input_ids" not in mapping:
        raise TypeError(f"a mapping used as prompt needs 'input_ids'; it has {sorted(map(str, mapping.keys()))}")
    return mapping["input_ids"]


def _from_mapping(mapping: Any) -> list[int]:
    ids = token_ids(_input_ids(mapping))
    mask = mapping["attention_mask"] if "attention_mask" in mapping else None
    if mask is None:
        return ids
    kept = _single_row(mask.tolist() if hasattr(mask, "tolist") else mask)
    if len(kept) != len(ids):
        raise RequestError(f"attention_mask has {len(kept)} entries for {len(ids)} token ids; they must match")
    return [token for token, keep in zip(ids, kept, strict=True) if keep]


def _single_row(values: Any) -> Any:
    """``values`` itself, or its only row when it is nested once."""
    if len(values) > 0 and not isinstance(values[0], str) and hasattr(values[0], "__len__"):
        if len(values) != 1:
            raise RequestError(f"one request takes one prompt but got {len(values)} rows; use add_requests for a batch")
        return values[0].tolist() if hasattr(values[0], "tolist") else values[0]
    return values


def _as_id(value: Any, index: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"token {index} of the prompt is {type(value).__name__} ({value!r}); token ids are ints")
    return int(value)

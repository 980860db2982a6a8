"""The fields of the add and burst dialogs: what is allowed in them, in numbers and in words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cbtui.launch import RequestSpec
from cbtui.prompts import parse_stop_strings, write_stop_strings
from cbtui.sampling import read_further, write_further


@dataclass(frozen=True, slots=True)
class FormField:
    """One line a person fills in.

    Attributes:
        name: of the value. label: what stands before it.
        read: text to value; raises ValueError with one sentence that names the field and its range.
        width: cells of the input.
    """

    name: str
    label: str
    read: Callable[[str], Any]
    width: int = 9


def whole(name: str, low: int, high: int | None = None, *, empty: int | None = None) -> Callable[[str], int]:
    """Reads a whole number in [low, high]; an empty text is ``empty`` where that is allowed."""
    limits = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"

    def read(text: str) -> int:
        text = text.strip()
        if not text and empty is not None:
            return empty
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{name} must be {limits}") from None
        if value < low or (high is not None and value > high):
            raise ValueError(f"{name} must be {limits}")
        return value

    return read


def real(
    name: str, low: float, high: float, *, open_low: bool = False, empty: float | None = None
) -> Callable[[str], float]:
    """Reads a number in [low, high], or (low, high] with ``open_low``."""
    lower = f"greater than {low:g}" if open_low else f"at least {low:g}"

    def read(text: str) -> float:
        text = text.strip()
        if not text and empty is not None:
            return empty
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{name} must be a number {lower} and at most {high:g}") from None
        if not (low < value if open_low else low <= value) or not value <= high:
            raise ValueError(f"{name} must be {lower} and at most {high:g}")
        return value

    return read


def optional_seed(text: str) -> int | None:
    """Reads a seed; an empty text lets the engine draw one."""
    return None if not text.strip() else whole("seed", 0, 2**63 - 1)(text)


REQUEST_FIELDS: tuple[tuple[FormField, ...], ...] = (
    (
        FormField("max_new_tokens", "max new tokens", whole("max new tokens", 1)),
        FormField("stop_strings", "stop strings", parse_stop_strings, 20),
        FormField("copies", "copies", whole("copies", 1, 256), 6),
    ),
    (
        FormField("temperature", "temperature", real("temperature", 0, 100, empty=0.0), 7),
        FormField("top_k", "top_k", whole("top_k", 0, empty=0), 7),
        FormField("top_p", "top_p", real("top_p", 0, 1, open_low=True, empty=1.0), 6),
        FormField("min_p", "min_p", real("min_p", 0, 1, empty=0.0), 6),
        FormField("seed", "seed", optional_seed, 9),
    ),
    (FormField("further", "further", read_further, 60),),
)
"""Rows of the add dialog below the prompt."""


@dataclass(frozen=True, slots=True)
class BurstSpec:
    """Many requests at once.

    Attributes:
        count: how many. prompt_min, prompt_max: prompt length in tokens, drawn evenly between them.
        new_min, new_max: max new tokens, the same way.
        per_second: arrivals per second; 0 adds all of them at once.
        shared: tokens at the start that all prompts have in common.
        seed: of these draws; the same numbers give the same burst.
    """

    count: int = 12
    prompt_min: int = 16
    prompt_max: int = 96
    new_min: int = 16
    new_max: int = 96
    per_second: float = 4.0
    shared: int = 0
    seed: int = 0


BURST_FIELDS: tuple[tuple[FormField, ...], ...] = (
    (
        FormField("count", "requests", whole("requests", 1, 1000), 8),
        FormField("per_second", "per second (0 is all at once)", real("per second", 0, 1000), 8),
    ),
    (
        FormField("prompt_min", "prompt tokens from", whole("prompt tokens", 1, 100_000), 8),
        FormField("prompt_max", "to", whole("prompt tokens", 1, 100_000), 8),
        FormField("shared", "of them the same", whole("tokens in common", 0, 100_000), 8),
    ),
    (
        FormField("new_min", "new tokens from", whole("new tokens", 1, 100_000), 8),
        FormField("new_max", "to", whole("new tokens", 1, 100_000), 8),
        FormField("seed", "seed of the draw", whole("seed", 0), 8),
    ),
)


def texts_of(spec: Any, fields: tuple[tuple[FormField, ...], ...]) -> dict[str, str]:
    """What stands in the fields for a spec."""
    return {field.name: _text(field.name, getattr(spec, field.name)) for row in fields for field in row}


def _text(name: str, value: Any) -> str:
    if name == "further":
        return write_further(value)
    if value is None:
        return ""
    if isinstance(value, tuple):
        return write_stop_strings(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_fields(
    texts: Mapping[str, str], fields: tuple[tuple[FormField, ...], ...]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Values of all fields that are right, and a sentence for each that is not."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for row in fields:
        for field in row:
            try:
                values[field.name] = field.read(texts[field.name])
            except ValueError as error:
                errors[field.name] = str(error)
    return values, errors


def read_request(base: RequestSpec, texts: Mapping[str, str]) -> tuple[RequestSpec, dict[str, str]]:
    """A request from the texts of the fields; on errors the fields that are right are still taken."""
    values, errors = read_fields(texts, REQUEST_FIELDS)
    return replace(base, **values), errors


def read_burst(texts: Mapping[str, str]) -> tuple[BurstSpec, dict[str, str]]:
    """A burst from the texts of the fields; a range must not be upside down and must hold what is shared."""
    values, errors = read_fields(texts, BURST_FIELDS)
    spec = replace(BurstSpec(), **values)
    if not errors.keys() & {"prompt_min", "prompt_max"} and spec.prompt_max < spec.prompt_min:
        errors["prompt_max"] = f"must be at least {spec.prompt_min}"
    if not errors.keys() & {"new_min", "new_max"} and spec.new_max < spec.new_min:
        errors["new_max"] = f"must be at least {spec.new_min}"
    if not errors.keys() & {"prompt_min", "shared"} and spec.shared >= spec.prompt_min and spec.shared:
        errors["shared"] = f"must be less than {spec.prompt_min}, the shortest prompt"
    return spec, errors

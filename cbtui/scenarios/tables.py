"""What the tables of a scenario's file may hold, and what each value must be."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cbtui.scenarios.mistakes import Mistakes
from cbtui.scenarios.plot import EVENTS
from cbtui.view.chrome import MAP_VIEWS

SHORT = 74
"""Characters of a caption's short form, so that it fits a screen of 80 columns. A figure counts as three of them."""
TEXT = 150
"""The same of the long form."""
Check = Callable[[Any], str | None]
"""None for a value that is right, else what it must be."""


def _text(least: int, most: int) -> Check:
    words = f"a text of {least} to {most} characters"
    return lambda v: None if isinstance(v, str) and least <= len(v) <= most and "\n" not in v else words


def _whole(low: int, high: int) -> Check:
    words = f"a whole number from {low} to {high}"
    return lambda v: None if isinstance(v, int) and not isinstance(v, bool) and low <= v <= high else words


def _real(low: float, high: float) -> Check:
    words = f"a number from {low:g} to {high:g}"
    return lambda v: None if isinstance(v, int | float) and not isinstance(v, bool) and low <= v <= high else words


def _one_of(names: Iterable[str]) -> Check:
    allowed = tuple(names)
    return lambda v: None if v in allowed else f"one of {', '.join(allowed)}"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _table(value: Any) -> str | None:
    return None if isinstance(value, dict) else "a table"


def _tables(value: Any) -> str | None:
    return None if isinstance(value, list) and all(isinstance(v, dict) for v in value) else "a list of tables"


def length_of(text: str) -> int:
    """Characters of a caption once its figures are filled in, about."""
    return len(re.sub(r"\{[^}:]*(?::([^}]*))?\}", lambda field: f"123 {field[1]}s" if field[1] else "123", text))


def _sentence(most: int) -> Check:
    words = f"a text of 5 to {most} characters, a figure counted as 3"
    return lambda v: None if isinstance(v, str) and 5 <= length_of(v) <= most and "\n" not in v else words


_NAME = _text(1, 24)
TOP: Mapping[str, Check] = {
    "title": _text(3, 48), "teaches": _text(10, 160), "model": _text(1, 80), "needs": _one_of(("window",)),
    "rate": _real(0.25, 1000), "mode": _whole(1, 6), "map_view": _one_of(MAP_VIEWS), "host_blocks": _whole(0, 10_000),
    "config": _table, "requests": _tables, "commands": _tables, "captions": _tables,
}  # fmt: skip
MOMENT: Mapping[str, Check] = {
    "at": _whole(0, 100_000), "when": _one_of(EVENTS), "of": _NAME, "nth": _whole(1, 1000), "after": _whole(0, 10_000),
}  # fmt: skip
SAMPLING: Mapping[str, Check] = {
    "max_new_tokens": _whole(1, 100_000), "temperature": _real(0, 100), "top_k": _whole(0, 1_000_000),
    "top_p": _real(0.001, 1), "seed": _whole(0, 2**63 - 1), "copies": _whole(1, 64), "chat": _flag,
    "ignore_eos": _flag,
}  # fmt: skip
REQUEST: Mapping[str, Check] = {
    **MOMENT, **SAMPLING, "name": _NAME, "group": _NAME, "text": _text(0, 4000), "tokens": _whole(1, 100_000),
    "topic": _text(1, 80),
}  # fmt: skip
COMMAND: Mapping[str, Check] = {**MOMENT, "cancel": _NAME, "set": _table, "pause": _flag}
CAPTION: Mapping[str, Check] = {**MOMENT, "text": _sentence(TEXT), "short": _sentence(SHORT), "pause": _flag}


def check_table(where: str, given: Mapping[str, Any], allowed: Mapping[str, Check], needed: Iterable[str] = ()) -> None:
    """Each value known and in its range, and none missing.

    Raises:
        ScenarioError: with a sentence for each that is not.
    """
    start, wrong = f"{where}: " if where else "", Mistakes()
    for name, value in given.items():
        if name not in allowed:
            wrong.add(f"{start}{name} is not known; there are {', '.join(allowed)}")
            continue
        must = allowed[name](value)
        if must is not None:
            wrong.add(f"{start}{name} = {value!r} must be {must}")
    for name in needed:
        if name not in given:
            wrong.add(f"{start}{name} is missing; it must be {allowed[name](None)}")
    wrong.raise_any()

"""Captions and the figures in them: which names they hold, whether these exist, and the sentence with numbers in it."""

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from cbtui.keys import BY_ID, key_name
from cbtui.scenarios.figures import ENGINE, GROUP, REQUEST, Sight

NOTHING = "--"


class FigureError(ValueError):
    """A caption asks for a figure that does not exist."""


def fields_of(text: str) -> list[tuple[str, str]]:
    """The names between braces, in order, each with the noun behind its colon, "" for none."""
    try:
        return [(name, noun or "") for _, name, noun, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise FigureError(f"{error}; a brace itself is written twice") from error


def check_text(text: str, members: Mapping[str, Sequence[str]]) -> None:
    """Raises ``FigureError`` for a figure that does not exist. ``members``: ids by the name of a request or group."""
    for name, noun in fields_of(text):
        if noun and not noun.replace(" ", "").isalpha():
            raise FigureError(f"{{{name}:{noun}}}: behind the colon stands what is counted, for example step")
        first, dot, last = name.rpartition(".") if "." in name else (name, "", "")
        if first == "key":
            if last not in BY_ID:
                raise FigureError(f"{{{name}}}: there is no action {last!r}; the README lists the keys")
        elif first in members:
            known = REQUEST if members[first][0] == first and len(members[first]) == 1 else GROUP
            if dot and last not in known:
                raise FigureError(f"{{{name}}}: {first} has no figure {last!r}; there are {', '.join(known)}")
        elif dot or first not in ENGINE:
            raise FigureError(f"{{{name}}} is no figure; there are {', '.join(ENGINE)}, and those of requests")


def word(text: str, sight: Sight, members: Mapping[str, Sequence[str]], keys: Mapping[str, tuple[str, ...]]) -> str:
    """A caption with its figures filled in; ``{gap:step}`` becomes "1 step" or "3 steps"."""
    out = []
    for literal, name, noun, _ in Formatter().parse(text):
        out.append(literal)
        if name is not None:
            value = value_of(name, sight, members, keys)
            out.append(_written_out(value) + (f" {noun}{'' if value == 1 else 's'}" if noun else ""))
    return "".join(out)


def value_of(name: str, sight: Sight, members: Mapping[str, Sequence[str]], keys: Mapping[str, tuple[str, ...]]) -> Any:
    """The value behind a name of a caption, None when it is not known."""
    first, dot, last = name.rpartition(".") if "." in name else (name, "", "")
    if first == "key":
        return key_name(keys[last][0])
    if first not in members:
        return ENGINE[first](sight)
    stories = sight.stories(members[first])
    if not dot:
        return " ".join(story.label for story in stories) or first
    if len(members[first]) > 1 or members[first][0] != first:
        return GROUP[last](sight, stories)
    return REQUEST[last](sight, stories[0]) if stories else None


def _written_out(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
    return str(value)

"""Styled words. What they say is data: no markup is read from it, control codes are taken out."""

from collections.abc import Sequence

from rich.text import Text

from cbtui.text import clean
from cbtui.theme import Theme

Words = Sequence[tuple[str, str]]
"""Pieces of text with the role they are drawn in: a colour role of the theme, or "bold" for bright and bold."""


def say(theme: Theme, words: Words, ground: str = "panel", *, wrap: bool = False) -> Text:
    """Styled words, on one line unless ``wrap`` is set."""
    text = Text(no_wrap=not wrap, overflow="fold" if wrap else "ellipsis", end="")
    for piece, role in words:
        bold = role == "bold"
        text.append(clean(piece), theme.style("bright" if bold else role, ground, bold=bold))
    return text

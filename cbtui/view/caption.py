"""The lines of a scenario: which caption of how many, the sentence, and what to press next."""

from cbtui.theme import Theme
from cbtui.view.cells import Panel, RowBuilder, choose, width_of, wrap_at_most
from cbtui.view.chrome import CaptionLine

GROUND = "lift"
MOST_ROWS = 3


def caption_rows(line: CaptionLine, theme: Theme, width: int, height: int) -> int:
    """Rows the caption takes on a screen of that size: one where a wording fits whole, else as many as it needs."""
    return len(_lines(line, theme, width, max(1, min(MOST_ROWS, height - 7))))


def caption(line: CaptionLine, theme: Theme, width: int, rows: int = 1) -> Panel:
    """At most ``rows`` rows. In one row a shorter sentence with a hint is better than a longer one without."""
    lines = _lines(line, theme, width, rows)
    count = _count(line)
    out = []
    for place, text in enumerate(lines):
        row = RowBuilder(width, theme.style("text", GROUND))
        row.put(" " * width_of(count) if place else count, theme.style("amber", GROUND, bold=True))
        row.put(text, theme.style("bright", GROUND))
        out.append(row)
    last = out[-1]
    hint = next((hint for hint in _ascii(line.hints, theme) if width_of(hint) <= last.left - 3), "")
    if hint:
        last.to(width - width_of(hint) - 1).put(hint, theme.style("muted", GROUND))
    return Panel([row.done() for row in out])


def _count(line: CaptionLine) -> str:
    return f" {line.number}/{line.total} "


def _lines(line: CaptionLine, theme: Theme, width: int, rows: int) -> list[str]:
    room = max(0, width - width_of(_count(line)) - 1)
    texts, hints = _ascii(line.texts, theme), _ascii(line.hints, theme)
    least = min(map(width_of, hints), default=0) + 2
    beside = [text for text in texts if width_of(text) + least <= room]
    whole = [text for text in texts if width_of(text) <= room]
    if beside or whole or rows == 1:
        return [choose(beside or texts, room, theme.glyphs.ellipsis)]
    return wrap_at_most(min(texts, key=width_of), room, rows, theme.glyphs.ellipsis)


def _ascii(texts: tuple[str, ...], theme: Theme) -> tuple[str, ...]:
    """Typographic signs have plain ones where only ASCII is drawn."""
    if theme.glyphs.unicode:
        return texts
    return tuple(text.translate(_PLAIN).encode("ascii", "replace").decode() for text in texts)


_PLAIN = str.maketrans({"“": '"', "”": '"', "…": "...", "·": "-", "×": "x", "–": "-", "’": "'"})

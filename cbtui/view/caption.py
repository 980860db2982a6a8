"""The line of a scenario: which caption of how many, the sentence, and what to press next."""

from cbtui.theme import Theme
from cbtui.view.cells import Panel, RowBuilder, choose, width_of
from cbtui.view.chrome import CaptionLine

GROUND = "lift"


def caption(line: CaptionLine, theme: Theme, width: int) -> Panel:
    """One row. A shorter sentence that leaves room for a hint is better than a longer one without."""
    row = RowBuilder(width, theme.style("text", GROUND))
    count = f" {line.number}/{line.total} "
    row.put(count, theme.style("amber", GROUND, bold=True))
    room = max(0, width - width_of(count) - 1)
    texts, hints = _ascii(line.texts, theme), _ascii(line.hints, theme)
    least = min(map(width_of, hints), default=0) + 2
    beside = [text for text in texts if width_of(text) + least <= room]
    text = choose(beside or texts, room, theme.glyphs.ellipsis)
    row.put(text, theme.style("bright", GROUND))
    left = room - width_of(text) - 2
    hint = next((hint for hint in hints if width_of(hint) <= left), "")
    if hint:
        row.to(width - width_of(hint) - 1).put(hint, theme.style("muted", GROUND))
    return Panel([row.done()])


def _ascii(texts: tuple[str, ...], theme: Theme) -> tuple[str, ...]:
    """Typographic signs have plain ones where only ASCII is drawn."""
    if theme.glyphs.unicode:
        return texts
    return tuple(text.translate(_PLAIN).encode("ascii", "replace").decode() for text in texts)


_PLAIN = str.maketrans({"“": '"', "”": '"', "…": "...", "·": "-", "×": "x", "–": "-", "’": "'"})

"""What was said last: beside the keys where help and the way out keep their place, else on rows of its own above."""

from cbtui.theme import Theme
from cbtui.view.cells import Panel, RowBuilder, width_of, wrap_at_most
from cbtui.view.chrome import Chrome

GROUND = "panel"
KEPT = ("help", "quit")
"""Actions whose keys stay in sight whatever is said."""
MOST_ROWS = 4


def notice_rows(chrome: Chrome, width: int, height: int) -> int:
    """Rows of its own that the notice takes on a screen of that size: none when it stands beside the keys."""
    if not chrome.notice or beside_keys(chrome, width):
        return 0
    return min(MOST_ROWS, max(1, height - 6), len(wrap_at_most(chrome.notice, _room(width), MOST_ROWS)))


def beside_keys(chrome: Chrome, width: int) -> bool:
    """Whether the notice fits into the row of the keys, and leaves those there that must stay."""
    return width_of(chrome.notice) + 4 + _kept(chrome) <= width


def _kept(chrome: Chrome) -> int:
    """Cells of the keys up to the last one that must stay: what matters more is there as well."""
    least = min((hint.priority for hint in chrome.keys if hint.action in KEPT), default=None)
    if least is None:
        return 0
    return sum(width_of(f"{hint.keys} {hint.label}") + 2 for hint in chrome.keys if hint.priority >= least)


def notice(chrome: Chrome, theme: Theme, width: int, rows: int) -> Panel:
    """The notice on ``rows`` rows."""
    look = theme.style("vermilion" if chrome.notice_kind == "error" else "amber", GROUND, bold=True)
    out = []
    for text in wrap_at_most(chrome.notice, _room(width), rows, theme.glyphs.ellipsis):
        out.append(RowBuilder(width, theme.style("text", GROUND)).put(" ").put(text, look).done())
    return Panel(out)


def _room(width: int) -> int:
    return width - 2

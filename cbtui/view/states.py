"""The screen while there is no engine to show: nothing loaded yet, loading, or a load that failed."""

from cbtui.sentences import seconds
from cbtui.theme import Theme
from cbtui.view.cells import Panel, Row, RowBuilder, blank, choose, wrap
from cbtui.view.chrome import Chrome
from cbtui.view.hud import bar_cells

BRIEF = 0.1
"""Seconds of loading that are not worth a word."""


def centred(theme: Theme, width: int, text: str, role: str, *, bold: bool = False) -> Row:
    text = choose((text,), max(0, width - 2), theme.glyphs.ellipsis)
    row = RowBuilder(width, theme.style("text"))
    return row.to(max(0, (width - len(text)) // 2)).put(text[: row.left], theme.style(role, bold=bold)).done()


def body(chrome: Chrome, theme: Theme, width: int, height: int) -> Panel:
    """One thing in the middle of the screen: what is loading, or what went wrong and what to try."""
    rows: list[Row] = []
    if chrome.error:
        rows.append(centred(theme, width, f"{theme.glyphs.failed} {chrome.model or 'the engine'} did not start",
                            "vermilion", bold=True))  # fmt: skip
        rows.append(blank(theme, width))
        rows += [centred(theme, width, line, "text") for line in wrap(chrome.error, min(76, width - 4))]
    elif chrome.loading is not None:
        rows += _loading(chrome, theme, width)
    else:
        rows.append(centred(theme, width, "no engine yet", "muted"))
    top = max(0, (height - len(rows)) // 2)
    rows = [blank(theme, width)] * top + rows
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height])


def _loading(chrome: Chrome, theme: Theme, width: int) -> list[Row]:
    loading = chrome.loading
    assert loading is not None
    rows = [centred(theme, width, f"loading {chrome.model}", "bright", bold=True), blank(theme, width)]
    room = max(10, min(48, width - 8))
    row = RowBuilder(width, theme.style("text")).to((width - room) // 2)
    if loading.total:
        row.put(bar_cells(theme, loading.done / loading.total, room), theme.style("steel", "lift"))
        rows += [row.done(), blank(theme, width)]
    words = loading.phase
    if loading.seconds >= BRIEF:
        words += f", {seconds(loading.seconds)} so far"
    if loading.total:
        words += f", {100 * loading.done / loading.total:.0f}%"
    rows.append(centred(theme, width, words, "muted"))
    return rows

"""The step log: what each step did, newest first, with a plain line for the steps in which nothing special happened."""

from bisect import bisect_right

from rich.style import Style

from cbtui.loglines import log_line, quiet_line
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, heading, width_of
from cbtui.view.chrome import Hit
from cbtui.view.scene import Scene


def log_rows(scene: Scene, width: int, rows: int) -> list[tuple[Row, int, int]]:
    """(row, step, request key) of the newest ``rows`` lines up to the step shown."""
    theme, state = scene.theme, scene.state
    text, dim, strong = theme.style("text"), theme.style("muted"), theme.style("muted")
    at = bisect_right(state.log, scene.step, key=lambda entry: entry.step)
    entries = state.log[max(0, at - rows) : at]
    out: list[tuple[Row, int, int]] = []
    record = scene.picture.record
    if record is not None and not (entries and entries[-1].step == scene.step):
        words = choose(quiet_line(scene, record), max(1, width - 10), theme.glyphs.ellipsis)
        out.append((_row(width, scene.step, words, dim, strong), scene.step, 0))
    for entry in reversed(entries):
        if len(out) == rows:
            break
        words = choose(log_line(scene, entry), max(1, width - 10), theme.glyphs.ellipsis)
        role = theme.style("vermilion") if entry.kind in ("refused", "failed", "broken", "reject_never_fits") else text
        out.append((_row(width, entry.step, words, role, strong), entry.step, entry.key))
    return out


def _row(width: int, step: int, words: str, style: Style, number: Style) -> Row:
    row = RowBuilder(width, number)
    row.right(str(step), min(8, width)).put("  "[: row.left])
    return row.put(words if row.left >= width_of(words) else "", style).done()


def log(scene: Scene, width: int, height: int) -> Panel:
    theme = scene.theme
    head = heading(theme, width, "STEP LOG", [Part((("newest first", theme.style("muted")),))])
    rows, hits = [head], []
    for row, step, _ in log_rows(scene, width, height - 1):
        hits.append(Hit(len(rows), 0, width, "step", step))
        rows.append(row)
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height], hits)

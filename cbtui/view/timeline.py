"""The timeline: one column for one or several steps, marks above, the step shown standing out."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from rich.style import Style

from cbtui.notes import Mark
from cbtui.sentences import count
from cbtui.view.cells import Panel, Part, Row, RowBuilder, Span, heading
from cbtui.view.chrome import Hit
from cbtui.view.scene import Scene

NICE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 25, 30, 35, 40, 50, 60, 75, 100, 150, 200, 300, 400, 500)
_RANK = "N!POXS"


@dataclass(frozen=True, slots=True)
class Columns:
    """Which steps a chart of ``width`` cells shows: cell i holds steps ``first + i*each`` … (exclusive next)."""

    first: int
    last: int
    each: int
    width: int

    def x(self, step: int) -> int:
        return (step - self.first) // self.each

    def steps(self, x: int) -> range:
        start = self.first + x * self.each
        return range(start, min(start + self.each, self.last + 1))

    @property
    def used(self) -> int:
        """Cells that hold steps."""
        return self.x(self.last) + 1


def columns(scene: Scene, width: int, each: int = 0) -> Columns:
    """The kept steps over ``width`` cells; ``each`` steps per cell, 0 fits all of them."""
    series = scene.state.series
    first = series.first if len(series) else scene.state.step
    last = max(scene.state.step, first)
    count = last - first + 1
    if each <= 0:
        # a few of the oldest steps may go: a chart that is filled tells more than one that shows them all
        each = next((n for n in NICE if n * width >= 0.9 * count), -(-count // width))
    shown = each * width
    if count > shown:  # keep the step shown in view, the newest steps when there is a choice
        end = min(last, max(scene.step + shown // 4, first + shown - 1))
        first, last = -(-(end - shown + 1) // each) * each, end
    return Columns(first, last, each, width)


def peaks(scene: Scene, cols: Columns, name: str) -> list[int]:
    """The greatest value in each cell; -1 where nothing is known.

    Cells that are full do not change any more, so those of the frame before are taken over.
    """
    series, asked = scene.state.series, (cols.first % cols.each, cols.each)
    values, first = series[name], series.first
    before = scene.state.memo.get(f"peaks {name}")
    known: list[int] = []
    if before is not None and before[0] == asked and isinstance(before[1], tuple):
        start, full = before[1]
        place = (cols.first - start) // cols.each
        known = full[place : place + cols.used - 1] if place >= 0 else []
    found = known[:]
    for x in range(len(known), cols.used):
        begin = cols.first + x * cols.each - first
        found.append(max(values[max(0, begin) : max(0, begin + cols.each)], default=-1))
    scene.state.memo[f"peaks {name}"] = asked, (cols.first, found[:-1])
    return found


def track(scene: Scene, cols: Columns, name: str, top: int) -> list[float]:
    """The greatest value in each cell as a share of ``top``; -1 where nothing is known."""
    return [best / top if best >= 0 and top > 0 else -1.0 for best in peaks(scene, cols, name)]


def top_of(scene: Scene, cols: Columns, name: str) -> int:
    """The greatest value shown, at least 1."""
    return max([1, *peaks(scene, cols, name)])


def bars(
    scene: Scene, cols: Columns, shares: Sequence[float], rows: int, accents: Sequence[bool] | None = None
) -> list[list[Span]]:
    """Bars of ``rows`` rows, top row first, as pieces of one style; those with an accent stand out."""
    theme, levels = scene.theme, scene.theme.glyphs.levels
    cursor, end = cols.x(scene.step), len(shares)
    past = max(0, min(cursor, end))
    shown = int(0 <= cursor < end)
    usual, accent = theme.style("steel"), theme.style("steel3")
    here, ahead = theme.style("amber" if scene.is_past else "bright"), theme.style("steel2")
    pieces: list[tuple[int, Style]] = []
    if accents is None:
        pieces.append((past, usual))
    else:
        pieces += [(len(list(run)), accent if kind else usual) for kind, run in groupby(accents[:past])]
    pieces += [(shown, here), (end - past - shown, ahead), (cols.width - end, theme.style("text"))]
    heights = [max(1, round(share * 8 * rows)) if share > 0 else 0 for share in shares]
    out: list[list[Span]] = []
    for y in range(rows - 1, -1, -1):
        glyphs = [" "] * (8 * y + 1) + [*levels[:8]] + [levels[7]] * (8 * (rows - y - 1))
        text = "".join([glyphs[height] for height in heights]) + " " * (cols.width - end)
        line, x = [], 0
        for size, style in pieces:
            line.append((text[x : x + size], style))
            x += size
        out.append(line)
    return out


def marks_row(scene: Scene, cols: Columns) -> list[tuple[str, str]]:
    """(letter, style role) per cell; where several fall into one cell the gravest wins."""
    cells: list[tuple[str, str]] = [(" ", "text")] * cols.width
    found: dict[int, str] = {}
    for mark in _shown(scene.state.marks, cols):
        x = cols.x(mark.step)
        if x not in found or _RANK.index(mark.letter) < _RANK.index(found[x]):
            found[x] = mark.letter
    roles = {"P": "amber", "!": "vermilion"}
    for x, letter in found.items():
        cells[x] = (letter, roles.get(letter, "text"))
    if scene.is_past and 0 <= cols.x(scene.step) < cols.width:
        cells[cols.x(scene.step)] = (scene.theme.glyphs.here, "amber")
    return cells


def _shown(marks: Sequence[Mark], cols: Columns) -> list[Mark]:
    start = bisect_left(marks, cols.first, key=_step)
    return list(marks[start : bisect_right(marks, cols.last, key=_step)])


def _step(mark: Mark) -> int:
    return mark.step


def axis(scene: Scene, width: int, indent: int, cols: Columns) -> Row:
    """Step numbers under the chart, and where we are at its right end."""
    theme, glyphs = scene.theme, scene.theme.glyphs
    dim = theme.style("muted")
    row = RowBuilder(width, dim)
    if scene.is_past:
        back = scene.state.step - scene.step
        end, role = f"{glyphs.past} PAST {glyphs.minus}{back} {scene.step}", "amber"
    else:
        words = {
            "held": f"{glyphs.held} PAUSED", "draining": f"{glyphs.more} {'CLOSING' if scene.closes else 'STOPPING'}",
            "stopped": f"{glyphs.parked} STOPPED", "failed": f"{glyphs.failed} FAILED",
        }  # fmt: skip
        end, role = f"{words.get(scene.chrome.engine, f'{glyphs.live} LIVE')} {scene.step}", "bright"
    limit = max(0, min(width, indent + cols.width) - len(end))
    labels: list[tuple[int, str, str]] = []
    every = next(
        n for n in (10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 2500, 5000, 10_000, 10**9) if n >= 11 * cols.each
    )
    starts = [cols.first, *range(every * (cols.first // every + 1), cols.last + 1, every)]
    for step in starts:
        labels.append((indent + cols.x(step), str(step), "muted"))
    mark = scene.chrome.mark
    if mark is not None and cols.first <= mark <= cols.last:
        text = f"A {mark}"
        x = max(indent, indent + cols.x(mark) - len(text) + 1)
        labels = [item for item in labels if item[0] + len(item[1]) < x or item[0] > x + len(text)]
        labels.append((x, text, "text"))
    for x, text, style in sorted(labels):
        if x >= row.used + (1 if row.used > indent else 0) and x + len(text) < limit:
            row.to(x).put(text, theme.style(style))
    return row.to(limit).put(end[:width], theme.style(role, bold=True)).done()


def _cells_row(scene: Scene, width: int, lead: str, cells: Sequence[tuple], tail: Sequence[tuple[str, str]]) -> Row:
    theme = scene.theme
    row = RowBuilder(width, theme.style("text"))
    row.put(lead, theme.style("muted"))
    for style, run in groupby(cells, key=itemgetter(1)):
        text = "".join([glyph for glyph, _ in run])
        row.put(text, style if not isinstance(style, str) else theme.style(style, bold=True))
    for text, role in tail:
        row.put(text[: row.left], theme.style(role, bold=role == "bright"))
    return row.done()


def _head(scene: Scene, width: int, cols: Columns) -> Row:
    theme = scene.theme
    text, dim, strong = theme.style("text"), theme.style("muted"), theme.style("bright", bold=True)
    kept = len(scene.state.series)
    each = "1 cell = 1 step" if cols.each == 1 else f"1 cell = {cols.each} steps"
    facts = [Part(((count(kept, "step") + (" kept" if width >= 150 else ""), text),), 9)]
    if width >= 150:
        facts.append(Part(((each, dim),), 4))
    else:
        facts.append(Part((("height: blocks used, accent: prefill", dim),), 3))
    right = []
    for letter, word, long in (
        ("P", "preempt", ""),
        ("O", "offload", ""),
        ("X", "cancel", ""),
        ("!", "refused", ""),
        ("S", "set", "ting"),
    ):
        right.append((f"{letter} ", strong))
        right.append(
            (word + (long if width >= 150 else "") + ("" if letter == "S" else "  " if width >= 150 else " "), dim)
        )
    return heading(theme, width, "TIMELINE", facts, [Part(tuple(right), 1)])


def timeline(scene: Scene, width: int, height: int) -> Panel:
    """The pane at any height: bars; marks; heading and axis; three tracks from nine rows on."""
    if height >= 9 and width >= 120:
        return _tracks(scene, width, height)
    indent = 1
    cols = columns(scene, max(1, width - 2 * indent))
    top = max(1, scene.picture.num_blocks)
    shares = track(scene, cols, "used", top)
    accents = [best > 0 for best in peaks(scene, cols, "prefill")]
    body = bars(scene, cols, shares, max(1, height - 3) if height >= 4 else 1, accents)
    lead = " " * indent
    rows: list[Row] = []
    if height >= 4:
        rows.append(_head(scene, width, cols))
    if height >= 2:
        rows.append(_cells_row(scene, width, lead, marks_row(scene, cols), ()))
    chart = len(rows)
    rows += [_cells_row(scene, width, lead, line, ()) for line in body]
    if height >= 4:
        rows.append(axis(scene, width, indent, cols))
    charted = range(chart, min(height, chart + len(body)))
    return Panel(rows[:height], lambda: _hits(cols, indent, charted))


def _hits(cols: Columns, indent: int, rows: range) -> list[Hit]:
    ends = [min(cols.first + (x + 1) * cols.each - 1, cols.last) for x in range(min(cols.used, cols.width))]
    return [Hit(y, indent + x, indent + x + 1, "step", end) for y in rows for x, end in enumerate(ends)]


def _tracks(scene: Scene, width: int, height: int) -> Panel:
    theme, state = scene.theme, scene.state
    indent, tail = 13, 11
    cols = columns(scene, width - indent - tail)
    each = max(1, (height - 3) // 3)
    record = scene.picture.record
    budget, queue = top_of(scene, cols, "budget"), top_of(scene, cols, "queue")
    accents = [best > 0 for best in peaks(scene, cols, "prefill")]
    tokens = state.series.at("tokens", scene.step)
    rows = [_head(scene, width, cols)]
    rows.append(_cells_row(scene, width, " " * indent, marks_row(scene, cols), (("  at cursor", "muted"),)))
    chart = len(rows)
    for name, title, top, value, unit, accent in (
        ("tokens", "tokens/step", budget, tokens, f"/{record.budget if record is not None else budget}", None),
        ("used", "blocks used", scene.picture.num_blocks, scene.picture.used, f"/{scene.picture.num_blocks}", accents),
        ("queue", "queue", queue, scene.picture.queued, " wait", None),
    ):
        body = bars(scene, cols, track(scene, cols, name, top), each, accent)
        for y, line in enumerate(body):
            last = y == len(body) - 1
            lead = f" {title:<{indent - 1}}" if last else " " * indent
            shown = str(value) if value >= 0 else "--"
            pad = " " * max(1, 4 - len(shown) + 1)
            end = ((pad + shown, "bright"), (unit, "muted")) if last else ()
            rows.append(_cells_row(scene, width, lead, line, end))
    charted = range(chart, min(height, len(rows)))
    rows.append(axis(scene, width, indent, cols))
    while len(rows) < height:
        rows.append(RowBuilder(width, theme.style("text")).done())
    return Panel(rows[:height], lambda: _hits(cols, indent, charted))

"""Mode 4: every request over the steps, as a Gantt chart."""

from rich.style import Style

from cbtui.letters import cut_label
from cbtui.sentences import count, seconds
from cbtui.stories import OPEN, Story
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, heading, keep_parts
from cbtui.view.chrome import Hit
from cbtui.view.requests import GONE, Line, glyph_of, matches
from cbtui.view.scene import Scene
from cbtui.view.timeline import Columns, axis, bars, columns, marks_row, top_of, track

GUTTER, TAIL = 7, 23
_PHASE = {"queued": 0, "preempted": 1, "stalled": 2, "offloaded": 3, "decode": 4, "prefill": 5}


def gantt_lines(scene: Scene) -> list[Line]:
    """All requests that had arrived, in order of arrival (or as the person ordered them)."""
    found = [
        Line(story, scene.state_of(story))
        for story in scene.state.stories.values()
        if 0 <= story.arrived <= scene.step and matches(scene, story)
    ]
    if scene.chrome.order == "progress":
        return sorted(found, key=lambda line: -line.story.output_at(scene.step))
    if scene.chrome.order == "blocks":
        return sorted(found, key=lambda line: -line.story.peak_blocks)
    return sorted(found, key=lambda line: line.story.number)


def gantt(scene: Scene, width: int, height: int) -> Panel:
    theme = scene.theme
    tail = TAIL if width >= 100 else 8 if width >= 60 else 0
    cols = columns(scene, max(8, width - GUTTER - tail), scene.chrome.zoom)
    found = gantt_lines(scene)
    tracks = 2 if height >= 20 else 0
    foot = 3 if height >= 24 else 0
    room = max(1, height - 1 - tracks - 1 - 1 - foot)
    first = _first(scene, found, room)
    rows: list[Row] = [_head(scene, width, len(found), cols, tail)]
    if tracks:
        rows += _tracks(scene, width, cols, tail)
    rows.append(_marks(scene, width, cols))
    hits: list[Hit] = []
    for line in found[first : first + room]:
        hits.append(Hit(len(rows), 0, GUTTER, "request", line.story.key))
        hits.append(Hit(len(rows), GUTTER, width, "request", line.story.key))
        rows.append(_request(scene, line, width, cols, tail))
    rows += [blank(theme, width)] * (1 + tracks + 1 + room - len(rows))
    rows.append(axis(scene, width, GUTTER, cols))
    if foot:
        rows += [blank(theme, width), _story(scene, width), *_legend(scene, width)]
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height], hits)


def _first(scene: Scene, found: list[Line], room: int) -> int:
    first = max(0, min(scene.chrome.scroll.get("gantt", 0), len(found) - room))
    at = next((i for i, line in enumerate(found) if line.story.key == scene.chrome.selected), None)
    if at is None:
        return max(first, len(found) - room) if "gantt" not in scene.chrome.scroll else first
    return min(at, first) if at < first else max(first, at - room + 1)


def _head(scene: Scene, width: int, shown: int, cols: Columns, tail: int) -> Row:
    theme = scene.theme
    dim, text = theme.style("muted"), theme.style("text")
    steps = cols.last - cols.first + 1
    facts = [
        Part(((f"{count(shown, 'request')} {theme.glyphs.times} {count(steps, 'step')}", text),), 9),
        Part(((f"1 cell = {count(cols.each, 'step')}", dim),), 3),
    ]
    right = [Part((("  waited tokens blocks", dim),))] if tail == TAIL else []
    return heading(theme, width, "TIMELINE", facts, right)


def _tracks(scene: Scene, width: int, cols: Columns, tail: int) -> list[Row]:
    theme, series = scene.theme, scene.state.series
    dim = theme.style("muted")
    out = []
    for name, title, top, unit in (
        ("tokens", "tok", top_of(scene, cols, "budget"), ""),
        ("used", "blk", max(1, scene.picture.num_blocks), ""),
    ):
        shares = track(scene, cols, name, top)
        row = RowBuilder(width, theme.style("text")).put(f" {title}".ljust(GUTTER), dim)
        row.spans(bars(scene, cols, shares, 1)[0])
        if tail == TAIL:
            peak = max(series[name], default=-1)
            row.put("  ").put("peak ", dim).put(str(peak) if peak >= 0 else "--", theme.style("bright", bold=True))
            row.put(f" of {top}{unit}", dim)
        out.append(row.done())
    return out


def _marks(scene: Scene, width: int, cols: Columns) -> Row:
    theme = scene.theme
    row = RowBuilder(width, theme.style("text")).to(GUTTER)
    for letter, role in marks_row(scene, cols):
        row.put(letter, theme.style(role, bold=True))
    return row.done()


def _request(scene: Scene, line: Line, width: int, cols: Columns, tail: int) -> Row:
    theme, glyphs, story = scene.theme, scene.theme.glyphs, line.story
    selected = scene.chrome.selected == story.key
    bg = "select" if selected else "bg"
    row = RowBuilder(width, theme.style("text", bg))
    row.put(glyphs.cursor if selected else " ", theme.style("bright", bg, bold=True))
    alive = line.state not in GONE
    name = f" {story.label} " if len(story.label) == 1 else cut_label(story.label, 3, glyphs.ellipsis).ljust(3)
    bad = line.state in ("refused", "failed")
    style = theme.tile(story.hue, "head") if alive else theme.tile(story.hue, "bold", bg)
    row.put(name, theme.style("vermilion", bg, bold=True) if bad else style)
    glyph = glyph_of(glyphs, line.state)
    role = "amber" if line.state == "waiting" else "vermilion" if bad else "muted"
    row.put(f" {glyph} ", theme.style(role, bg))
    for text, cell_style in _cells(scene, story, cols, bg):
        row.put(text, cell_style)
    if tail == TAIL:
        _figures(scene, line, row, bg)
    elif tail:
        row.right(str(story.output_at(scene.step)), min(tail, row.left), theme.style("text", bg))
    return row.done()


def _cells(scene: Scene, story: Story, cols: Columns, bg: str) -> list[tuple[str, Style]]:
    """The chart of one request, one entry per cell."""
    theme, glyphs, hue = scene.theme, scene.theme.glyphs, story.hue
    empty = theme.style("rule", bg)
    grid = max(1, 50 // cols.each)
    cells = []
    for x in range(cols.width):
        on_grid = x and (cols.first + x * cols.each) // 50 != (cols.first + (x - 1) * cols.each) // 50 and grid > 4
        cells.append((glyphs.gantt_grid if on_grid else " ", empty))
    waits = theme.style("amber" if story.started < 0 else "muted", bg)
    ranks = [-1] * cols.width
    line, bar = theme.tile(hue, "text", bg), theme.tile(hue, "bar", bg)
    for phase in story.phases:
        end = min(phase.end, scene.step, cols.last)
        if end < cols.first or phase.start > scene.step:
            continue
        look = {"prefill": (glyphs.gantt_prefill, bar), "decode": (glyphs.gantt_decode, line),
                "offloaded": (glyphs.gantt_off, line), "stalled": (glyphs.free, theme.style("muted", bg))}  # fmt: skip
        glyph, style = look.get(phase.kind, (glyphs.free, waits))
        for x in range(max(0, cols.x(max(phase.start, cols.first))), min(cols.x(end), cols.width - 1) + 1):
            if _PHASE[phase.kind] >= ranks[x]:
                ranks[x] = _PHASE[phase.kind]
                cells[x] = (glyph, style)
    _events(scene, story, cols, cells, bg)
    return cells


def _events(scene: Scene, story: Story, cols: Columns, cells: list[tuple[str, Style]], bg: str) -> None:
    theme, glyphs = scene.theme, scene.theme.glyphs
    hue = theme.tile(story.hue, "text", bg)
    signs = {
        "offload": (glyphs.out, hue), "restore": (glyphs.back, hue),
        "recompute": ("P", theme.style("amber", bg, bold=True)),
        "cancelled": (glyphs.cancelled, theme.style("bright", bg, bold=True)),
        "finished": (glyphs.gantt_end, hue),
        "failed": (glyphs.failed, theme.style("vermilion", bg, bold=True)),
    }  # fmt: skip
    for event in story.events:
        if event.kind in signs and cols.first <= event.step <= min(scene.step, cols.last):
            x = cols.x(event.step)
            if x < cols.width:
                cells[x] = signs[event.kind]
    if story.is_refused and cols.first <= story.arrived <= min(scene.step, cols.last):
        cells[cols.x(story.arrived)] = (glyphs.refused, theme.style("vermilion", bg, bold=True))


def _figures(scene: Scene, line: Line, row: RowBuilder, bg: str) -> None:
    theme, story = scene.theme, line.story
    waited = story.seconds("queued", scene.now) + story.seconds("preempted", scene.now)
    waiting = line.state == "waiting"
    alive = line.state not in GONE
    plain = theme.style("text" if alive else "muted", bg)
    word = "--" if story.is_refused else f"{waited:.1f}s" if waited >= 0.05 else theme.glyphs.free
    row.right(word, 9, theme.style("amber", bg) if waiting else plain)
    tokens = story.output_at(scene.step)
    row.right(str(tokens) if tokens else "--", 7, plain)
    row.right(str(story.peak_blocks) if story.peak_blocks else "--", row.left, plain)


def _story(scene: Scene, width: int) -> Row:
    """One sentence about the selected request."""
    theme = scene.theme
    story = scene.state.story(scene.chrome.selected) if scene.chrome.selected is not None else None
    row = RowBuilder(width, theme.style("muted"))
    if story is None:
        return row.done()
    row.put(" ").put(f" {story.label} "[: row.left], theme.tile(story.hue, "head")).put("  "[: row.left])
    return row.put(choose(story_sentence(scene, story), row.left, theme.glyphs.ellipsis)).done()


def story_sentence(scene: Scene, story: Story) -> tuple[str, ...]:
    """Arrival, wait, start and first token in words."""
    if story.is_refused:
        return (f"refused at {story.arrived}: {story.refusal}", f"refused at {story.arrived}")
    behind = f" behind {scene.labels(story.behind, 3)}" if story.behind else ""
    lead = f"arrived at {story.arrived}{behind}"
    if story.started < 0 or story.started > scene.step:
        waits = count(scene.step - story.arrived, "step")
        return (f"{lead}, has waited {waits}, not started yet", f"{lead}, waits {waits}")
    cached = story.change.cached_tokens if story.change is not None else 0
    hit = f" with {cached} of {story.prompt_tokens} prompt tokens from the cache" if cached else ""
    waited = f", waited {count(story.started - story.arrived, 'step')}" if story.started > story.arrived else ""
    first = story.ttft(scene.step)
    tail = f", ttft {seconds(first)}" if first is not None else ""
    end = ""
    if 0 <= story.ended <= scene.step:
        end = f", ended at {story.ended}"
    moves = sum(1 for e in story.events if e.kind in ("offload", "recompute") and e.step <= scene.step)
    lost = f", lost its place {count(moves, 'time')}" if moves else ""
    return (
        f"{lead}{waited}, started at {story.started}{hit}{tail}{lost}{end}",
        f"{lead}{waited}, started at {story.started}{tail}{lost}{end}",
        f"started at {story.started}{tail}{end}",
    )


def _legend(scene: Scene, width: int) -> list[Row]:
    theme, glyphs = scene.theme, scene.theme.glyphs
    dim = theme.style("muted")
    story = scene.state.story(scene.chrome.selected) if scene.chrome.selected is not None else None
    hue = story.hue if story is not None else 0
    line, bar = theme.tile(hue, "text"), theme.tile(hue, "bar")
    items = (
        (glyphs.free * 3, dim, "waiting"), (glyphs.gantt_prefill * 2, bar, "prefill"),
        (glyphs.gantt_decode * 3, line, "decode"), (glyphs.out, line, "to CPU"), (glyphs.gantt_off * 2, line, "on CPU"),
        (glyphs.back, line, "back"), ("P", theme.style("amber", bold=True), "preempted"),
        (glyphs.gantt_end, line, "finished"), (glyphs.cancelled, theme.style("bright", bold=True), "cancelled"),
        (glyphs.refused, theme.style("vermilion", bold=True), "refused"),
    )  # fmt: skip
    parts = [Part(((sign, style), (f" {word}", dim)), 20 - i) for i, (sign, style, word) in enumerate(items)]
    row = RowBuilder(width, theme.style("text")).put(" ")
    for index, part in enumerate(keep_parts(parts, width - 2, 2)):
        row.put("  " if index else "").spans(part.spans)
    return [row.done()]


def is_open(story: Story) -> bool:
    """Whether its last phase still lasts."""
    return bool(story.phases) and story.phases[-1].end == OPEN

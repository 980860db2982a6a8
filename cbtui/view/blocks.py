"""The block map: who holds which block of the pool, in owner order or in physical order, and the legend beside it."""

from collections import Counter

from rich.style import Style

from cbtui.view.cells import Panel, Part, Row, RowBuilder, Span, blank, heading
from cbtui.view.chrome import Hit
from cbtui.view.difference import difference_of
from cbtui.view.legend import equation, gauge, legend
from cbtui.view.plaincells import Cell
from cbtui.view.scene import Scene
from cbtui.view.tiles import Painter, Shape, owner_order, shape


def order_of(scene: Scene, width: int) -> str:
    """ "owner" or "physical": what the person chose, else what suits the size and the moment."""
    if scene.chrome.map_order in ("owner", "physical"):
        return scene.chrome.map_order
    return "physical" if scene.is_past or width >= 198 else "owner"


def map_rows(scene: Scene, width: int, rows: int, *, gutter: bool, tiles: bool, order: str) -> Panel:
    """The map itself, without heading and legend."""
    picture, theme = scene.picture, scene.theme
    plan = shape(picture.num_blocks, width, rows, gutter=gutter, tiles=tiles)
    numbers = owner_order(scene) if order == "owner" else list(range(1, picture.num_blocks + 1))
    margin_from = (
        max(0, len(numbers) - scene.margin) if order == "owner" and scene.chrome.map_view == "owner" else len(numbers)
    )
    cells = _cells(scene, numbers, margin_from, plan.per_cell)
    changed = _highlight(scene)
    out: list[Row] = []
    starts: list[int] = []
    previous: object = None
    tile, chosen = plan.tile, scene.chrome.block
    for y in range(plan.rows):
        row = RowBuilder(width, theme.style("muted"))
        if plan.gutter:
            row.right(str(y * plan.columns * plan.per_cell), plan.gutter - 1).put(" ")
        elif width > 2:
            row.put(" ")
        starts.append(row.used)
        texts: list[str] = []
        styles: list[Style] = []
        line = cells[y * plan.columns : (y + 1) * plan.columns]
        for x, cell in enumerate(line):
            style = cell.bright if x == 0 or cell.run != previous else cell.style
            if changed is not None or cell.block == chosen:
                style = _focus(scene, cell, changed)
            previous = cell.run
            styles.append(style)
            if tile == 1:
                texts.append(cell.glyph)
            elif cell.fill is None or (changed is not None and cell.block not in changed):
                texts.append(cell.glyph + cell.second)
            else:
                texts += (cell.glyph, cell.second)
                styles.append(cell.fill)
        out.append(row.cells(texts, styles, tile * len(line)).done())

    def hits() -> list[Hit]:
        return [
            Hit(y, start + x * tile, start + (x + 1) * tile, "block", cell.block)
            for y, start in enumerate(starts)
            for x, cell in enumerate(cells[y * plan.columns : (y + 1) * plan.columns])
        ]

    return Panel(out, hits)


def _cells(scene: Scene, numbers: list[int], margin_from: int, per_cell: int) -> list[Cell]:
    cell = Painter(scene).cell
    every = [cell(number) for number in numbers[:margin_from]]
    every += [cell(number, "amber_on") for number in numbers[margin_from:]]
    if per_cell == 1:
        return every
    cells = []
    for start in range(0, len(every), per_cell):
        group = every[start : start + per_cell]
        runs = [one.run for one in group]
        common = runs[0] if runs.count(runs[0]) * 2 >= len(runs) else Counter(runs).most_common(1)[0][0]
        cells.append(group[runs.index(common)])
    return cells


def _highlight(scene: Scene) -> set[int] | None:
    """Blocks that keep their colour in the past: those that differ from the mark, else those the step changed."""
    if not scene.is_past:
        return None
    if scene.chrome.mark is not None:
        return set(difference_of(scene).changed)
    return scene.picture.moves.changed


def _focus(scene: Scene, cell: Cell, changed: set[int] | None) -> Style:
    """The style of a cell that is selected, or of any while only what changed is bright."""
    if scene.chrome.block == cell.block:
        return scene.theme.style("on_ink", "on", bold=True, underline=True)
    if changed is not None and cell.block not in changed:
        return scene.theme.style("muted" if scene.picture.blocks[cell.block].state == "owned" else "faint")
    return cell.bright


def blocks(scene: Scene, width: int, height: int, *, screen_width: int, legend_rows: int = 1, tiles: bool = False,
           with_gauge: bool = False) -> Panel:  # fmt: skip
    """The pane: heading, gauge, map, legend."""
    theme = scene.theme
    order = order_of(scene, screen_width)
    gutter = screen_width >= 100
    used = 1 + (2 if with_gauge else 0) + legend_rows
    rows = max(1, height - used)
    plan = shape(scene.picture.num_blocks, width, rows, gutter=gutter, tiles=tiles)
    head = heading(theme, width, "KV BLOCKS", _facts(scene, width), _notes(scene, plan, order, screen_width))
    out: list[Row] = [head]
    if with_gauge:
        out += gauge(scene, width - (width - plan.gutter - plan.columns * plan.tile), plan.gutter)
        out = [out[0], *(_pad(row, width, scene) for row in out[1:])]
    body = map_rows(scene, width, rows, gutter=gutter, tiles=tiles, order=order)
    top = len(out)
    out += body.rows
    indent = plan.gutter if gutter else 1
    out += legend(scene, width, legend_rows, indent, long=legend_rows > 1, numbers=screen_width >= 100,
                  margin=order == "owner") if legend_rows else []  # fmt: skip
    out += [blank(theme, width)] * (height - len(out))


    def hits() -> list[Hit]:
        return [Hit(h.y + top, h.x0, h.x1, h.kind, h.value) for h in body.hits if h.y + top < height]

    return Panel(out[:height], hits)


def _pad(row: Row, width: int, scene: Scene) -> Row:
    builder = RowBuilder(width, scene.theme.style("text"))
    for segment in row:
        builder.put(segment.text, segment.style)
    return builder.done()


def _facts(scene: Scene, width: int) -> list[Part]:
    theme = scene.theme
    parts = equation(scene)
    if sum(len(text) for text, _ in parts) + 11 > width:
        strong, dim = theme.style("bright", bold=True), theme.style("muted")
        parts = ((f"{scene.picture.used}/{scene.picture.num_blocks}", strong), (" used", dim))
    facts = [Part(parts, 9)]
    if width >= 90 and scene.hybrid:
        full = sum(1 for b in scene.picture.blocks if b.state == "owned" and not scene.picture.is_window(b.group))
        text = f"used = {full} full + {scene.picture.used - full} window"
        facts.append(Part(((text, scene.theme.style("muted")),), 3))
    return facts


def _notes(scene: Scene, plan: Shape, order: str, screen_width: int) -> list[Part]:
    """Right side of the heading; what a tile is goes first where there is no room."""
    note = Part(_note(scene, plan, order, screen_width), 1)
    if plan.tile != 2 or scene.is_past or (screen_width < 100 and scene.picture.host):
        return [note]
    return [Part((("1 tile = 1 block", scene.theme.style("muted")),), 0), note]


def _note(scene: Scene, plan: Shape, order: str, screen_width: int) -> tuple[Span, ...]:
    """Right side of the heading: what a cell is, and what is bright in the past."""
    theme, chrome = scene.theme, scene.chrome
    dim = theme.style("muted")
    changed = _highlight(scene)
    words = "by owner" if order == "owner" else "physical order"
    if changed is not None and screen_width >= 100:
        return ((f"{words.removesuffix(' order')}: ", dim), (f"{len(changed)} changed", theme.style("amber")))
    if screen_width < 100 and scene.picture.host:
        pool = f"CPU {scene.picture.host_used}/{len(scene.picture.host)}"
        return (((f"{words}  {pool}" if order != "owner" else pool), dim),)
    if plan.per_cell > 1:
        words = f"1 cell = {plan.per_cell} blocks, {words}"
    if chrome.map_view != "owner":
        words = f"{chrome.map_view}, {words}"
    return ((words, dim),)

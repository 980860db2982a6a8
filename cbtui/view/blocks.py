"""The block map: who holds which block of the pool, in owner order or in physical order, and the legend beside it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style

from cbtui.letters import cell_letter
from cbtui.picture import Live
from cbtui.view.cells import Panel, Part, Row, RowBuilder, Span, blank, heading, keep_parts
from cbtui.view.chrome import Hit
from cbtui.view.difference import difference_of
from cbtui.view.hud import bar_cells
from cbtui.view.scene import Scene
from engine.core.observe import BlockView

AGE_STEPS = (0, 4, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class Cell:
    """One block as it is drawn: a glyph, what a second cell would say, a style, and the run it belongs to."""

    glyph: str
    second: str
    style: Style
    run: object
    block: int


def order_of(scene: Scene, width: int) -> str:
    """"owner" or "physical": what the person chose, else what suits the size and the moment."""
    if scene.chrome.map_order in ("owner", "physical"):
        return scene.chrome.map_order
    return "physical" if scene.is_past or width >= 198 else "owner"


def class_counts(scene: Scene) -> Counter[str]:
    """How many blocks are "full", "window", "shared", "shared_window", "back", "cached", "free" (they add up)."""
    picture, counts = scene.picture, Counter[str]()
    for number in range(1, len(picture.blocks)):
        counts[_class(scene, number, picture.blocks[number])] += 1
    return counts


def _class(scene: Scene, number: int, block: BlockView) -> str:
    if block.state != "owned":
        return block.state
    window = scene.picture.is_window(block.group)
    if len(block.owners) > 1:
        return "shared_window" if window else "shared"
    if number in scene.picture.moves.back_blocks:
        return "back"
    return "window" if window else "full"


def owner_order(scene: Scene) -> list[int]:
    """Block ids grouped by owner: shared ones, each sequence (full, then window), cached, free; leaving ones first."""
    picture = scene.picture
    blocks = picture.blocks
    rank = {"cached": 1 << 40, "free": 1 << 41}

    def place(number: int) -> tuple[int, int, int, int]:
        block = blocks[number]
        if block.state != "owned":
            leaving = number not in picture.moves.out_blocks
            return rank[block.state], int(leaving), 0, number
        if len(block.owners) > 1:
            return -1, int(picture.is_window(block.group)), block.owners[0][0], block.owners[0][1]
        seq, index = block.owners[0]
        return seq, block.group, index, number

    return sorted(range(1, len(blocks)), key=place)


def last_fill(scene: Scene, live: Live, group: int, index: int) -> int:
    """Eighths of a block that hold tokens, 1 … 8, for the entry at ``index`` of a table."""
    page = scene.picture.page_size
    tokens = min(page, max(0, live.change.computed - index * page))
    return max(1, -(-tokens * 8 // page)) if tokens else 1


def cell_of(scene: Scene, number: int, ground: str = "bg") -> Cell:
    """How one block looks in the chosen view."""
    if scene.chrome.map_view != "owner":
        return _plain_cell(scene, number, ground)
    picture, theme, glyphs = scene.picture, scene.theme, scene.theme.glyphs
    block = picture.blocks[number]
    if block.state != "owned":
        leaver = picture.moves.out_blocks.get(number)
        if leaver is not None:
            letter = cell_letter(scene.label(leaver), small=picture.is_window(block.group))
            return Cell(glyphs.out, letter, theme.tile(scene.hue(leaver), "transit"), ("out", leaver), number)
        amber = ground != "bg"
        if block.state == "cached":
            return Cell(glyphs.cached, " ", theme.style("amber" if amber else "muted", ground), ("cached", amber), number)
        return Cell(glyphs.free, " ", theme.style("amber" if amber else "faint", ground), ("free", amber), number)
    window = picture.is_window(block.group)
    if len(block.owners) > 1:
        glyph = glyphs.shared_window if window else glyphs.shared
        references = str(len(block.owners)) if len(block.owners) < 10 else "+"
        return Cell(glyph, references, theme.style("share_ink", "share", bold=True), ("shared", window), number)
    seq, index = block.owners[0]
    hue, letter = scene.hue(seq), cell_letter(scene.label(seq), small=window)
    if number in picture.moves.back_blocks:
        return Cell(glyphs.back, letter, theme.tile(hue, "transit"), ("back", seq), number)
    second = " "
    live = scene.live(seq)
    if live is not None and index == len(live.tables[block.group]) - 1:
        second = glyphs.levels[last_fill(scene, live, block.group, index) - 1]
    return Cell(letter, second, theme.tile(hue, "window" if window else "body"), (seq, window), number)


def _plain_cell(scene: Scene, number: int, ground: str) -> Cell:
    """The views that do not show owners: state, fill, age, references."""
    picture, theme, glyphs = scene.picture, scene.theme, scene.theme.glyphs
    block = picture.blocks[number]
    view = scene.chrome.map_view
    if block.state == "free":
        return Cell(glyphs.free, " ", theme.style("faint", ground), "free", number)
    if block.state == "cached" and view != "age":
        return Cell(glyphs.cached, " ", theme.style("muted", ground), "cached", number)
    if view == "refs":
        references = len(block.owners)
        glyph = str(references) if references < 10 else "+"
        style = theme.style("bright" if references > 1 else "steel", "bg", bold=references > 1)
        return Cell(glyph, " ", style, ("refs", references), number)
    if view == "fill":
        fill = max((_entry_fill(scene, block, owner) for owner in block.owners), default=8)
        return Cell(glyphs.levels[fill - 1], " ", theme.style("steel", "bg"), ("fill", fill), number)
    if view == "age":
        age = scene.step - block.last_use
        level = sum(1 for bound in AGE_STEPS if age > bound)
        glyph = glyphs.levels[7 - level]
        return Cell(glyph, " ", theme.style("steel3" if level < 2 else "steel", "bg"), ("age", level), number)
    group = block.group
    names = "FWXYZ" if not glyphs.unicode else "█▓▒░▚"
    return Cell(names[min(group, 4)], " ", theme.style("steel" if block.published else "steel3", "bg"), group, number)


def _entry_fill(scene: Scene, block: BlockView, owner: tuple[int, int]) -> int:
    live = scene.live(owner[0])
    if live is None:
        return 8
    page = scene.picture.page_size
    tokens = min(page, max(0, live.change.computed - owner[1] * page))
    return max(1, -(-tokens * 8 // page))


@dataclass(frozen=True, slots=True)
class Shape:
    """How a pool is laid out: ``columns`` tiles of ``tile`` cells in a row, ``per_cell`` blocks in one tile."""

    columns: int
    tile: int
    per_cell: int
    rows: int
    gutter: int


def shape(num_blocks: int, width: int, rows: int, *, gutter: bool, tiles: bool) -> Shape:
    """The layout of ``num_blocks`` in ``width`` x ``rows`` cells.

    Rows start at multiples of 16 where a gutter shows their first block. Two-cell tiles are used when asked and when
    all blocks fit; when even single cells are too few, each stands for as many blocks as it takes.
    """
    digits = max(3, len(str(num_blocks))) + 1 if gutter else 0
    room = max(1, width - digits if gutter else width - 2)

    def even(cells: int) -> int:
        return cells - cells % 16 if cells >= 16 and gutter else cells

    double = even(room // 2)
    if tiles and double * rows >= num_blocks:
        return Shape(double, 2, 1, -(-num_blocks // double), digits)
    single = even(room)
    per_cell = max(1, -(-num_blocks // (single * rows)))
    cells = -(-num_blocks // per_cell)
    return Shape(single, 1, per_cell, min(rows, -(-cells // single)), digits)


def map_rows(scene: Scene, width: int, rows: int, *, gutter: bool, tiles: bool, order: str) -> Panel:
    """The map itself, without heading and legend."""
    picture, theme = scene.picture, scene.theme
    plan = shape(picture.num_blocks, width, rows, gutter=gutter, tiles=tiles)
    numbers = owner_order(scene) if order == "owner" else list(range(1, picture.num_blocks + 1))
    margin_from = len(numbers) - scene.margin if order == "owner" and scene.chrome.map_view == "owner" else len(numbers)
    cells = _cells(scene, numbers, margin_from, plan.per_cell)
    changed = _highlight(scene)
    out: list[Row] = []
    hits: list[Hit] = []
    previous: object = None
    for y in range(plan.rows):
        part = cells[y * plan.columns : (y + 1) * plan.columns]
        row = RowBuilder(width, theme.style("muted"))
        if plan.gutter:
            row.right(str(y * plan.columns * plan.per_cell), plan.gutter - 1).put(" ")
        elif width > 2:
            row.put(" ")
        for x, cell in enumerate(part):
            first = cell.run != previous or x == 0
            previous = cell.run
            style = _focus(scene, cell, changed, first=first)
            text = cell.glyph if plan.tile == 1 else cell.glyph + cell.second
            hits.append(Hit(y, row.used, row.used + plan.tile, "block", cell.block))
            row.put(text, style)
        out.append(row.done())
    return Panel(out, hits)


def _cells(scene: Scene, numbers: list[int], margin_from: int, per_cell: int) -> list[Cell]:
    ground = [("amber_on" if place >= margin_from else "bg") for place in range(len(numbers))]
    if per_cell == 1:
        return [cell_of(scene, number, ground[place]) for place, number in enumerate(numbers)]
    cells = []
    for start in range(0, len(numbers), per_cell):
        group = [cell_of(scene, numbers[i], ground[i]) for i in range(start, min(start + per_cell, len(numbers)))]
        common = Counter(cell.run for cell in group).most_common(1)[0][0]
        cells.append(next(cell for cell in group if cell.run == common))
    return cells


def _highlight(scene: Scene) -> set[int] | None:
    """Blocks that keep their colour in the past: those that differ from the mark, else those the step changed."""
    if not scene.is_past:
        return None
    if scene.chrome.mark is not None:
        return set(difference_of(scene).changed)
    return scene.picture.moves.changed


def _focus(scene: Scene, cell: Cell, changed: set[int] | None, *, first: bool) -> Style:
    """The style of a cell, given what the person looks at."""
    theme, chrome = scene.theme, scene.chrome
    if chrome.block == cell.block:
        return theme.style("on_ink", "on", bold=True, underline=True)
    block = scene.picture.blocks[cell.block]
    if changed is not None and cell.block not in changed:
        return theme.style("muted" if block.state == "owned" else "faint")
    if chrome.map_view != "owner" or block.state != "owned" or len(block.owners) != 1:
        return cell.style
    if cell.block in scene.picture.moves.back_blocks:
        return cell.style
    seq = block.owners[0][0]
    window = scene.picture.is_window(block.group)
    bright = first or seq == chrome.selected or changed is not None
    if not bright:
        return cell.style
    return theme.tile(scene.hue(seq), "window_head" if window else "head")


def equation(scene: Scene) -> tuple[Span, ...]:
    """``384 = 315 used + 39 cached + 30 free``."""
    theme, picture = scene.theme, scene.picture
    strong, dim, text = theme.style("bright", bold=True), theme.style("muted"), theme.style("text")
    return (
        (str(picture.num_blocks), strong), (" = ", dim), (f"{picture.used} used", text), (" + ", dim),
        (f"{picture.cached} cached", text), (" + ", dim), (f"{picture.free} free", text),
    )  # fmt: skip


def legend_parts(scene: Scene, *, long: bool, numbers: bool, margin: bool) -> list[Part]:
    """What the glyphs mean, with how many there are."""
    theme, glyphs, counts = scene.theme, scene.theme.glyphs, class_counts(scene)
    dim = theme.style("muted")
    hue = scene.hue(scene.chrome.selected) if scene.chrome.selected in scene.picture.sequences else _some_hue(scene)
    parts: list[Part] = []

    def add(key: str, spans: tuple[Span, ...], words: str, priority: int, *, always: bool = False) -> None:
        number = counts[key] if key in counts else 0
        if not number and not always:
            return
        count = f" {number} " if numbers or not always else " "
        parts.append(Part((*spans, (f"{count}{words}", dim)), priority))

    full, window = theme.tile(hue, "head"), theme.tile(hue, "window_head")
    kinds = scene.hybrid or not any(w is not None for w in scene.picture.windows)
    tile = (("A", full), ("A", theme.tile(hue, "body")))
    small = (("a", window), ("a", theme.tile(hue, "window")))
    if kinds:
        add("full", tile, "full attention" if long else "full", 9, always=True)
    if any(w is not None for w in scene.picture.windows):
        add("window", small, "sliding window" if long else "window", 8, always=True)
    shares = theme.style("share_ink", "share", bold=True)
    most = max((len(b.owners) for b in scene.picture.blocks), default=0)
    shared_by = f"shared by {most}" if numbers else "shared"
    add("shared", ((f"{glyphs.shared}{most}" if long else glyphs.shared, shares),), shared_by, 7)
    add("shared_window", ((glyphs.shared_window, shares),), "shared, window", 6)
    leaving = len(scene.picture.moves.out_slots)
    if leaving:
        spans = ((glyphs.out, theme.tile(_mover_hue(scene, out=True), "transit")), (f" {leaving} to CPU", dim))
        parts.append(Part(spans, 7))
    back = ((glyphs.back, theme.tile(_mover_hue(scene, out=False), "transit")),)
    add("back", back, "back from CPU" if long else "back", 7)
    add("cached", ((glyphs.cached, dim),), "cached, evictable" if long else "cached", 5, always=True)
    add("free", ((glyphs.free, theme.style("muted")),), "free", 4, always=True)
    if margin and scene.margin:
        amber = theme.style("amber", "amber_on")
        parts.append(Part(((glyphs.cached + glyphs.free, amber), (f" {scene.margin} margin", dim)), 6))
    if long:
        parts.append(Part((("A", theme.tile(hue, "head")), (glyphs.levels[4], theme.tile(hue, "body")),
                           (" last block, 5/8 full", dim)), 1))  # fmt: skip
    return parts


def _some_hue(scene: Scene) -> int:
    return scene.hue(next(iter(scene.picture.sequences), 0))


def _mover_hue(scene: Scene, *, out: bool) -> int:
    moved = scene.picture.moves.out_slots if out else scene.picture.moves.back_slots
    return scene.hue(next(iter(moved.values()), 0))


def legend(scene: Scene, width: int, rows: int, indent: int, *, long: bool, numbers: bool, margin: bool) -> list[Row]:
    """The legend on ``rows`` lines."""
    parts = legend_parts(scene, long=long, numbers=numbers, margin=margin)
    gap = 3 if long else 2
    room, theme = width - indent, scene.theme
    while parts and rows == 1 and len(keep_parts(parts, room, gap)) < len(parts):
        parts = keep_parts(parts, room, gap)
    lines: list[list[Part]] = [[]]
    for part in parts:
        used = sum(p.width + gap for p in lines[-1])
        if lines[-1] and used + part.width > room:
            if len(lines) == rows:
                continue
            lines.append([])
        if part.width <= room:
            lines[-1].append(part)
    out = []
    for line in lines:
        row = RowBuilder(width, theme.style("text")).to(indent)
        for index, part in enumerate(line):
            row.put(" " * gap if index else "").spans(part.spans)
        out.append(row.done())
    return out + [blank(theme, width)] * (rows - len(out))


def gauge(scene: Scene, width: int, indent: int) -> list[Row]:
    """Used, cached and free as one bar, and the margin bracketed under it (two rows)."""
    theme, picture, glyphs = scene.theme, scene.picture, scene.theme.glyphs
    room = width - indent
    total = max(1, picture.num_blocks)
    used = round(room * picture.used / total)
    cached = round(room * (picture.used + picture.cached) / total) - used
    label = f" {picture.used} used" if used > 12 else ""
    row = RowBuilder(width, theme.style("text")).to(indent)
    row.put(label, theme.style("on_ink" if theme.kind == "mono" else "ink", "steel"))
    if glyphs.unicode:
        row.put(" " * (used - len(label)), theme.style("ink", "steel"))
    else:
        row.put("#" * (used - len(label)), theme.style("steel"))
    row.put(glyphs.cached * cached, theme.style("steel", "steel2")).put(glyphs.free * (room - used - cached),
                                                                         theme.style("faint"))  # fmt: skip
    rows = [row.done()]
    share = scene.number("safety_margin")
    bracket = RowBuilder(width, theme.style("muted"))
    cells = round(room * scene.margin / total)
    if cells >= 2 and share is not None:
        text = f"usable {picture.usable}, the last {scene.margin} are the {share * 100:.0f}% safety margin "
        start = width - cells
        if start - len(text) >= indent:
            bracket.to(start - len(text)).put(text)
        bracket.to(start).put(glyphs.bracket_left + glyphs.bracket * (cells - 2) + glyphs.bracket_right,
                              theme.style("amber"))  # fmt: skip
    rows.append(bracket.done())
    return rows


def blocks(scene: Scene, width: int, height: int, *, screen_width: int, legend_rows: int = 1, tiles: bool = False,
           with_gauge: bool = False) -> Panel:  # fmt: skip
    """The pane: heading, gauge, map, legend."""
    theme = scene.theme
    order = order_of(scene, screen_width)
    gutter = screen_width >= 100
    used = 1 + (2 if with_gauge else 0) + legend_rows
    rows = max(1, height - used)
    plan = shape(scene.picture.num_blocks, width, rows, gutter=gutter, tiles=tiles)
    head = heading(theme, width, "KV BLOCKS", _facts(scene, width), [Part(_note(scene, plan, order, screen_width), 0)])
    out: list[Row] = [head]
    if with_gauge:
        out += gauge(scene, width - (width - plan.gutter - plan.columns * plan.tile), plan.gutter)
        out = [out[0], *(_pad(row, width, scene) for row in out[1:])]
    body = map_rows(scene, width, rows, gutter=gutter, tiles=tiles, order=order)
    hits = [Hit(h.y + len(out), h.x0, h.x1, h.kind, h.value) for h in body.hits]
    out += body.rows
    indent = plan.gutter if gutter else 1
    out += legend(scene, width, legend_rows, indent, long=legend_rows > 1, numbers=screen_width >= 100,
                  margin=order == "owner") if legend_rows else []  # fmt: skip
    out += [blank(theme, width)] * (height - len(out))
    return Panel(out[:height], [h for h in hits if h.y < height])


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


def _note(scene: Scene, plan: Shape, order: str, screen_width: int) -> tuple[Span, ...]:
    """Right side of the heading: what a cell is, and what is bright in the past."""
    theme, chrome = scene.theme, scene.chrome
    dim = theme.style("muted")
    changed = _highlight(scene)
    if changed is not None and screen_width >= 100:
        return ((f"bright: {len(changed)} changed", theme.style("amber")),)
    if screen_width < 100 and scene.picture.host:
        return ((f"CPU {scene.picture.host_used}/{len(scene.picture.host)}", dim),)
    words = "by owner" if order == "owner" else "physical order"
    if plan.per_cell > 1:
        words = f"1 cell = {plan.per_cell} blocks, {words}"
    elif plan.tile == 2:
        words = f"1 tile = 1 block, {words}"
    if chrome.map_view != "owner":
        words = f"{chrome.map_view}, {words}"
    return ((words, dim),)


def share_bar(scene: Scene, share: float, width: int) -> str:
    """A gauge without colours of its own, used beside numbers."""
    return bar_cells(scene.theme, share, width)


def first_blocks(numbers: Sequence[int], most: int = 6) -> str:
    """Block ids in few words."""
    return ", ".join(map(str, numbers[:most])) + (f" … ({len(numbers)})" if len(numbers) > most else "")

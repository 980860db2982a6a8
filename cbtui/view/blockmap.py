"""The cells of the block map: what a frame before has drawn stays, what the steps since then changed is drawn anew."""

from collections import Counter
from collections.abc import Sequence
from operator import is_not
from typing import cast

from rich.segment import Segment
from rich.style import Style

from cbtui.view.cells import Panel, Row, RowBuilder
from cbtui.view.chrome import Hit
from cbtui.view.difference import difference_of
from cbtui.view.plaincells import Cell
from cbtui.view.scene import Scene
from cbtui.view.tiles import Painter, Shape, last_fill, owner_order, shape
from engine.core.observe import BlockView

Tails = dict[int, tuple[int, int]]
"""Last block of each table -> whose it is, and how full."""


class KeptMap:
    """The cells and rows of the last frame, with everything they were drawn from."""

    def __init__(self, scene: Scene, wide: bool) -> None:
        self.wide = wide
        self.cells: list[Cell] = []
        self.rows: dict[int, tuple[tuple[object, ...], Row]] = {}
        self._blocks: list[BlockView] = []
        self._tails: Tails = {}
        self._moved: set[int] = set()
        self._painter = Painter(scene, wide)

    @classmethod
    def of(cls, scene: Scene, wide: bool) -> "KeptMap":
        """What is kept for this scene, brought up to date; ``wide``: a block has two cells."""
        chrome = scene.chrome
        asked = (id(scene.theme), chrome.map_view, chrome.selected, scene.picture.windows, wide)
        kept = scene.state.memo.get("map")
        found = kept[1] if kept is not None and kept[0] == asked else None
        if not isinstance(found, KeptMap):
            found = cls(scene, wide)
            scene.state.memo["map"] = (asked, found)
        found._follow(scene)
        return found

    def _follow(self, scene: Scene) -> None:
        picture, painter = scene.picture, self._painter
        painter.scene = scene
        blocks, tails = picture.blocks, _tails(scene) if self.wide else {}
        moved = {*picture.moves.out_blocks, *picture.moves.back_blocks}
        if len(self.cells) != len(blocks) or scene.chrome.map_view in ("age", "fill"):
            self.cells = [painter.cell(number) for number in range(len(blocks))]
        else:
            stale = {number for number, new in enumerate(map(is_not, blocks, self._blocks)) if new}
            stale.update(number for number, _ in tails.items() ^ self._tails.items())
            for number in stale | moved | self._moved:
                self.cells[number] = painter.cell(number)
        self._blocks, self._tails, self._moved = blocks[:], tails, moved


def _tails(scene: Scene) -> Tails:
    return {
        table[-1]: (live.key, last_fill(scene, live, group, len(table) - 1))
        for live in scene.picture.sequences.values()
        for group, table in enumerate(live.tables)
        if table
    }


def map_rows(scene: Scene, width: int, rows: int, *, gutter: bool, tiles: bool, order: str) -> Panel:
    """The map itself, without heading and legend."""
    plan = shape(scene.picture.num_blocks, width, rows, gutter=gutter, tiles=tiles)
    kept = KeptMap.of(scene, plan.tile > 1)
    cells, each = _cells(scene, kept, order), plan.columns * plan.per_cell
    changed, chosen = highlight(scene), scene.chrome.block
    lines = [cells[y * each : (y + 1) * each] for y in range(plan.rows)]
    drawn: dict[int, tuple[tuple[object, ...], Row]] = {}
    for y, line in enumerate(lines):
        asked = (line, plan, width, chosen)
        before = kept.rows.get(y)
        if changed is None and before is not None and before[0] == asked:
            drawn[y] = before
        else:
            drawn[y] = asked, _row(scene, y, _merged(line, plan.per_cell), plan, width, changed)
    if changed is None:
        kept.rows = drawn
    start = plan.gutter or int(width > 2)

    def hits() -> list[Hit]:
        return [
            Hit(y, start + x * plan.tile, start + (x + 1) * plan.tile, "block", cell.block)
            for y, line in enumerate(lines)
            for x, cell in enumerate(_merged(line, plan.per_cell))
        ]

    return Panel([row for _, row in drawn.values()], hits)


def _cells(scene: Scene, kept: KeptMap, order: str) -> list[Cell]:
    """The blocks in the order drawn; those in the safety margin on its ground."""
    if order != "owner":
        return kept.cells[1:]
    numbers, cells = _places(scene), kept.cells[:]
    blocks, left = scene.picture.blocks, scene.margin if scene.chrome.map_view == "owner" else 0
    cell = Painter(scene, kept.wide).cell
    for number in reversed(numbers):
        if left <= 0:
            break
        if blocks[number].state != "owned":
            cells[number] = cell(number, "amber_on")
            left -= 1
    return [cells[number] for number in numbers]


def _places(scene: Scene) -> list[int]:
    """Block ids grouped by owner; in the past by those of the step it was left for, so that only changes move."""
    picture, left = scene.picture, scene.chrome.left
    if not scene.is_past or left is None:
        return owner_order(picture)
    asked = left, picture.num_blocks
    kept = scene.state.memo.get("places")
    if kept is not None and kept[0] == asked:
        return cast(list[int], kept[1])
    before = scene.state.at(left)
    numbers = owner_order(before if before.num_blocks == picture.num_blocks else picture)
    scene.state.memo["places"] = asked, numbers
    return numbers


def _merged(line: list[Cell], per_cell: int) -> list[Cell]:
    """One cell for each ``per_cell`` blocks: one of those that are most alike."""
    if per_cell == 1:
        return line
    cells = []
    for start in range(0, len(line), per_cell):
        group = line[start : start + per_cell]
        runs = [one.run for one in group]
        common = runs[0] if runs.count(runs[0]) * 2 >= len(runs) else Counter(runs).most_common(1)[0][0]
        cells.append(group[runs.index(common)])
    return cells


def _row(
    scene: Scene, y: int, line: Sequence[Cell], plan: Shape, width: int, changed: set[int] | None
) -> Row:
    """One row of the map: cells of one style next to each other are one piece of text."""
    lead = RowBuilder(width, scene.theme.style("muted"))
    if plan.gutter:
        lead.right(str(y * plan.columns * plan.per_cell), plan.gutter - 1).put(" ")
    elif width > 2:
        lead.put(" ")
    chosen, single = scene.chrome.block, plan.tile == 1
    pieces: list[Segment] = list(lead.piece())
    text, pen = "", None
    previous: object = None
    for cell in line:
        style = cell.style if cell.run == previous else cell.bright
        previous = cell.run
        if changed is not None or cell.block == chosen:
            style = _focus(scene, cell, changed)
        if style is not pen:
            if pen is not None:
                pieces.append(Segment(text, pen))
            text, pen = "", style
        if single:
            text += cell.glyph
        elif cell.fill is None or (changed is not None and cell.block not in changed):
            text += cell.glyph + cell.second
        else:
            pieces.append(Segment(text + cell.glyph, pen))
            text, pen = cell.second, cell.fill
    if pen is not None:
        pieces.append(Segment(text, pen))
    rest = width - lead.used - plan.tile * len(line)
    if rest:
        pieces.append(Segment(" " * rest, lead.ground))
    return tuple(pieces)


def highlight(scene: Scene) -> set[int] | None:
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
        ground = "amber_on" if cell.run in (("cached", "amber_on"), ("free", "amber_on")) else "bg"
        return scene.theme.style("muted" if scene.picture.blocks[cell.block].state == "owned" else "faint", ground)
    return cell.bright

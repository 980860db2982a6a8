"""Single blocks: their class, their place in owner order, how one looks, and how a pool is laid out in cells."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style

from cbtui.letters import cell_letter
from cbtui.picture import Live
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
            return Cell(
                glyphs.cached, " ", theme.style("amber" if amber else "muted", ground), ("cached", amber), number
            )
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


def first_blocks(numbers: Sequence[int], most: int = 6) -> str:
    """Block ids in few words."""
    return ", ".join(map(str, numbers[:most])) + (f" and {len(numbers) - most} more" if len(numbers) > most else "")

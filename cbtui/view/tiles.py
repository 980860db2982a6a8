"""Single blocks: their class, their place in owner order, how one looks, and how a pool is laid out in cells."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style

from cbtui.letters import cell_letter, tile_letters
from cbtui.picture import Live, Picture
from cbtui.view.plaincells import Cell, plain_cell
from cbtui.view.scene import Scene
from engine.core.observe import BlockView


def class_counts(scene: Scene) -> Counter[str]:
    """How many blocks are "full", "window", "shared", "shared_window", "back", "out", "cached", "free" (they add up).

    "out" are those drawn as leaving: the step copied them to the CPU, and nobody has taken them again.
    """
    picture = scene.picture
    counts: Counter[str] = Counter()
    for (state, group, shared), number in picture.kinds.items():
        kind = _class(scene, state, group)
        counts[kind if not shared else "shared_window" if kind == "window" else "shared"] += number
    for block in map(picture.blocks.__getitem__, picture.moves.back_blocks):
        if len(block.owners) == 1:
            counts[_class(scene, block.state, block.group)] -= 1
            counts["back"] += 1
    for block in map(picture.blocks.__getitem__, picture.moves.out_blocks):
        if block.state != "owned":
            counts[block.state] -= 1
            counts["out"] += 1
    return +counts


def _class(scene: Scene, state: str, group: int) -> str:
    """The class of blocks that one sequence holds, or nobody."""
    if state != "owned":
        return state
    return "window" if scene.picture.is_window(group) else "full"


def owner_order(picture: Picture) -> list[int]:
    """Block ids grouped by owner: shared ones, each sequence (full, then window), cached, free; leaving ones first."""
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


class Painter:
    """Says how blocks look. What is the same for all blocks of a sequence is worked out once.

    Attributes:
        scene: whose blocks; another one with the same theme, chosen request and view may take its place.
        wide: a block has two cells, which hold labels of two letters.
    """

    def __init__(self, scene: Scene, wide: bool = False) -> None:
        self.scene = scene
        self.wide = wide
        theme, glyphs = scene.theme, scene.theme.glyphs
        self._owner_view = scene.chrome.map_view == "owner"
        self._owned: dict[tuple[int, int], tuple[str, Style, Style, object]] = {}
        self._unowned = {
            (state, ground): (glyph, theme.style("amber" if ground != "bg" else role, ground), (state, ground))
            for state, glyph, role in (("cached", glyphs.cached, "muted"), ("free", glyphs.free, "faint"))
            for ground in ("bg", "amber_on")
        }

    def cell(self, number: int, ground: str = "bg") -> Cell:
        """One block; ``ground`` is "amber_on" inside the safety margin."""
        picture = self.scene.picture
        block = picture.blocks[number]
        if not self._owner_view:
            return plain_cell(self.scene, number, ground)
        if block.state != "owned":
            if number in picture.moves.out_blocks:
                return self._leaving(number, block)
            glyph, style, kind = self._unowned[block.state, ground]
            return Cell(glyph, " ", style, style, kind, number)
        if len(block.owners) > 1:
            return self._shared(number, block)
        seq, index = block.owners[0]
        look = self._owned.get((seq, block.group))
        if look is None:
            look = self._owned[seq, block.group] = self._look(seq, block.group)
        letters, style, bright, run = look
        letter = letters[0] if letters[1:] in ("", " ") else cell_letter(letters, small=letters.islower())
        if number in picture.moves.back_blocks:
            style = self.scene.theme.tile(self.scene.hue(seq), "transit")
            return Cell(self.scene.theme.glyphs.back, letter, style, style, ("back", seq), number)
        live = self.scene.live(seq)
        if live is None or index != len(live.tables[block.group]) - 1:
            return Cell(letters[0], letters[1:] or " ", style, bright, run, number)
        second = self.scene.theme.glyphs.levels[last_fill(self.scene, live, block.group, index) - 1]
        fill = self.scene.theme.tile(self.scene.hue(seq), "fill")
        return Cell(letter, second, style, bright, run, number, fill)

    def _look(self, seq: int, group: int) -> tuple[str, Style, Style, object]:
        """Letters, style, style in focus and run of the blocks of a sequence's group."""
        scene, window = self.scene, self.scene.picture.is_window(group)
        hue = scene.hue(seq)
        bright = scene.theme.tile(hue, "window_head" if window else "head")
        plain = bright if seq == scene.chrome.selected else scene.theme.tile(hue, "window" if window else "body")
        letters = (tile_letters if self.wide else cell_letter)(scene.label(seq), small=window)
        return letters, plain, bright, (seq, window)

    def _leaving(self, number: int, block: BlockView) -> Cell:
        scene = self.scene
        leaver = scene.picture.moves.out_blocks[number]
        letter = cell_letter(scene.label(leaver), small=scene.picture.is_window(block.group))
        style = scene.theme.tile(scene.hue(leaver), "transit")
        return Cell(scene.theme.glyphs.out, letter, style, style, ("out", leaver), number)

    def _shared(self, number: int, block: BlockView) -> Cell:
        scene, window = self.scene, self.scene.picture.is_window(block.group)
        glyph = scene.theme.glyphs.shared_window if window else scene.theme.glyphs.shared
        references = str(len(block.owners)) if len(block.owners) < 10 else "+"
        style = scene.theme.style("share_ink", "share", bold=True)
        return Cell(glyph, references, style, style, ("shared", window), number)


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

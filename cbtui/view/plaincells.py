"""Blocks in the views that do not show owners: state, fill, age, references."""

from typing import NamedTuple

from rich.style import Style

from cbtui.view.scene import Scene
from engine.core.observe import BlockView

AGE_STEPS = (0, 4, 16, 64, 256)


class Cell(NamedTuple):
    """One block as it is drawn.

    ``second`` is what a second cell would say (in style ``fill`` if given), ``bright`` the style at the head of a run
    or in focus, ``run`` what neighbours have in common that belong together.
    """

    glyph: str
    second: str
    style: Style
    bright: Style
    run: object
    block: int
    fill: Style | None = None


def _cell(glyph: str, second: str, style: Style, run: object, number: int) -> Cell:
    return Cell(glyph, second, style, style, run, number)


def plain_cell(scene: Scene, number: int, ground: str) -> Cell:
    """A block in one of the views "state", "fill", "age" and "refs"."""
    picture, theme, glyphs = scene.picture, scene.theme, scene.theme.glyphs
    block = picture.blocks[number]
    view = scene.chrome.map_view
    if block.state == "free":
        return _cell(glyphs.free, " ", theme.style("faint", ground), "free", number)
    if block.state == "cached" and view != "age":
        return _cell(glyphs.cached, " ", theme.style("muted", ground), "cached", number)
    if view == "refs":
        references = len(block.owners)
        glyph = str(references) if references < 10 else "+"
        style = theme.style("bright" if references > 1 else "steel", "bg", bold=references > 1)
        return _cell(glyph, " ", style, ("refs", references), number)
    if view == "fill":
        fill = max((_entry_fill(scene, block, owner) for owner in block.owners), default=8)
        return _cell(glyphs.levels[fill - 1], " ", theme.style("steel", "bg"), ("fill", fill), number)
    if view == "age":
        age = scene.step - block.last_use
        level = sum(1 for bound in AGE_STEPS if age > bound)
        glyph = glyphs.levels[7 - level]
        return _cell(glyph, " ", theme.style("steel3" if level < 2 else "steel", "bg"), ("age", level), number)
    style = theme.style("steel" if block.published else "steel3", "bg")
    return _cell(group_glyph(scene, block.group), " ", style, block.group, number)


def group_glyph(scene: Scene, group: int) -> str:
    """How the blocks of a layer group look in the view "state"."""
    names = "FWXYZ" if not scene.theme.glyphs.unicode else "█▓▒░▚"
    return names[min(group, 4)]


def _entry_fill(scene: Scene, block: BlockView, owner: tuple[int, int]) -> int:
    live = scene.live(owner[0])
    if live is None:
        return 8
    page = scene.picture.page_size
    tokens = min(page, max(0, live.change.computed - owner[1] * page))
    return max(1, -(-tokens * 8 // page))

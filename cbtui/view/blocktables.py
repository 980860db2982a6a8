"""Block tables: one row per sequence, the entries of its full-attention group and of its window group side by side."""

from itertools import groupby
from operator import itemgetter

from rich.style import Style

from cbtui.letters import cell_letter, cut_label
from cbtui.picture import Live
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, heading
from cbtui.view.chrome import Hit
from cbtui.view.scene import Scene
from cbtui.view.tiles import last_fill


def shown(scene: Scene) -> list[Live]:
    """Sequences with a table, running ones in order of arrival, then those on the CPU."""
    found = [s for s in scene.picture.sequences.values() if any(s.tables) or s.host]
    return sorted(found, key=lambda s: (s.change.place == "offloaded", s.key))


def table_cells(scene: Scene, live: Live, group: int) -> list[tuple[str, Style]]:
    """The entries of one table, in order of position."""
    theme, glyphs, picture = scene.theme, scene.theme.glyphs, scene.picture
    hue, window = scene.hue(live.key), picture.is_window(group)
    letter = cell_letter(scene.label(live.key), small=window)
    saved = {index: slot for slot, (where, index) in live.host.items() if where == group}
    table = live.tables[group]
    length = max(len(table), max(saved, default=-1) + 1)
    blocks = picture.blocks
    if table and not (saved or picture.moves.back_blocks or any(len(blocks[n].owners) != 1 for n in table)):
        plain = (letter, theme.tile(hue, "window" if window else "body"))
        return [plain] * (length - 1) + [_owned(scene, live, group, length - 1, table[-1], letter)]
    cells = []
    for index in range(length):
        number = table[index] if index < len(table) else 0
        if number:
            cells.append(_owned(scene, live, group, index, number, letter))
        elif index in saved:
            moving = saved[index] in picture.moves.out_slots
            kind = "transit" if moving else "text"
            cells.append((glyphs.out if moving else glyphs.parked, theme.tile(hue, kind)))
        else:
            cells.append((glyphs.behind, theme.style("faint")))
    return cells


def _owned(scene: Scene, live: Live, group: int, index: int, number: int, letter: str) -> tuple[str, Style]:
    theme, glyphs, picture = scene.theme, scene.theme.glyphs, scene.picture
    hue, window = scene.hue(live.key), picture.is_window(group)
    if len(picture.blocks[number].owners) > 1:
        glyph = glyphs.shared_window if window else glyphs.shared
        return glyph, theme.style("share_ink", "share", bold=True)
    if number in picture.moves.back_blocks:
        return glyphs.back, theme.tile(hue, "transit")
    if index == len(live.tables[group]) - 1:
        return glyphs.levels[last_fill(scene, live, group, index) - 1], theme.tile(hue, "bar")
    return letter, theme.tile(hue, "window" if window else "body")


def _put_table(row: RowBuilder, scene: Scene, cells: list[tuple[str, Style]], room: int) -> None:
    """The entries in ``room`` cells; the middle goes when there are too many."""
    start = row.used
    if len(cells) > room:
        tail = max(1, room - 2 - room // 4)
        head = max(0, room - tail - 1)
        cells = [*cells[:head], (scene.theme.glyphs.waiting[:1], scene.theme.style("muted")), *cells[-tail:]]
    for style, run in groupby(cells[:room], key=itemgetter(1)):
        row.put("".join([glyph for glyph, _ in run]), style)
    row.to(start + room)


def groups_shown(scene: Scene) -> list[int]:
    """The first full-attention group and the first window group (others repeat their pattern)."""
    windows = scene.picture.windows
    full = next((g for g, w in enumerate(windows) if w is None), None)
    window = next((g for g, w in enumerate(windows) if w is not None), None)
    return [g for g in (full, window) if g is not None]


def block_tables(scene: Scene, width: int, height: int) -> Panel:
    theme, picture = scene.theme, scene.picture
    dim = theme.style("muted")
    groups = groups_shown(scene)
    right: list[Part] = []
    for group in groups:
        words = "keeps all" if picture.windows[group] is None else f"keeps the last {picture.windows[group]} tokens"
        name = "full" if picture.windows[group] is None else "window"
        right.append(Part(((f"{name} ", theme.style("text")), (words, dim)), 1))
    rows: list[Row] = [heading(theme, width, "BLOCK TABLES", [], right)]
    hits: list[Hit] = []
    live = shown(scene)
    room = height - 1
    if len(live) > room:
        live = _around(live, scene.chrome.selected, room)
    each = (width - 3 - 9 - 6 * len(groups)) // max(1, len(groups))
    for sequence in live:
        selected = sequence.key == scene.chrome.selected
        row = RowBuilder(width, theme.style("text"))
        name = cut_label(scene.label(sequence.key), 2, theme.glyphs.ellipsis)
        row.put(f" {name}".ljust(3), theme.tile(scene.hue(sequence.key), "head" if selected else "bold"))
        for group in groups:
            cells = table_cells(scene, sequence, group)
            _put_table(row, scene, cells, max(1, each))
            row.right(str(sequence.held(group)), 4, theme.style("text")).put("  ")
        row.right(f"{sequence.change.computed} tok", row.left, dim)
        hits.append(Hit(len(rows), 0, width, "request", sequence.key))
        rows.append(row.done())
    if not live:
        rows.append(RowBuilder(width, dim).put("  nobody holds a block"[:width]).done())
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height], hits)


def _around(live: list[Live], selected: int | None, room: int) -> list[Live]:
    at = next((i for i, s in enumerate(live) if s.key == selected), 0)
    first = max(0, min(at - room // 2, len(live) - room))
    return live[first : first + room]

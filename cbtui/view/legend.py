"""What stands around the block map: the equation of the pool, the legend, the gauge with the margin."""

from operator import attrgetter

from cbtui.letters import UNNAMED, cell_letter
from cbtui.view.cells import Part, Row, RowBuilder, Span, blank, keep_parts
from cbtui.view.plaincells import AGE_STEPS, group_glyph
from cbtui.view.scene import Scene
from cbtui.view.tiles import class_counts


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
    if scene.chrome.map_view != "owner":
        return _plain_parts(scene, numbers=numbers)
    theme, glyphs, counts = scene.theme, scene.theme.glyphs, class_counts(scene)
    dim = theme.style("muted")
    sample, hue = _sample(scene)
    parts: list[Part] = []

    def add(key: str, spans: tuple[Span, ...], words: str, priority: int, *, always: bool = False) -> None:
        number = counts[key] if key in counts else 0
        if not number and not always:
            return
        # the equation above tells them, the room is for the words; but what leaves is counted there too
        told = key in ("cached", "free") and not (long or counts["out"])
        count = f" {number} " if (numbers and not told) or not always else " "
        parts.append(Part((*spans, (f"{count}{words}", dim)), priority))

    full, window = theme.tile(hue, "head"), theme.tile(hue, "window_head")
    kinds = scene.hybrid or not any(w is not None for w in scene.picture.windows)
    tile, small = ((cell_letter(sample), full),), ((cell_letter(sample, small=True), window),)
    if kinds:
        kind = "full attention" if long else "full attn"
        add("full", tile, kind if scene.hybrid else "owned", 9, always=True)
    if any(w is not None for w in scene.picture.windows):
        add("window", small, "sliding window" if long else "window", 8, always=True)
    shares = theme.style("share_ink", "share", bold=True)
    most = 0
    if counts["shared"] or counts["shared_window"]:
        most = max(map(len, map(attrgetter("owners"), scene.picture.blocks)), default=0)
    shared_by = f"shared by {most}" if numbers else "shared"
    add("shared", ((f"{glyphs.shared}{most}" if long else glyphs.shared, shares),), shared_by, 7)
    add("shared_window", ((glyphs.shared_window, shares),), "shared, window", 6)
    if counts["out"]:
        moved = len(scene.picture.moves.out_slots)
        drawn = f"{counts['out']} of {moved}" if counts["out"] < moved else f"{moved}"
        spans = ((glyphs.out, theme.tile(_mover_hue(scene, out=True), "transit")), (f" {drawn} to CPU", dim))
        parts.append(Part(spans, 7))
    back = ((glyphs.back, theme.tile(_mover_hue(scene, out=False), "transit")),)
    add("back", back, "back from CPU" if long else "back", 7)
    add("cached", ((glyphs.cached, dim),), "cached, evictable" if long else "cached", 5, always=True)
    add("free", ((glyphs.free, theme.style("muted")),), "free", 4, always=True)
    if margin and scene.margin:
        amber = theme.style("amber", "amber_on")
        parts.append(Part(((glyphs.cached + glyphs.free, amber), (f" {scene.margin} margin", dim)), 6))
    if any(len(scene.label(live.key)) > 1 for live in scene.picture.sequences.values() if any(live.tables)):
        parts.append(Part(((UNNAMED, theme.style("bright", bold=True)), (" longer id", dim)), 8))
    if long:
        parts.append(Part(((cell_letter(sample), theme.tile(hue, "head")), (glyphs.levels[4], theme.tile(hue, "fill")),
                           (" last block, 5/8 full", dim)), 1))  # fmt: skip
    return parts


def _plain_parts(scene: Scene, *, numbers: bool) -> list[Part]:
    """What the cells mean in the views that do not show owners, see ``plain_cell``."""
    theme, glyphs, view, picture = scene.theme, scene.theme.glyphs, scene.chrome.map_view, scene.picture
    dim, steel, old = theme.style("muted"), theme.style("steel"), theme.style("steel3")
    levels = glyphs.levels
    meanings: dict[str, list[tuple[Span, str]]] = {
        "fill": [((levels[0], steel), "few tokens"), ((levels[7], steel), f"all {picture.page_size} tokens")],
        "age": [
            ((levels[7], old), "used in this step"),
            ((levels[7 - len(AGE_STEPS)], steel), f"not for {AGE_STEPS[-1]} steps"),
        ],
        "refs": [(("1", steel), "held once"), (("2", theme.style("bright", bold=True)), "shared by 2")],
        "state": [
            ((group_glyph(scene, group), steel), "full attention" if window is None else f"window of {window}")
            for group, window in enumerate(picture.windows)
        ],
    }
    parts = [Part((span, (f" {words}", dim)), 9) for span, words in meanings[view]]
    if view == "state":
        parts.append(Part(((group_glyph(scene, 0), old), (" not shareable yet", dim)), 6))
    rest = [(glyphs.cached, "cached", picture.cached, 5)] if view != "age" else []
    for glyph, words, number, priority in [*rest, (glyphs.free, "free", picture.free, 4)]:
        parts.append(Part(((glyph, dim), (f" {number} {words}" if numbers else f" {words}", dim)), priority))
    return parts


def _sample(scene: Scene) -> tuple[str, int]:
    """Label and hue of a request that stands for all: the selected one if a cell can name it, else one it can."""
    there = scene.picture.sequences
    keys = [key for key in (scene.chrome.selected, *there) if key is not None and key in there]
    key = next((key for key in keys if len(scene.label(key)) == 1), keys[0] if keys else None)
    return ("A", 0) if key is None else (scene.label(key), scene.hue(key))


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

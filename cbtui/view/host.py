"""The host (CPU) swap pool: its slots, who is parked there, and what moved in the step shown."""

from collections import Counter

from cbtui.letters import cell_letter, tile_letters
from cbtui.sentences import count, memory
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, heading
from cbtui.view.chrome import Hit
from cbtui.view.scene import Scene
from cbtui.view.tiles import shape

LEGEND_GAP = 2
"""Cells before the last line: it stands beside the legend of the blocks and would read like its end."""


def host(scene: Scene, width: int, height: int, *, tiles: bool = False, gutter: bool = False) -> Panel:
    """Heading, slots, a line per parked or moving sequence, and what is left for new prompts."""
    theme, picture = scene.theme, scene.picture
    strong, dim, text = theme.style("bright", bold=True), theme.style("muted"), theme.style("text")
    total = len(picture.host)
    title = "CPU SWAP POOL" if width >= 90 else "CPU SWAP"
    if not total:
        words = ("cpu_offload_space is 0: who loses its place is computed again", "offloading is off", "")
        line = RowBuilder(width, dim).put(choose(words, width, theme.glyphs.ellipsis)).done()
        off = [heading(theme, width, title, [Part((("off", dim),))]), line, _left(scene, width)]
        return Panel((off + [blank(theme, width)] * height)[:height])
    facts = [
        Part(
            (
                (str(total), strong),
                (" = ", dim),
                (f"{picture.host_used} used", text),
                (" + ", dim),
                (f"{total - picture.host_used} free", text),
            ),
            9,
        )
    ]
    if scene.chrome.block_bytes and width >= 70:
        facts.append(Part(((memory(total * scene.chrome.block_bytes), dim),), 2))
    rows: list[Row] = [heading(theme, width, title, facts)]
    indent = max(3, len(str(total))) + 1 if gutter else 0
    lanes = _lanes(scene, width, indent)
    room = max(1, height - 1 - min(len(lanes), 3) - 1)
    slots, hits = _slots(scene, width, min(room, 3 if height < 12 else room), tiles=tiles, gutter=gutter)
    hits = [Hit(h.y + 1, h.x0, h.x1, h.kind, h.value) for h in hits]
    rows += slots
    lane_room = height - len(rows) - 1
    shown = lanes if len(lanes) <= lane_room else lanes[: max(0, lane_room - 1)]
    for row, key in shown:
        hits.append(Hit(len(rows), 0, width, "request", key))
        rows.append(row)
    if len(shown) < len(lanes) and lane_room > 0:
        rows.append(RowBuilder(width, dim).put(f"  and {len(lanes) - len(shown)} more"[:width]).done())
    rows += [blank(theme, width)] * (height - 1 - len(rows))
    rows.append(_left(scene, width, max(indent, LEGEND_GAP)))
    return Panel(rows[:height], [h for h in hits if h.y < height])


def _slots(scene: Scene, width: int, rows: int, *, tiles: bool, gutter: bool) -> tuple[list[Row], list[Hit]]:
    theme, picture, glyphs = scene.theme, scene.picture, scene.theme.glyphs
    total = len(picture.host)
    plan = shape(total, width, rows, gutter=gutter, tiles=tiles)
    columns = plan.columns
    if not gutter and plan.per_cell == 1:  # even rows look calmer than one long and one short
        columns = min(plan.columns, max(16, -(-total // plan.rows)))
    out, hits = [], []
    previous: object = None
    for y in range(plan.rows):
        row = RowBuilder(width, theme.style("muted"))
        if plan.gutter:
            row.right(str(y * columns * plan.per_cell), plan.gutter - 1).put(" ")
        for x in range(columns):
            slot = (y * columns + x) * plan.per_cell
            if slot >= total:
                break
            owner = _owner(scene, slot, plan.per_cell)
            hits.append(Hit(y, row.used, row.used + plan.tile, "host", slot))
            if owner is None:
                back = picture.moves.back_slots.get(slot)
                if back is not None:
                    row.put(
                        (glyphs.back + cell_letter(scene.label(back)))[: plan.tile],
                        theme.tile(scene.hue(back), "transit"),
                    )
                else:
                    row.put((glyphs.free + " ")[: plan.tile], theme.style("faint"))
                previous = None
                continue
            seq, group, _ = owner
            letter = cell_letter(scene.label(seq), small=picture.is_window(group))
            hue, moving = scene.hue(seq), slot in picture.moves.out_slots
            if moving:
                row.put((glyphs.out + letter)[: plan.tile], theme.tile(hue, "transit"))
            else:
                if plan.tile == 2:
                    letter = tile_letters(scene.label(seq), small=picture.is_window(group))
                row.put(letter, theme.tile(hue, "window" if seq == previous else "window_head"))
            previous = seq
        out.append(row.done())
    return out, hits


def _owner(scene: Scene, slot: int, per_cell: int) -> tuple[int, int, int] | None:
    owners = scene.picture.host[slot : slot + per_cell]
    if per_cell == 1:
        return owners[0]
    held = Counter(o[0] if o is not None else None for o in owners).most_common(1)[0][0]
    return next((o for o in owners if o is not None and o[0] == held), None)


def _lanes(scene: Scene, width: int, indent: int) -> list[tuple[Row, int]]:
    """One line per sequence that moved in this step or is parked, movers first."""
    picture, theme, glyphs = scene.picture, scene.theme, scene.theme.glyphs
    out, back = Counter(picture.moves.out_slots.values()), Counter(picture.moves.back_slots.values())
    held = Counter(owner[0] for owner in picture.host if owner is not None)
    lanes = []
    for seq, blocks in out.items():
        now = held.get(seq, 0)
        words = (
            f"{count(blocks, 'block')} copied to CPU in this step, {now} there now",
            f"{count(blocks, 'block')} copied out in this step",
            f"{blocks} out",
        )
        lanes.append((seq, glyphs.out, words, True))
    for seq, blocks in back.items():
        words = (
            f"{count(blocks, 'block')} copied back in this step, it goes on",
            f"{count(blocks, 'block')} copied back in this step",
            f"{blocks} back",
        )
        lanes.append((seq, glyphs.back, words, True))
    for seq, blocks in held.items():
        if seq in out:
            continue
        since = _since(scene, seq)
        words = (f"parked with {count(blocks, 'block')}{since}", f"parked with {count(blocks, 'block')}", str(blocks))
        lanes.append((seq, glyphs.parked, words, False))
    rows = []
    for seq, glyph, wordings, moving in lanes:
        name = scene.label(seq)
        row = RowBuilder(width, theme.style("text")).to(indent)
        row.put(f"{glyph} {name} "[: row.left], theme.tile(scene.hue(seq), "bold"))
        row.put(choose(wordings, row.left, theme.glyphs.ellipsis), theme.style("text" if moving else "muted"))
        rows.append((row.done(), seq))
    return rows


def _since(scene: Scene, seq: int) -> str:
    story = scene.state.story(seq)
    phase = story.phase_at(scene.step) if story is not None else None
    if phase is None or phase.kind != "offloaded":
        return ""
    return f" since step {phase.start}, {count(scene.step - phase.start, 'step')}"


def _left(scene: Scene, width: int, indent: int = 0) -> Row:
    """What new prompts may take: usable − margin."""
    theme, picture, glyphs = scene.theme, scene.picture, scene.theme.glyphs
    dim, text = theme.style("muted"), theme.style("text")
    left = picture.usable - scene.margin
    row = RowBuilder(width, text).to(indent)
    width -= indent
    tail = f", usable {picture.usable}, margin {scene.margin}"
    sums = f"{picture.usable} {glyphs.minus} {scene.margin} = "
    need = len("none" + tail) if left <= 0 else len(sums) + len(str(left))
    leads = (f"for new prompts after step {scene.step}: ", "for new prompts: ", "")
    lead = next((w for w in leads if len(w) + need <= width), leads[1] if len(leads[1]) + 16 <= width else "")
    if left <= 0:
        row.put(lead[:width], dim).put("none"[: row.left], theme.style("amber", bold=True))
        row.put(tail if len(tail) <= row.left else "", dim)
        return row.done()
    if len(lead) + len(sums) + len(str(left)) > width:
        return row.done()
    return (
        row.put(lead, dim)
        .put(sums, text)
        .put(str(left), theme.style("amber" if left < 8 else "bright", bold=True))
        .done()
    )

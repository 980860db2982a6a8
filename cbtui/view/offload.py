"""Mode 5: the host pool in full, who is there, and the traffic between the pools over time."""

from cbtui.loglines import log_line
from cbtui.sentences import count, memory, seconds
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, heading
from cbtui.view.chrome import Hit
from cbtui.view.host import host
from cbtui.view.scene import Scene
from cbtui.view.timeline import axis, bars, columns, top_of, track
from engine.core.observe import Verdict


def offload_page(scene: Scene, width: int, height: int) -> Panel:
    theme = scene.theme
    totals = 7 if height >= 24 else 4
    held = {owner[0] for owner in scene.picture.host if owner is not None} | set(
        scene.picture.moves.back_slots.values()
    )
    slots = -(-len(scene.picture.host) // max(16, (width - 4) // 2 // 16 * 16))
    graph = min(14, max(0, height - 14)) if scene.picture.host else 0  # without a pool nothing moves
    upper = max(4, min(height - graph - totals, 1 + max(1, slots) + len(held) + 2))
    pool = host(scene, width, upper, tiles=width >= 110, gutter=width >= 60)
    rows, hits = list(pool.rows), list(pool.hits)
    rows += _totals(scene, width, totals)
    if graph:
        chart, chart_hits = _traffic(scene, width, graph)
        hits += [Hit(h.y + len(rows), h.x0, h.x1, h.kind, h.value) for h in chart_hits]
        rows += chart
    if height - len(rows) >= 3 and (graph or not scene.picture.host):
        rows += _moves(scene, width, height - len(rows))
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height], [h for h in hits if h.y < height])


def _moves(scene: Scene, width: int, height: int) -> list[Row]:
    """The last moves between the pools, newest first."""
    theme = scene.theme
    rows = [heading(theme, width, "MOVES", [Part((("newest first", theme.style("muted")),))])]
    kinds = (Verdict.OFFLOAD, Verdict.RESTORE, Verdict.RECOMPUTE)
    for entry in reversed(scene.state.log):
        if len(rows) == height:
            break
        if entry.kind in kinds and entry.step <= scene.step:
            row = RowBuilder(width, theme.style("muted")).right(str(entry.step), min(8, width)).put("  "[: width - 8])
            rows.append(
                row.put(choose(log_line(scene, entry), row.left, theme.glyphs.ellipsis), theme.style("text")).done()
            )
    return rows


def _totals(scene: Scene, width: int, height: int) -> list[Row]:
    theme, c = scene.theme, scene.picture.counters
    dim, text, strong = theme.style("muted"), theme.style("text"), theme.style("bright", bold=True)
    size = scene.chrome.block_bytes

    def moved(blocks: int) -> str:
        return f", {memory(blocks * size)}" if size else ""

    def requests(number: int) -> str:
        return "request" if number == 1 else "requests"

    rows = [heading(theme, width, "SINCE THE START")]
    away = _away(scene)
    now = len(scene.picture.offloaded)
    lost = "its" if c.preemptions == 1 else "their"
    again = "token" if c.recomputed_tokens == 1 else "tokens"
    out, back = count(c.offloaded_blocks, "block"), count(c.restored_blocks, "block")
    there = bool(scene.picture.host)
    room = "the CPU pool had no room" if there else "there is no CPU pool"
    moves = (
        ("to CPU", c.offloads, f"{requests(c.offloads)} moved out: {out}{moved(c.offloaded_blocks)}"),
        ("back", c.restores, f"{requests(c.restores)} moved back: {back}{moved(c.restored_blocks)}"),
        ("preempted", c.preemptions, f"{requests(c.preemptions)} lost {lost} cache: {room}"),
        ("recomputed", c.recomputed_tokens, f"{again} computed a second time because of that"),
        ("away", now, f"{requests(now)} on the CPU now, {away}"),
    )
    for name, number, words in moves if there else moves[2:4]:
        row = RowBuilder(width, text).put(f" {name:<11}"[:width], dim)
        row.put(f"{number:>7}  "[: row.left], strong)
        rows.append(row.put(choose((words,), row.left, theme.glyphs.ellipsis), text).done())
    rows += [blank(theme, width)] * (height - len(rows))
    return rows[:height]


def _away(scene: Scene) -> str:
    """How long those on the CPU have been there."""
    waits = []
    for live in scene.picture.offloaded:
        story = scene.state.story(live.key)
        phase = story.phase_at(scene.step) if story is not None else None
        if phase is not None and phase.kind == "offloaded":
            waits.append(scene.now - phase.start_time)
    return f"the longest for {seconds(max(waits))}" if waits else "nobody waits there"


def _traffic(scene: Scene, width: int, height: int) -> tuple[list[Row], list[Hit]]:
    """Slots used, blocks out and blocks back per step."""
    theme, series = scene.theme, scene.state.series
    dim, strong = theme.style("muted"), theme.style("bright", bold=True)
    indent, tail = 13, 10
    cols = columns(scene, max(8, width - indent - tail))
    each = max(1, (height - 2) // 3)
    facts = [Part(((f"1 cell = {count(cols.each, 'step')}", dim),))]
    rows = [heading(theme, width, "TRAFFIC", facts, [Part((("blocks", dim),))])]
    hits: list[Hit] = []
    for name, title, top in (
        ("host", "slots used", max(1, len(scene.picture.host))),
        ("out", "blocks out", top_of(scene, cols, "out")),
        ("back", "blocks back", top_of(scene, cols, "back")),
    ):
        shares = track(scene, cols, name, top)
        value = series.at(name, scene.step)
        lines = bars(scene, cols, shares, each)
        for y, line in enumerate(lines):
            last = y == len(lines) - 1
            row = RowBuilder(width, theme.style("text")).put(f" {title}".ljust(indent) if last else " " * indent, dim)
            for x in range(min(cols.used, cols.width)):
                hits.append(Hit(len(rows), row.used + x, row.used + x + 1, "step", cols.steps(x)[-1]))
            row.spans(line)
            if last:
                row.right(str(value) if value >= 0 else "--", min(5, row.left), strong)
                row.put(f"/{top}"[: row.left], dim)
            rows.append(row.done())
    rows.append(axis(scene, width, indent, cols))
    return rows, hits

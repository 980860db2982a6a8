"""A whole screen from the state: the panes of the mode, drawn and put together row by row."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from rich.segment import Segment
from rich.style import Style

from cbtui.model import MonitorState
from cbtui.theme import Theme
from cbtui.view import layout, states
from cbtui.view.batch import batch
from cbtui.view.blockpage import block_page
from cbtui.view.blocks import blocks
from cbtui.view.blocktables import block_tables
from cbtui.view.caption import caption, caption_rows
from cbtui.view.cells import Panel, Row, RowBuilder, blank, choose, row_text
from cbtui.view.chrome import Chrome, Hit
from cbtui.view.config import config_page
from cbtui.view.detail import detail
from cbtui.view.difference import difference_pane
from cbtui.view.gantt import gantt
from cbtui.view.host import host
from cbtui.view.hud import empty_hud, hud, key_bar, rule_notice
from cbtui.view.layout import Facts, Rect
from cbtui.view.log import log
from cbtui.view.notice import notice, notice_rows
from cbtui.view.offload import offload_page
from cbtui.view.requests import requests
from cbtui.view.scene import Scene
from cbtui.view.streams import stream, streams
from cbtui.view.timeline import timeline

MODE_PANES = {3: "map", 4: "gantt", 5: "offload", 6: "config"}
"""Modes that are one pane."""


def facts_of(scene: Scene) -> Facts:
    chrome = scene.chrome
    difference = scene.is_past and chrome.difference and chrome.mark is not None
    return Facts(scene.picture.num_blocks, len(scene.picture.host), len(scene.state.stories), difference)


def plan(scene: Scene, width: int, height: int) -> list[Rect]:
    """The panes of the current mode, a maximised one alone, and what stands between HUD and keys beside them."""
    alarm = 1 if alarm_words(scene) and height >= 12 else 0
    return _dressed(lambda rows: _panes(scene, width, rows), scene.chrome, scene.theme, width, height, alarm)


def _dressed(
    panes: Callable[[int], list[Rect]], chrome: Chrome, theme: Theme, width: int, height: int, alarm: int = 0
) -> list[Rect]:
    """The panes for the rows that are left, with an alarm and a caption above them and a notice below."""
    told = 0 if chrome.caption is None else caption_rows(chrome.caption, theme, width, height - alarm)
    said = notice_rows(chrome, width, height)
    rects = layout.below(panes(height - alarm - told), alarm + told)
    if said:
        rects = layout.over_keys(rects, "notice", said)
    if told:
        rects.append(Rect("caption", 0, 1 + alarm, width, told))
    return [*rects, Rect("alarm", 0, 1, width, 1)] if alarm else rects


def alarm_words(scene: Scene) -> tuple[str, ...]:
    """What must not be overlooked, from long to short: the engine died, or its bookkeeping is broken; else empty."""
    if scene.chrome.engine == "failed" and not scene.is_past:
        error = scene.chrome.error or "the engine died"
        return (
            f"{error}: everything up to step {scene.state.step} can be looked at, S starts again",
            f"{error}. S starts again",
            error,
        )
    lamp = scene.state.checks.lamp(scene.step)
    if lamp is None or not lamp.broken:
        return ()
    what = f"invariant broken after step {lamp.step}: {scene.named(lamp.broken[0])}"
    more = f" (and {len(lamp.broken) - 1} more)" if len(lamp.broken) > 1 else ""
    kept = "held, everything is kept" if scene.chrome.engine == "held" and not scene.is_past else "everything is kept"
    brief = f"invariant broken: {scene.named(lamp.broken[0])}"
    first = what.split(", ")[0]
    return (f"{what}{more}; {kept}", f"{what}{more}", what, brief, first, brief.split(", ")[0], "invariant broken")


def _panes(scene: Scene, width: int, height: int) -> list[Rect]:
    chrome = scene.chrome
    name = MODE_PANES.get(chrome.mode)
    if name is not None:
        return layout.whole(width, height, name)
    if chrome.mode == 2:
        rects = layout.two(width, height, "requests", "detail", 0.45)
        if chrome.maximised in ("requests", "detail"):
            return layout.whole(width, height, chrome.maximised)
        return rects
    rects = layout.monitor(width, height, facts_of(scene))
    if chrome.maximised is not None and any(rect.name == chrome.maximised for rect in rects):
        return layout.whole(width, height, chrome.maximised)
    return rects


def draw(scene: Scene, rect: Rect, width: int, height: int) -> Panel:
    """One pane; the first words of the one in focus stand out."""
    panel = _draw(scene, rect, width, height)
    if scene.chrome.focus != rect.name or not panel.rows:
        return panel
    row = list(panel.rows[0])
    place = next((i for i, segment in enumerate(row) if segment.text.strip()), 0)
    row[place] = Segment(row[place].text, scene.theme.style("on_ink", "on", bold=True))
    return Panel([tuple(row), *panel.rows[1:]], panel.hits)


def _draw(scene: Scene, rect: Rect, width: int, height: int) -> Panel:
    w, h = rect.width, rect.height
    large = layout.size_class(width, height) == "large"
    if rect.name == "hud":
        return hud(scene, w)
    if rect.name == "keys":
        return key_bar(scene.chrome, scene.theme, w)
    if rect.name == "alarm":
        return rule_notice(scene.theme, w, alarm_words(scene), "vermilion")
    if rect.name == "caption":
        assert scene.chrome.caption is not None
        return caption(scene.chrome.caption, scene.theme, w, h)
    if rect.name == "notice":
        return notice(scene.chrome, scene.theme, w, h)
    if rect.name == "batch":
        return batch(scene, w, h)
    if rect.name == "blocks":
        rows = 2 if large else 0 if h <= 3 else 1
        return blocks(scene, w, h, screen_width=width, legend_rows=rows, tiles=True, with_gauge=large)
    if rect.name == "host":
        return host(scene, w, h, tiles=large, gutter=large)
    if rect.name == "requests":
        return requests(scene, w, h, two_lines=large)
    simple = {
        "stream": stream, "streams": streams, "log": log, "timeline": timeline, "tables": block_tables,
        "difference": difference_pane, "gantt": gantt, "map": block_page, "offload": offload_page,
        "config": config_page, "detail": detail,
    }  # fmt: skip
    return simple[rect.name](scene, w, h)


def assemble(rects: Sequence[Rect], panels: Mapping[str, Panel], width: int, height: int, theme: Theme) -> Panel:
    """Panels at their places, gaps filled."""
    parts: list[list[tuple[int, int, Row]]] = [[] for _ in range(height)]
    for rect in rects:
        panel = panels[rect.name]
        for dy, row in enumerate(panel.rows[: rect.height]):
            if rect.y + dy < height:
                parts[rect.y + dy].append((rect.x, rect.width, row))
    empty, ground = blank(theme, width), theme.style("text")
    rows = []
    for line in parts:
        if len(line) == 1 and line[0][1] == width:
            rows.append(line[0][2])
        elif not line:
            rows.append(empty)
        else:
            rows.append(_line(sorted(line, key=itemgetter(0)), width, ground))

    def hits() -> list[Hit]:
        return [
            Hit(rect.y + y, rect.x + x0, rect.x + x1, kind, value)
            for rect in rects
            for y, x0, x1, kind, value in panels[rect.name].hits
        ]

    return Panel(rows, hits)


def _line(parts: list[tuple[int, int, Row]], width: int, ground: Style) -> Row:
    out: list[Segment] = []
    used = 0
    for x, size, row in parts:
        if x > used:
            out.append(Segment(" " * (x - used), ground))
        out += row
        used = max(used, x) + size
    if used < width:
        out.append(Segment(" " * (width - used), ground))
    assert max(used, width) == width, f"panes reach to column {used} of {width}"
    return tuple(out)


def too_small(width: int, height: int, theme: Theme) -> Panel:
    """One sentence with the size that is needed."""
    wordings = (
        f"cbtui needs {layout.MIN_WIDTH} x {layout.MIN_HEIGHT} cells, this is {width} x {height}",
        f"needs {layout.MIN_WIDTH} x {layout.MIN_HEIGHT}, has {width} x {height}",
        f"needs {layout.MIN_WIDTH}x{layout.MIN_HEIGHT}",
    )
    row = RowBuilder(width, theme.style("text")).put(choose(wordings, width, ""), theme.style("amber")).done()
    rows = [blank(theme, width)] * height
    if rows:
        rows[(height - 1) // 2] = row
    return Panel(rows)


def _draw_unloaded(rect: Rect, chrome: Chrome, theme: Theme) -> Panel:
    """One pane while there is no engine."""
    if rect.name == "caption" and chrome.caption is not None:
        return caption(chrome.caption, theme, rect.width, rect.height)
    if rect.name == "notice":
        return notice(chrome, theme, rect.width, rect.height)
    if rect.name == "hud":
        return empty_hud(chrome, theme, rect.width)
    if rect.name == "keys":
        return key_bar(chrome, theme, rect.width)
    return states.body(chrome, theme, rect.width, rect.height)


def compose(state: MonitorState | None, chrome: Chrome, theme: Theme, width: int, height: int) -> Panel:
    """The whole screen, ``height`` rows of ``width`` cells."""
    if width < 1 or height < 1:
        return Panel([])
    if layout.size_class(width, height) == "tiny":
        return too_small(width, height, theme)
    if state is None:
        rects = _dressed(lambda rows: layout.whole(width, rows, "body"), chrome, theme, width, height)
        return assemble(rects, {r.name: _draw_unloaded(r, chrome, theme) for r in rects}, width, height, theme)
    scene = Scene.of(state, chrome, theme)
    rects = plan(scene, width, height)
    panels = {rect.name: draw(scene, rect, width, height) for rect in rects}
    return assemble(rects, panels, width, height, theme)


def screen_text(rows: Sequence[Row]) -> str:
    """The screen as plain text, without blanks at line ends."""
    return "\n".join(row_text(row).rstrip() for row in rows) + "\n"

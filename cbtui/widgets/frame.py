"""The screen as one Line API widget: all panes show one and the same step, changed rows are painted."""

from dataclasses import dataclass, replace
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from cbtui.model import MonitorState
from cbtui.theme import Theme
from cbtui.view import frame as frames
from cbtui.view import layout
from cbtui.view.cells import Panel, Row
from cbtui.view.chrome import Chrome, Hit
from cbtui.view.layout import Rect
from cbtui.view.requests import lines
from cbtui.view.scene import Scene
from cbtui.widgets.rows import line_runs

TICKS_PER_FRAME = 2
"""Ticks from one frame to the next while nothing but the step changes: all panes are drawn, and that costs."""


class Frame(Widget, can_focus=True):
    """See the package docstring."""

    DEFAULT_CSS = "Frame { width: 1fr; height: 1fr; }"

    @dataclass
    class Picked(Message):
        """A click on something that means something; ``button`` 1 is the left one, ``double`` the second click."""

        hit: Hit
        button: int
        double: bool = False

    @dataclass
    class Scrolled(Message):
        """The wheel over a pane."""

        pane: str
        delta: int

    def __init__(self, theme: Theme, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._theme = theme
        self._state: MonitorState | None = None
        self._chrome = Chrome()
        self._rows: list[Row] = []
        self._strips: list[Strip] = []
        self._panel = Panel([])
        self._hits: dict[int, list[Hit]] | None = None
        self._rects: list[Rect] = []
        self._tick = -TICKS_PER_FRAME
        self._drawn: tuple[Any, ...] = ()
        self._ground = theme.style("text")

    @property
    def theme(self) -> Theme:
        return self._theme

    @theme.setter
    def theme(self, theme: Theme) -> None:
        self._theme = theme
        self._ground = theme.style("text")
        self._drawn = ()
        self.show(self._state, self._chrome)

    @property
    def visible_requests(self) -> tuple[int, ...]:
        """Keys of the request rows in the order drawn."""
        rect = next((r for r in self._rects if r.name in ("requests", "gantt")), None)
        if rect is None:
            return ()
        keys: list[int] = []
        for y in range(rect.y, rect.y + rect.height):
            for hit in self._by_row.get(y, ()):
                if hit.kind == "request" and hit.value not in keys and rect.x <= hit.x0 < rect.x + rect.width:
                    keys.append(int(hit.value))
        return tuple(keys)

    @property
    def request_order(self) -> tuple[int, ...]:
        """Keys of all requests in the order of the table, those out of sight too."""
        if self._state is None:
            return ()
        scene = Scene.of(self._state, self._chrome, self._theme)
        return tuple(line.story.key for line in lines(scene))

    @property
    def panes(self) -> tuple[str, ...]:
        """Names of the panes shown, in tab order."""
        return tuple(rect.name for rect in self._rects if rect.name not in ("keys", "alarm", "notice"))

    def rows_of(self, pane: str) -> int:
        """Rows of a pane below its two heading lines, 0 when it is not shown."""
        return next((max(0, rect.height - 2) for rect in self._rects if rect.name == pane), 0)

    @property
    def _by_row(self) -> dict[int, list[Hit]]:
        """Clickable parts by row, worked out when somebody asks."""
        if self._hits is None:
            self._hits = {}
            for hit in self._panel.hits:
                self._hits.setdefault(hit.y, []).append(hit)
        return self._hits

    def hit(self, x: int, y: int) -> Hit | None:
        """What lies under a cell."""
        found = [hit for hit in self._by_row.get(y, ()) if hit.x0 <= x < hit.x1]
        return min(found, key=lambda hit: hit.x1 - hit.x0, default=None)

    def places(self, kind: str) -> dict[int | str, tuple[int, int]]:
        """Value -> first cell (x, y) of everything of a kind that is on the screen."""
        return {hit.value: (hit.x0, y) for y, hits in self._by_row.items() for hit in hits if hit.kind == kind}

    def pane_at(self, x: int, y: int) -> str:
        """Name of the pane under a cell, "" for none."""
        for rect in self._rects:
            if rect.x <= x < rect.x + rect.width and rect.y <= y < rect.y + rect.height:
                return rect.name
        return ""

    def text(self) -> str:
        return frames.screen_text(self._rows)

    @property
    def rows(self) -> list[Row]:
        """The rows as drawn last."""
        return self._rows

    def show(self, state: MonitorState | None, chrome: Chrome, tick: int | None = None, *, wait: bool = False) -> None:
        """Bring the screen up to date with ``state`` and ``chrome``; with ``tick``, a new step waits its turn.

        ``wait``: the turn of a step that is all that is new, but for a notice, has not come.
        """
        self._state, self._chrome = state, chrome
        step = state.step if state is not None else -1
        seen = state.picture if state is not None else None
        drawn = (id(state), step, id(seen), id(state.planned) if state is not None else 0, chrome)
        if drawn == self._drawn:  # a new size forgets what was drawn
            return
        only_step = bool(self._drawn) and self._drawn[0] == drawn[0] and _as_before(chrome, self._drawn[-1])
        if tick is not None:
            if only_step and (wait or tick - self._tick < TICKS_PER_FRAME):
                return
            self._tick = tick
        width, height = self.size
        if not width or not height:
            return
        if state is None or layout.size_class(width, height) == "tiny":
            self._rects = []
            panel = frames.compose(state, chrome, self._theme, width, height)
        else:
            panel = self._draw(state, chrome, width, height)
        self._drawn = drawn
        self._accept(panel, width)

    def _draw(self, state: MonitorState, chrome: Chrome, width: int, height: int) -> Panel:
        scene = Scene.of(state, chrome, self._theme)
        self._rects = frames.plan(scene, width, height)
        panels = {rect.name: frames.draw(scene, rect, width, height) for rect in self._rects}
        return frames.assemble(self._rects, panels, width, height, self._theme)

    def _accept(self, panel: Panel, width: int) -> None:
        old, strips, dirty = self._rows, [], []
        for y, row in enumerate(panel.rows):
            if y < len(old) and (row is old[y] or row == old[y]):
                strips.append(self._strips[y])
            else:
                strips.append(Strip(row, width))
                dirty.append(y)
        self._rows, self._strips = panel.rows, strips
        self._panel, self._hits = panel, None
        if len(panel.rows) != len(old):
            self.refresh()
            return
        if dirty:
            self.refresh(*[Region(0, start, width, stop - start) for start, stop in line_runs(dirty)])

    def render_line(self, y: int) -> Strip:
        return self.line(y, self.size.width)

    def line(self, y: int, width: int) -> Strip:
        """Row ``y`` as it was drawn last, ``width`` cells of it."""
        if y < len(self._strips):
            strip = self._strips[y]
            return strip if strip.cell_length == width else strip.adjust_cell_length(width, self._ground)
        return Strip([Segment(" " * width, self._ground or Style.null())], width)

    def on_resize(self, event: events.Resize) -> None:
        self._drawn = ()
        self.show(self._state, self._chrome)

    def on_click(self, event: events.Click) -> None:
        hit = self.hit(event.x, event.y)
        if hit is not None:
            event.stop()
            self.post_message(self.Picked(hit, event.button, event.chain > 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def _wheel(self, event: events.MouseEvent, delta: int) -> None:
        pane = self.pane_at(event.x, event.y)
        if pane:
            event.stop()
            self.post_message(self.Scrolled(pane, delta))


def _as_before(chrome: Chrome, drawn: Chrome) -> bool:
    """Whether nothing differs but a notice that is no error."""
    if chrome == drawn:
        return True
    kind = chrome.notice_kind
    return kind != "error" and replace(chrome, notice=drawn.notice, notice_kind=drawn.notice_kind) == drawn

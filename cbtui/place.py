"""Where the person is: the selected request and block, the pane in focus, the step looked at."""

from dataclasses import replace
from typing import TYPE_CHECKING

from cbtui.situation import explains
from cbtui.stories import Story
from cbtui.view.chrome import Hit
from cbtui.view.requests import lines
from cbtui.view.scene import Scene

if TYPE_CHECKING:
    from cbtui.app import MonitorApp

ZOOMS = (1, 2, 4, 8, 16, 32, 64, 0)
"""Steps per cell of the Gantt chart; 0 fits all."""
BLOCKS, TIMELINE, CONFIG = 3, 4, 6
"""Modes in which the arrows mean something else than requests."""


class Place:
    """Moves through what is shown. It changes the chrome of the application and nothing else."""

    def __init__(self, app: "MonitorApp") -> None:
        self._app = app
        self._moved = False
        """the person moved the request cursor: it stays where it was put"""

    # ---- requests

    def settle(self) -> None:
        """The first request shown is selected when none is; a request that is forgotten loses the cursor.

        One that an engine before had loses it too, to the first that comes to the new one.
        """
        state, story = self._app.session.state, self._app.selected_story
        of_before = story is not None and state is not None and 0 <= story.ended <= state.border
        if story is not None and not of_before:
            self._follow(story)
            return
        self._moved = False
        shown = self._order()
        if story is not None and state is not None:
            shown = [key for key in shown if state.stories[key].arrived > state.border] or [story.key]
        key = shown[0] if shown else None
        if key != self._app.chrome.selected:
            self._app.change(selected=key)

    def _follow(self, story: Story) -> None:
        """A cursor nobody has moved goes to the first row once its request has ended and others fill the table."""
        app, rows = self._app, self._app.frame.rows_of("requests")
        if self._moved or story.ended < 0 or not rows or app.chrome.past is not None or not app.has_work:
            return
        order = self._order()
        if story.key not in order[:rows] and order and app.session.state is not None:
            first = app.session.state.stories[order[0]]
            if first.ended < 0:
                app.change(selected=first.key)

    def _order(self) -> list[int]:
        """Keys of all requests shown, those out of sight too, in the order of the table."""
        state = self._app.session.state
        if state is None:
            return []
        return [line.story.key for line in lines(Scene.of(state, self._app.chrome, self._app.look))]

    def down(self, by: int) -> None:
        """Moves what ↑ and ↓ move here: blocks, configuration fields, the pane in focus, else the request cursor."""
        chrome = self._app.chrome
        if chrome.mode == BLOCKS and chrome.focus in (None, "blocks", "map"):
            self._move_block(0, by)
        elif chrome.mode == CONFIG:
            last = max(0, len(chrome.config) - 1)
            self._app.change(config_cursor=max(0, min(last, chrome.config_cursor + by)))
        elif chrome.focus not in (None, "requests", "gantt"):
            self._scroll(chrome.focus, by)
        else:
            self._move_request(by)

    def _move_request(self, by: int) -> None:
        order, selected = self._order(), self._app.chrome.selected
        self._moved = True
        if order:
            place = order.index(selected) if selected in order else 0
            self._app.change(selected=order[max(0, min(len(order) - 1, place + by))])

    # ---- blocks

    def aside(self, by: int) -> None:
        """What ← and → move: blocks on the block page, else the step looked at."""
        if self._app.chrome.mode == BLOCKS:
            self._move_block(by, 0)
        else:
            self._app.perform("older" if by < 0 else "newer")

    def _move_block(self, dx: int, dy: int) -> None:
        """To the nearest block on the screen in a direction; without a block selected, to the first one."""
        places = {int(block): place for block, place in self._app.frame.places("block").items()}
        if not places:
            return
        now = self._app.chrome.block
        if now not in places:
            self._pick_block(min(places, key=lambda block: (places[block][1], places[block][0])))
            return
        x, y = places[now]
        if dx:
            row = [block for block, (bx, by) in places.items() if by == y and (bx - x) * dx > 0]
            if row:
                self._pick_block(min(row, key=lambda block: abs(places[block][0] - x)))
            return
        ahead = [block for block, (_, by) in places.items() if (by - y) * dy > 0]
        if ahead:
            self._pick_block(self._vertical(places, ahead, x, y, dy))

    @staticmethod
    def _vertical(places: dict[int, tuple[int, int]], ahead: list[int], x: int, y: int, dy: int) -> int:
        """The block nearest to column x in a row |dy| rows away, or in the last row there is."""
        rows = sorted({places[block][1] for block in ahead}, key=lambda row: abs(row - y))
        row = rows[min(abs(dy), len(rows)) - 1]
        return min((b for b in ahead if places[b][1] == row), key=lambda b: abs(places[b][0] - x))

    def _pick_block(self, block: int) -> None:
        """Selects a block, and the request it belongs to when there is only one."""
        state = self._app.session.state
        if state is None:
            return
        picture = state.picture if self._app.chrome.past is None else state.at(self._app.chrome.past)
        owners = {seq for seq, _ in picture.blocks[block].owners} if block < len(picture.blocks) else set()
        selected = owners.pop() if len(owners) == 1 else self._app.chrome.selected
        self._moved = self._moved or selected != self._app.chrome.selected
        self._app.change(block=block, selected=selected)

    # ---- panes

    @property
    def pane(self) -> str:
        """The pane the keys go to."""
        panes, focus = self._app.frame.panes, self._app.chrome.focus
        if focus is not None and focus in panes:
            return focus
        return "requests" if "requests" in panes else next((name for name in panes if name != "hud"), "requests")

    def turn_focus(self, by: int) -> None:
        """The next pane of the mode, round the end."""
        panes = self._app.frame.panes
        if panes:
            place = panes.index(self.pane) if self.pane in panes else -by
            self._app.change(focus=panes[(place + by) % len(panes)])

    def _scroll(self, pane: str, by: int) -> None:
        scroll = self._app.chrome.scroll
        self._app.change(scroll={**scroll, pane: max(0, scroll.get(pane, 0) + by)})

    def back(self) -> None:
        """Closes one thing that is open, the innermost first."""
        app, chrome = self._app, self._app.chrome
        if app.session.phase == "loading":
            app.session.cancel_load()
        elif chrome.difference:
            app.change(difference=False)
        elif chrome.maximised:
            app.change(maximised=None)
        elif chrome.past is not None:
            app.change(past=None, frozen=False)
        elif chrome.filter:
            app.change(filter="")
        elif chrome.block is not None:
            app.change(block=None)
        elif chrome.focus:
            app.change(focus=None)
        elif chrome.mode != 1:
            app.change(mode=1)

    # ---- time

    def go_to(self, step: int) -> None:
        """Shows a kept step; the latest one is LIVE."""
        state = self._app.session.state
        if state is not None:
            live = step >= state.step and not self._app.chrome.frozen
            self._app.change(past=None if live else max(state.oldest, min(step, state.step)))

    def move_in_time(self, by: int) -> None:
        """Shows the step ``by`` steps later than the one shown."""
        state, past = self._app.session.state, self._app.chrome.past
        if state is not None:
            self.go_to((state.step if past is None else past) + by)

    def zoom_timeline(self, direction: int) -> None:
        """More (1) or fewer (-1) steps per cell of the Gantt chart."""
        zoom = self._app.chrome.zoom
        place = ZOOMS.index(zoom) if zoom in ZOOMS else len(ZOOMS) - 1
        self._app.change(zoom=ZOOMS[max(0, min(len(ZOOMS) - 1, place + direction))])

    # ---- the mouse

    def pick(self, hit: Hit, *, double: bool = False, button: int = 1) -> None:
        """A click on something. A double click on a request shows its story; the right button explains."""
        app = self._app
        if button == 3:
            self._ask_about(hit)
            return
        if hit.kind == "key":
            app.perform(str(hit.value))
        elif hit.kind == "figure":
            app.inquiry.explain("figures", str(hit.value))
        elif hit.kind == "order":
            app.perform("order")
        elif hit.kind == "request":
            self._moved = True
            app.change(selected=int(hit.value))
            if double:
                app.perform("detail")
        elif hit.kind == "step":
            self.go_to(int(hit.value))
        elif hit.kind == "block":
            self._pick_block(int(hit.value))
        elif hit.kind == "field":
            app.change(config_cursor=int(hit.value))
            if double:
                app.perform("config")

    def _ask_about(self, hit: Hit) -> None:
        """The same as selecting it and asking why."""
        app = self._app
        if hit.kind in ("request", "step", "block"):
            self.pick(hit)
            kind = "step" if hit.kind == "step" else explains(replace(app.situation, pane="requests"))
            app.inquiry.explain(kind)
        elif hit.kind == "figure":
            self.pick(hit)

    def wheel(self, pane: str, by: int) -> None:
        """The wheel over a pane."""
        if pane == "requests":
            self._move_request(by)
        elif pane == "timeline":
            self.move_in_time(by)
        else:
            self._scroll(pane, by)

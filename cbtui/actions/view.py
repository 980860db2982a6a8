"""Actions on what is shown and how: modes, panes, the map's views and orders, themes, explanations."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cbtui.situation import explains
from cbtui.theme import THEME_NAMES
from cbtui.view.chrome import MAP_ORDERS, MAP_VIEWS

if TYPE_CHECKING:
    from cbtui.app import MonitorApp


class ViewActions:
    """Changes of the chrome; nothing here reaches the engine except the question of ``explain``."""

    def __init__(self, app: "MonitorApp") -> None:
        self._app = app
        self.mode1, self.mode2, self.mode3 = self._mode(1), self._mode(2), self._mode(3)
        self.mode4, self.mode5, self.mode6 = self._mode(4), self._mode(5), self._mode(6)

    def _mode(self, number: int) -> Callable[[], None]:
        return lambda: self._app.change(mode=number, maximised=None, focus=None)

    def next_pane(self) -> None:
        self._app.place.turn_focus(1)

    def previous_pane(self) -> None:
        self._app.place.turn_focus(-1)

    def zoom(self) -> None:
        chrome = self._app.chrome
        pane = self._app.place.pane
        self._app.change(maximised=None if chrome.maximised or pane == "hud" else pane)

    def explain(self) -> None:
        self._app.inquiry.explain(explains(self._app.situation))

    def map_view(self) -> None:
        self._app.change(map_view=self._app.turn("map_view", MAP_VIEWS, self._app.chrome.map_view))

    def map_order(self) -> None:
        self._app.change(map_order=self._app.turn("map_order", MAP_ORDERS, self._app.chrome.map_order))

    def theme(self) -> None:
        self._app.show_theme(self._app.turn("theme", THEME_NAMES, self._app.look.name))

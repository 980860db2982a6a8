"""Dialogs that show what the engine answers: why a request is where it is, what a change of configuration would do."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cbtui.configuration import ConfigChange
from cbtui.foresight import rehearsal_words
from cbtui.place import CONFIG
from cbtui.questions import ask_rehearsal
from cbtui.screens.base import MonitorScreen
from cbtui.screens.words import Words
from cbtui.situation import explains
from cbtui.view.scene import Scene

if TYPE_CHECKING:
    from cbtui.app import MonitorApp


class Inquiry:
    """Asks the engine of an application, and opens a dialog with the answer."""

    def __init__(self, app: "MonitorApp") -> None:
        self._app = app

    def explain(self, page: str, figure: str = "") -> None:
        """Explains the selected request, the step shown or the figures; the first needs the scheduler's answer,
        but for a request that is over."""
        story = self._app.selected_story
        if page == "request" and story is not None and story.ended < 0:
            self._app.session.explain(story, self._explained)
        else:
            self._show_explanation(page, None, figure)

    def _explained(self, why: Any) -> None:
        self._show_explanation("request", why)

    def _show_explanation(self, page: str, why: Any, figure: str = "") -> None:
        """An answer that comes while something else is open is dropped: nobody waits for it any more."""
        from cbtui.screens.explain import ExplainDialog

        state, story = self._app.session.state, self._app.selected_story
        if state is None or not isinstance(self._app.screen, MonitorScreen):
            return
        chrome = replace(self._app.chrome, past=None) if why is not None else self._app.chrome
        ask, ended = None, None
        if why is None and story is not None and explains(replace(self._app.situation, pane="")) == "request":
            if story.ended >= 0:
                ended = story
            else:
                ask = partial(self._app.session.explain, story)
        dialog = ExplainDialog(Scene.of(state, chrome, self._app.look).frozen(), page, why, ask, figure, ended)
        self._app.push_screen(dialog, self._do_about_it)

    def _do_about_it(self, way: tuple[str, int | None] | None) -> None:
        state = self._app.session.state
        if way is None or state is None:
            return
        kind, key = way
        if kind == "config":
            self._app.perform("config")
        elif key in state.stories:
            self._app.session.cancel(state.stories[key])

    def edit_config(self) -> None:
        """Opens the configuration editor."""
        from cbtui.screens.config import ConfigDialog

        status = self._app.session.status
        if status is not None:
            fields, place = self._app.chrome.config, self._app.chrome.config_cursor
            chosen = fields[place].name if self._app.chrome.mode == CONFIG and place < len(fields) else ""
            built, unfinished = self._app.session.built, lambda: self._app.unfinished
            plan = self._app.session.plan_restart
            dialog = ConfigDialog(self._app.look, status.config, built, unfinished, self._rehearse, plan, chosen)
            self._app.push_screen(dialog, self._app.session.apply_config)

    def _rehearse(self, change: ConfigChange, answer: Callable[[Sequence[Words]], None]) -> None:
        def told(found: Any) -> None:
            if self._app.session.state is not None:
                answer(rehearsal_words(Scene.of(self._app.session.state, self._app.chrome, self._app.look), found))

        ask_rehearsal(self._app.session, change, told)

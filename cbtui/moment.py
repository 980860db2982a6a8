"""How things stand at this moment: what the frame says of the engine, and which actions can be used."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cbtui.engine_state import LONG_STEP
from cbtui.inbox import Notice
from cbtui.keybar import hints
from cbtui.situation import Situation
from cbtui.view.chrome import Chrome, KeyHint

if TYPE_CHECKING:
    from cbtui.app import MonitorApp

NOTICE_SECONDS = 5.0
READING = 0.08
"""Seconds that a notice stays for each of its characters, where that is longer."""


class Moment:
    """Reads the session, the player and the clock of an application, and changes none of them but for notices taken."""

    def __init__(self, app: "MonitorApp") -> None:
        self._app = app
        self._notice_until = 0.0
        self._unless = ""
        self._again: list[Notice] = []
        self._hints: tuple[object, tuple[KeyHint, ...]] = (None, ())

    def refreshed(self, chrome: Chrome) -> Chrome:
        """The chrome with everything that follows from the engine and the clock; the same object if nothing differs.

        It is asked for at every beat, and mostly nothing does.
        """
        session = self._app.session
        state, notice, kind = session.state, chrome.notice, chrome.notice_kind
        now = self._app.clock()
        items = session.take_notices()
        self._again += [replace(item, again=False) for item in items if item.again]
        if now >= self._notice_until or (self._unless and self._unless == session.engine):
            notice, kind = "", "info"
            if self._again and session.phase not in ("new", "loading"):
                items.append(self._again.pop(0))
        for item in items:
            notice, kind, self._unless = item.text, item.kind, item.unless
            self._notice_until = now + max(NOTICE_SECONDS, len(item.text) * READING)
        if session.hung and not notice:
            notice, kind = f"the step does not come back, {session.hung:.0f} s now; X can give the engine up", "error"
        past = chrome.past
        if past is not None and state is not None:
            past = max(state.oldest, min(past, state.step))
        elif state is None:
            past = None
        seconds = session.step_seconds
        loading = session.loading
        chrome = changed(
            chrome,
            model=getattr(session.loaded, "name", None) or session.launch.name,
            engine="loading" if session.phase in ("new", "loading") else session.shown_engine,
            error=session.shown_error,
            past=past,
            frozen=chrome.frozen and past is not None,
            rate=session.rate,
            step_seconds=round(seconds, 1) if seconds > LONG_STEP else None,
            notice=notice,
            notice_kind=kind,
            loading=None if loading is None else replace(loading, seconds=round(loading.seconds, 1)),
            block_bytes=session.block_bytes,
            config=session.config_fields,
            caption=self._app.player.line(past, self._app.keys),
        )
        return changed(chrome, keys=self._key_bar(chrome))

    def _key_bar(self, chrome: Chrome) -> tuple[KeyHint, ...]:
        """The hints as they were made last, until something they depend on differs."""
        keys = self._app.keys
        asked = (self.situation(chrome), chrome.mode, keys)
        if asked != self._hints[0]:
            self._hints = (asked, hints(asked[0], chrome.mode, keys))
        return self._hints[1]

    def situation(self, chrome: Chrome) -> Situation:
        """What decides which actions can be used now."""
        session, story = self._app.session, self._app.selected_story
        state = session.state
        return Situation(
            phase="loading" if session.phase == "new" else session.phase,
            loaded=session.loaded is not None,
            engine=session.engine,
            past=None if chrome.frozen else chrome.past,
            frozen=chrome.frozen,
            kept=0 if state is None or not state.step else min(2, state.step - state.oldest + 1),
            selected=None if story is None else story.label,
            selected_ended=story is not None and story.ended >= 0,
            mark=chrome.mark,
            can_undo=session.can_undo,
            has_work=self._app.has_work,
            rate=session.rate,
            mode=chrome.mode,
            pane=self._app.place.pane,
            hung=session.hung,
            scenario=self._app.player.title,
            played=self._app.player.scenario is not None,
        )


def changed(chrome: Chrome, **fields: Any) -> Chrome:
    """The chrome with these fields; itself where they are what it has."""
    if all(getattr(chrome, name) == value for name, value in fields.items()):
        return chrome
    return replace(chrome, **fields)

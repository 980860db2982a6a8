"""Actions in time: scrub through kept steps, freeze, preview, mark and compare."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cbtui.app import MonitorApp


class TimeActions:
    """Moves the view in time; the engine is not touched."""

    def __init__(self, app: "MonitorApp") -> None:
        self._app = app
        self._session = app.session

    def older(self) -> None:
        self._app.place.move_in_time(-1)

    def newer(self) -> None:
        self._app.place.move_in_time(1)

    def older10(self) -> None:
        self._app.place.move_in_time(-10)

    def newer10(self) -> None:
        self._app.place.move_in_time(10)

    def oldest(self) -> None:
        state = self._session.state
        if state is not None:
            self._app.place.go_to(state.oldest)

    def live(self) -> None:
        self._app.change(past=None, frozen=False)

    def left(self) -> None:
        self._app.place.aside(-1)

    def right(self) -> None:
        self._app.place.aside(1)

    def freeze(self) -> None:
        state, chrome = self._session.state, self._app.chrome
        if chrome.frozen:
            self.live()
        elif state is not None:
            self._app.change(frozen=True, past=state.step if chrome.past is None else chrome.past)

    def preview(self) -> None:
        self._app.want_preview = not self._app.want_preview
        self._session.say("the next step is previewed" if self._app.want_preview else "no more previews")

    def mark(self) -> None:
        state, chrome = self._session.state, self._app.chrome
        if state is not None:
            step = state.step if chrome.past is None else chrome.past
            self._app.change(mark=step)
            self._session.say(f"step {step} is A; M shows the difference to the step you look at")

    def difference(self) -> None:
        state, chrome = self._session.state, self._app.chrome
        opens = not chrome.difference
        self._app.change(difference=opens)
        step = chrome.past if chrome.past is not None or state is None else state.step
        if opens and step == chrome.mark:
            self._session.say(f"step {step} is both A and B; M compares A with another step, [ and ] go there")
        elif opens and chrome.past is None:
            self._session.say(f"M compares step {chrome.mark} with one of the past, [ goes there")

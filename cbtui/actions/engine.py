"""Actions on the engine: pause, steps, pace, the stop ladder, start again, configuration."""

from typing import TYPE_CHECKING

from cbtui.forms import FormField, whole
from cbtui.keys import key_name
from cbtui.screens.small import Choice, ChoiceDialog, ConfirmDialog, ValueDialog

if TYPE_CHECKING:
    from cbtui.app import MonitorApp


class EngineActions:
    """Commands to the engine; each is queued and comes back as an acknowledgement in a step record."""

    def __init__(self, app: "MonitorApp") -> None:
        self._app = app
        self._session = app.session
        self._count = 10

    def pause(self) -> None:
        self._session.command("resume" if self._session.engine == "held" else "hold")

    def step(self) -> None:
        self._session.command("step_once", 1)

    def steps(self) -> None:
        field = FormField("steps", "steps", whole("steps", 1, 1_000_000), 10)
        dialog = ValueDialog(self._app.look, "Run n steps", "then pause", field, str(self._count))
        self._app.push_screen(dialog, self._run_steps)

    def _run_steps(self, count: int | None) -> None:
        if count is not None:
            self._count = count
            self._session.command("step_once", count)

    def run_until(self) -> None:
        choices = [
            Choice("a preemption", "somebody loses its cache", ("preemption", None)),
            Choice("an offload", "somebody moves to the CPU pool", ("offload", None)),
            Choice("a first token", "of any request", ("first_token", None)),
            Choice("the end of a request", "whatever its reason", ("end", None)),
            Choice("few free blocks", "asks how few", ("free_below", 0)),
            Choice("a broken invariant", "the engine's own bookkeeping", ("invariant", None)),
        ]
        self._app.push_screen(ChoiceDialog(self._app.look, "Run until", "then pause", choices), self._until)

    def _until(self, choice: tuple[str, int | None] | None) -> None:
        if choice is None:
            return
        if choice[0] != "free_below":
            self._session.run_until(*choice)
            return
        field = FormField("blocks", "fewer free blocks than", whole("blocks", 1), 10)
        dialog = ValueDialog(self._app.look, "Run until few blocks are free", "then pause", field, "10")
        self._app.push_screen(dialog, self._until_free)

    def _until_free(self, blocks: int | None) -> None:
        if blocks is not None:
            self._session.run_until("free_below", blocks)

    def slower(self) -> None:
        if self._app.chrome.mode == 4:
            self._app.place.zoom_timeline(1)
        else:
            self._session.change_pace(-1)

    def faster(self) -> None:
        if self._app.chrome.mode == 4:
            self._app.place.zoom_timeline(-1)
        else:
            self._session.change_pace(1)

    def stop(self) -> None:
        self._session.stop()

    def hard_stop(self) -> None:
        """Confirms first. When a stop was already asked for and the step still hangs, offers to give the engine up."""
        session = self._session
        if session.hung:
            dialog = ConfirmDialog(self._app.look, "Give the engine up?", self._hanging, "give it up")
            self._app.push_screen(dialog, lambda yes: session.detach() if yes else None)
            return
        dialog = ConfirmDialog(self._app.look, "Stop everything now?", self._losses, "stop all")
        self._app.push_screen(dialog, lambda yes: session.hard_stop() if yes else None)

    def _hanging(self) -> list[str]:
        return [
            f"The step in progress has not come back for {self._session.step_seconds:.0f} s.",
            "Giving up leaves its thread and its memory behind; S can then start a new engine.",
        ]

    def _losses(self) -> list[str]:
        count = self._app.unfinished
        who = f"{count} request{'s' if count != 1 else ''}" if count else "No request"
        lost = f"{who} would be lost."
        return ["Unfinished requests fail with a reason; what they wrote so far is kept.", lost]

    def start(self) -> None:
        if self._session.phase == "failed" and self._session.loaded is None:
            self._session.load()
        else:
            self._session.restart()
            past = self._app.chrome.past
            back = "" if past is None else f"; step {past} is shown, {key_name(self._app.keys['live'][0])} goes live"
            self._session.say(f"the engine starts again{back}")

    def config(self) -> None:
        self._app.inquiry.edit_config()

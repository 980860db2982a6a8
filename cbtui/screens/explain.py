"""The explain dialog: why a request is where it is, and what would change that."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from cbtui.screens.base import Dialog
from cbtui.view.explain import explain
from cbtui.view.scene import Scene
from cbtui.widgets import RowsView

if TYPE_CHECKING:
    from engine.core.forecast import Explanation

Way = tuple[str, int | None]
"""What the person wants to do about it: ("config", None), or ("cancel", key of the sequence to cancel)."""


class ExplainDialog(Dialog[Way]):
    """Answers with what to do about it, or None. The scene is as of the answer; it does not move on."""

    SIZE = "-wide"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("e,q,enter", "give_up", "close"),
        ("comma", "config", "change the configuration"),
        ("c", "cancel", "cancel the one named"),
        ("up", "scroll(-1)", "up"),
        ("down", "scroll(1)", "down"),
        ("pageup", "scroll(-10)", "page up"),
        ("pagedown", "scroll(10)", "page down"),
    ]

    def __init__(self, scene: Scene, why: "Explanation") -> None:
        super().__init__(scene.theme)
        self._scene, self._why = scene, why
        self._rows = RowsView(ground=scene.theme.style("text", "panel"))
        self._rows.styles.height = "auto"

    def body(self) -> Iterable[Widget]:
        yield self._rows

    def on_mount(self) -> None:
        self.call_after_refresh(self._fill)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        width = self._rows.size.width
        if width > 0:
            self._rows.show(explain(self._scene, self._why, width).rows)

    def action_config(self) -> None:
        self.dismiss(("config", None))

    def action_cancel(self) -> None:
        """Only where a dry run says whom to cancel."""
        for trial in self._why.trials:
            if trial.kind == "cancel" and isinstance(trial.value, int):
                self.dismiss(("cancel", trial.value))
                return

    def action_scroll(self, by: int) -> None:
        self.query_one(".frame", VerticalScroll).scroll_relative(y=by, animate=False)

"""The explain dialog: why a request is where it is, why a step looks as it does, what the figures mean."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widget import Widget

from cbtui.screens.base import Dialog
from cbtui.screens.fields import Switcher
from cbtui.stories import Story
from cbtui.view.cells import Row, RowBuilder
from cbtui.view.explain import explain
from cbtui.view.explain_end import end_rows
from cbtui.view.explain_step import step_rows
from cbtui.view.figures import figure_rows
from cbtui.view.scene import Scene
from cbtui.widgets import RowsView

if TYPE_CHECKING:
    from engine.core.forecast import Explanation

Way = tuple[str, int | None]
"""What the person wants to do about it: ("config", None), or ("cancel", key of the sequence to cancel)."""
Ask = Callable[[Callable[["Explanation"], None]], None]
"""Asks the scheduler about the selected request and calls back with its answer."""


class ExplainDialog(Dialog[Way]):
    """Answers with what to do about it, or None. The scene is as of the answer; it does not move on.

    Args:
        scene: the moment to explain.
        page: "request", "step" or "figures".
        why: the scheduler's answer about the request, when it is there. ask: how to get it; None leaves the page out.
        figure: name of the figure to begin with. ended: the request when it is over, and nobody need be asked.
    """

    SIZE = "-wide"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("e,q,enter", "give_up", "close"),
        ("comma", "config", "change the configuration"),
        ("c", "cancel", "cancel the one named"),
        ("left", "turn(-1)", "page before"),
        ("right", "turn(1)", "next page"),
        ("up", "scroll(-1)", "up"),
        ("down", "scroll(1)", "down"),
        ("pageup", "scroll(-10)", "page up"),
        ("pagedown", "scroll(10)", "page down"),
    ]

    def __init__(
        self, scene: Scene, page: str, why: "Explanation | None" = None, ask: Ask | None = None, figure: str = "",
        ended: Story | None = None,
    ) -> None:  # fmt: skip
        super().__init__(scene.theme)
        self._scene, self._why, self._ask, self._figure, self._ended = scene, why, ask, figure, ended
        self._pages = (["request"] if (why, ask, ended) != (None, None, None) else []) + ["step", "figures"]
        words = {"request": "request", "step": f"step {scene.step}", "figures": "figures"}
        index = self._pages.index(page)
        self._switch = Switcher([words[name] for name in self._pages], index, scene.theme, id="page")
        self._switch.can_focus = False
        self._rows = RowsView(ground=scene.theme.style("text", "panel"))
        self._rows.styles.height = "auto"

    @property
    def page(self) -> str:
        """The page shown."""
        return self._pages[self._switch.index]

    def body(self) -> Iterable[Widget]:
        keys = [("tab", "bold"), (" next page  ", "muted"), ("esc", "bold"), (" closes", "muted")]
        yield Horizontal(
            self.words([("Why?  ", "bold")], classes="label"), self._switch, self.words([], classes="fill"),
            self.words(keys, classes="label"), classes="row",
        )  # fmt: skip
        yield self.gap()
        yield self._rows

    def on_mount(self) -> None:
        self.query_one(".frame").styles.scrollbar_gutter = "stable"  # rows are made for the width without it
        self.call_after_refresh(self._fill)

    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self._fill)

    @on(Switcher.Turned)
    def _fill(self) -> None:
        width = self._rows.size.width
        if width <= 0:
            return
        rows, first = self._drawn(width)
        self._rows.show(rows)
        self.call_after_refresh(self._begin_at, first)

    def _drawn(self, width: int) -> tuple[list[Row], int]:
        """The rows of the page, and the one to begin with."""
        if self.page == "step":
            return step_rows(self._scene, width), 0
        if self.page == "figures":
            rows, starts = figure_rows(self._scene, width, self._figure)
            return rows, starts.get(self._figure, 0)
        if self._ended is not None:
            return end_rows(self._scene, self._ended, width), 0
        if self._why is None:
            if self._ask is not None:
                self._ask(self._answered)
                self._ask = None
            words = "the scheduler is asked; the answer comes between two steps"
            return [RowBuilder(width, self.look.style("muted", "panel")).put(words[:width]).done()], 0
        return explain(self._scene, self._why, width).rows, 0

    def _answered(self, why: "Explanation") -> None:
        self._why = why
        if self.is_attached:
            self._fill()

    def _begin_at(self, row: int) -> None:
        self.query_one(".frame", VerticalScroll).scroll_to(y=row + 2 if row else 0, animate=False)

    def turns_focus(self, key: str) -> bool:
        """There is nothing to move to: tab goes through the pages."""
        if key not in ("tab", "shift+tab"):
            return False
        self.action_turn(1 if key == "tab" else -1)
        return True

    def action_turn(self, by: int) -> None:
        self._switch.action_turn(by)

    def action_config(self) -> None:
        self.dismiss(("config", None))

    def action_cancel(self) -> None:
        """Only where a dry run says whom to cancel."""
        if self.page != "request" or self._why is None:
            return
        for trial in self._why.trials:
            if trial.kind == "cancel" and isinstance(trial.value, int):
                self.dismiss(("cancel", trial.value))
                return

    def action_scroll(self, by: int) -> None:
        self.query_one(".frame", VerticalScroll).scroll_relative(y=by, animate=False)

"""What all dialogs share (a framed column, styled words, fields with their error below), and the screen below them."""

from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from cbtui.screens.fields import FieldCell, FieldRow
from cbtui.screens.words import Words, say
from cbtui.theme import Theme
from cbtui.widgets.frame import Frame

Answer = TypeVar("Answer")

COLUMN_WIDTH = 90
"""Below this many columns the fields of a dialog stand below each other."""
TIGHT_WIDTH, TIGHT_HEIGHT = 60, 18
"""On a smaller screen the line that says how to close a dialog may be out of sight: its frame says so too."""
CSS = """
Dialog { align: center middle; background: $cb-bg 74%; }
Dialog > .frame {
    width: 94; max-width: 100%; height: auto; max-height: 100%; padding: 0 2;
    background: $cb-panel; color: $cb-text; border: round $cb-faint; scrollbar-size-vertical: 1;
    border-subtitle-color: $cb-muted; border-subtitle-background: $cb-panel;
    scrollbar-color: $cb-faint; scrollbar-background: $cb-panel; scrollbar-color-hover: $cb-muted;
    scrollbar-background-hover: $cb-panel; scrollbar-background-active: $cb-panel;
}
Dialog.-ascii > .frame { border: ascii $cb-faint; }
Dialog.-wide > .frame { width: 108; }
Dialog.-narrow > .frame { width: 64; }
Dialog Static { height: auto; background: $cb-panel; text-wrap: nowrap; text-overflow: ellipsis; }
Dialog Static.wrapped { text-wrap: wrap; }
Dialog .gap { height: 1; }
Dialog .row { height: auto; width: 1fr; layout: horizontal; }
Dialog .cell { height: 1; width: auto; margin-right: 3; layout: horizontal; }
Dialog .cell > Static { width: auto; }
Dialog FieldRow { height: auto; width: 1fr; }
Dialog FieldRow > .error { width: 1fr; }
Dialog .fill { width: 1fr; }
Dialog .fact { width: auto; margin-left: 3; }
Dialog .error { color: $cb-vermilion; display: none; width: auto; text-style: bold; }
Dialog .error.-shown { display: block; }
Dialog .error.wrapped { width: 1fr; }
Dialog .error.under { padding-left: 3; }
Dialog Input, Dialog Input:focus {
    border: none; height: 1; padding: 0 1; background: $cb-lift; color: $cb-text; margin-left: 1;
}
Dialog Input:focus { background: $cb-select; color: $cb-bright; }
Dialog Input.-wrong, Dialog Input.-wrong:focus { background: $cb-invalid; color: $cb-vermilion; text-style: bold; }
Dialog Input > .input--cursor { background: $cb-bright; color: $cb-bg; text-style: none; }
Dialog TextArea, Dialog TextArea:focus { background: $cb-lift; color: $cb-text; border: none; padding: 0 1; }
Dialog TextArea { height: 5; }
Dialog.-low TextArea { height: 3; }
Dialog TextArea > .text-area--cursor { background: $cb-bright; color: $cb-bg; }
Dialog TextArea > .text-area--selection, Dialog Input > .input--selection { background: $cb-steel2; }
Dialog Switcher { width: auto; height: 1; margin-left: 1; }
Dialog Press { width: auto; height: 1; margin-right: 2; }
Dialog .label { width: auto; }
Dialog .before { width: 43; }
Dialog OptionList, Dialog OptionList:focus {
    background: $cb-panel; border: none; height: auto; max-height: 16; padding: 0;
}
Dialog OptionList > .option-list--option-highlighted,
Dialog OptionList:focus > .option-list--option-highlighted { background: $cb-select; text-style: none; }
Dialog.-filter { align: center bottom; background: transparent; }
Dialog.-filter > .frame { width: 100%; border: none; padding: 0 1; }
Dialog.-reading > .frame { width: 108; height: 90%; overflow: hidden; }
Dialog.-reading #lines {
    height: 1fr; margin-top: 1; background: $cb-panel; scrollbar-size-vertical: 1;
    scrollbar-color: $cb-faint; scrollbar-background: $cb-panel;
}
Dialog.-column .cell { width: 1fr; margin-right: 0; }
Dialog.-column .cell > Static { width: 1fr; }
Dialog.-column FieldRow > .row { layout: vertical; }
Dialog.-low .gap, Dialog.-low #output { display: none; }
"""


class MonitorScreen(Screen[None], inherit_bindings=False):
    """The screen below all dialogs. It has no keys of its own, so that every key is an action of the registry."""

    def _compositor_refresh(self) -> None:
        """Changed lines of the frame go straight to the terminal while nothing lies over it.

        Textual would cut every line into the parts of its widgets and put them together again, which costs as much as
        making the lines. Whatever else is to be painted goes its way.
        """
        compositor, app, width = self._compositor, self.app, self.size.width
        rows = compositor._dirty_regions
        frame = next(iter(self.children), None)
        if (
            self is not app.screen
            or app.is_inline
            or not isinstance(frame, Frame)
            or frame.region != self.region
            or self.region in rows
            or any(cut[1:2] != [width] for cut in compositor.cuts)
        ):
            super()._compositor_refresh()
            return
        lines = {y: frame.line(y, width) for y in sorted({y for region in rows for y in region.line_range})}
        rows.clear()
        self._dirty_widgets.clear()
        if lines:
            app.show_lines(self, lines)  # type: ignore[attr-defined]
        app._update_mouse_over(self)


class Dialog(ModalScreen[Answer]):
    """A modal dialog. Subclasses fill ``body``; escape gives no answer."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "give_up", "close")]
    SIZE: ClassVar[str] = ""
    GAP_HEIGHT: ClassVar[int] = 0
    """Below this many rows the blank rows go."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(classes=self.SIZE)
        self.set_class(not theme.glyphs.unicode, "-ascii")
        self.look = theme
        self.ready = False
        self.early: list[events.Key] = []
        """keys typed before the dialog stood"""

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="frame", can_focus=False):
            yield from self.body()

    def body(self) -> Iterable[Widget]:
        """The widgets of the dialog from top to bottom."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.call_after_refresh(self._stand)

    def _stand(self) -> None:
        """The dialog is there and the focus is set: what was typed meanwhile comes in, in order."""
        self.ready = True
        for event in self.early:
            if not self.turns_focus(event.key):
                (self.focused or self)._forward_event(event)
        self.early.clear()

    def beat(self) -> None:
        """Called once per tick while it is open: what it says about the engine is brought up to date."""

    def turns_focus(self, key: str) -> bool:
        """Moves the focus at once for tab and shift+tab. As a binding it would wait behind keys typed after it."""
        if key not in ("tab", "shift+tab"):
            return False
        (self.focus_next if key == "tab" else self.focus_previous)()
        return True

    def on_resize(self) -> None:
        self.set_class(self.size.height < self.GAP_HEIGHT, "-low")
        self.set_class(self.size.width < COLUMN_WIDTH, "-column")
        tight = self.size.width < TIGHT_WIDTH or self.size.height < TIGHT_HEIGHT
        self.query_one(".frame").border_subtitle = "esc closes" if tight else ""

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Closes it with an answer; a second answer, typed before it was gone, is dropped."""
        return super().dismiss(result) if self.is_current else AwaitComplete.nothing()

    def action_give_up(self) -> None:
        self.dismiss(None)

    def words(self, words: Words, **kwargs: Any) -> Static:
        """A line of styled words."""
        return Static(say(self.look, words), markup=False, **kwargs)

    def gap(self) -> Static:
        """A blank row, the first thing to go on a low screen."""
        return Static("", classes="gap")

    def section(self, title: str, fact: str = "", *beside: Widget, id: str | None = None) -> Widget:
        """A heading with a rule and what belongs at its right."""
        line = Rule(title, fact, self.look)
        line.styles.width = "1fr"
        return Horizontal(line, *beside, classes="row", id=id)

    def write(self, selector: str, words: Words) -> None:
        """New words for a line that is there."""
        self.query_one(selector, Static).update(say(self.look, words))

    def show_errors(self, errors: dict[str, str]) -> None:
        """Marks the fields in error and writes the sentence below each; all others lose theirs."""
        for row in self.query(FieldRow):
            row.show_errors(errors)

    def texts(self) -> dict[str, str]:
        """What stands in the fields now."""
        return {cell.field.name: cell.input.value for cell in self.query(FieldCell)}


class Rule(Static):
    """TITLE  fact ─────, as wide as there is room."""

    def __init__(self, title: str, fact: str, theme: Theme) -> None:
        super().__init__("", markup=False)
        self._title, self.fact, self._look = title, fact, theme

    def render(self) -> Text:
        words = [(self._title, "bold"), (f"  {self.fact}" if self.fact else "", "muted")]
        text = say(self._look, words)
        left = self.size.width - text.cell_len - 1
        if left > 0:
            text.append(" " + self._look.glyphs.rule * left, self._look.style("rule", "panel"))
        return text

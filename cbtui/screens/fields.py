"""What people fill in and press in a dialog."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Static

from cbtui.forms import FormField
from cbtui.screens.inorder import Field, InOrder
from cbtui.screens.words import say
from cbtui.theme import Theme


class FieldCell(Horizontal):
    """A label and an input of one line."""

    def __init__(self, field: FormField, value: str, theme: Theme) -> None:
        super().__init__(classes="cell")
        self.field = field
        self._look = theme
        self.input = Field(value, select_on_focus=False, compact=True, id=field.name)
        self.input.styles.width = field.width
        self.input.cursor_blink = False

    def compose(self) -> ComposeResult:
        yield Static(say(self._look, [(self.field.label, "muted")]), markup=False)
        yield self.input


class FieldRow(Vertical):
    """Fields beside each other, and below them a sentence for each that is wrong, starting under its field."""

    def __init__(self, fields: Sequence[FormField], texts: Mapping[str, str], theme: Theme) -> None:
        super().__init__()
        self._cells = [FieldCell(field, texts[field.name], theme) for field in fields]
        self._look = theme
        self._errors = Static("", markup=False, classes="error")

    def compose(self) -> ComposeResult:
        yield Horizontal(*self._cells, classes="row")
        yield self._errors

    def show_errors(self, errors: Mapping[str, str]) -> None:
        """Takes the sentences for its own fields; the others lose theirs."""
        corner = self._look.glyphs.bracket_left if self._look.glyphs.unicode else "^"
        lines = []
        for cell in self._cells:
            sentence = errors.get(cell.field.name, "")
            cell.input.set_class(bool(sentence), "-wrong")
            if sentence:
                line = f"{corner} {sentence}"
                indent = min(cell.region.x - self.region.x, self.size.width - len(line))
                lines.append(" " * max(0, indent) + line)
        self._errors.set_class(bool(lines), "-shown")
        self._errors.update("\n".join(lines))


class Switcher(InOrder, Static, can_focus=True):
    """A choice of a few words beside each other; space, enter, ← and → change it, a click takes the word clicked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("space,right,enter", "turn(1)", "next"),
        ("left", "turn(-1)", "before"),
    ]

    def __init__(self, words: Sequence[str], index: int, theme: Theme, *, id: str | None = None) -> None:
        super().__init__("", markup=False, id=id)
        self._words, self.index, self._look = tuple(words), index, theme

    @property
    def value(self) -> str:
        return self._words[self.index]

    def render(self) -> Text:
        text = Text(no_wrap=True, end="")
        for number, word in enumerate(self._words):
            style = self._look.style("muted", "lift")
            if number == self.index:
                style = self._look.style("on_ink", "on", bold=True, underline=self.has_focus)
            text.append(f" {word} ", style)
        return text

    def get_content_width(self, container: Any, viewport: Any) -> int:
        return sum(len(word) + 2 for word in self._words)

    def action_turn(self, by: int) -> None:
        self.index = (self.index + by) % len(self._words)
        self.refresh()
        self.post_message(self.Turned(self))

    def on_click(self, event: Any) -> None:
        end = 0
        for number, word in enumerate(self._words):
            end += len(word) + 2
            if event.x < end:
                self.action_turn(number - self.index)
                return

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    class Turned(Message):
        """The choice was changed by hand."""

        def __init__(self, switcher: "Switcher") -> None:
            super().__init__()
            self.switcher = switcher

        @property
        def control(self) -> "Switcher":
            return self.switcher


class Press(InOrder, Static, can_focus=True):
    """A button: enter, space or a click press it. While it is off it says so by its look and does nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter,space", "press", "press")]

    def __init__(self, label: str, theme: Theme, *, id: str, on: bool = True) -> None:
        super().__init__("", markup=False, id=id)
        self._label, self._look, self.on = label, theme, on

    def set(self, label: str | None = None, on: bool | None = None) -> None:
        """Changes its words, and whether it can be pressed."""
        self._label = self._label if label is None else label
        self.on = self.on if on is None else on
        self.refresh(layout=True)

    def render(self) -> Text:
        style = self._look.style("bright" if self.on else "faint", "lift")
        if self.on and self.has_focus:
            style = self._look.style("on_ink", "on", bold=True)
        return Text(f"  {self._label}  ", style, no_wrap=True, end="")

    def get_content_width(self, container: Any, viewport: Any) -> int:
        return len(self._label) + 4

    def action_press(self) -> None:
        if self.on:
            self.post_message(self.Pressed(self))

    def on_click(self) -> None:
        self.action_press()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    class Pressed(Message):
        """The button was pressed while it was on."""

        def __init__(self, press: "Press") -> None:
            super().__init__()
            self.press = press

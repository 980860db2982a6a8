"""Small dialogs: one number, one choice, a yes or no."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from cbtui.forms import FormField
from cbtui.screens.base import Dialog
from cbtui.screens.fields import FieldRow
from cbtui.screens.inorder import Field
from cbtui.screens.words import Words, say
from cbtui.theme import Theme


class ConfirmDialog(Dialog[bool]):
    """Answers True only for `y`. Enter, space and every other key mean no harm and do nothing."""

    SIZE = "-narrow"
    BINDINGS: ClassVar[list[BindingType]] = [("y", "yes", "yes"), ("n", "give_up", "no")]

    def __init__(self, theme: Theme, title: str, lines: Callable[[], Sequence[str]], yes: str) -> None:
        super().__init__(theme)
        self._title, self._lines, self._yes = title, lines, yes
        self._shown: list[str] = []

    def body(self) -> Iterable[Widget]:
        yield self.words([(self._title, "bold")])
        yield self.gap()
        self._shown = list(self._lines())
        yield Static(self._text(), markup=False, classes="wrapped", id="lines")
        yield self.gap()
        yield self.words([("y", "bold"), (f" {self._yes}", "vermilion"), ("    n", "bold"), (" no", "muted")])

    def _text(self) -> Text:
        return say(self.look, [("\n".join(self._shown), "text")], wrap=True)

    def beat(self) -> None:
        """What would be lost changes while nobody answers."""
        lines = list(self._lines())
        if lines != self._shown:
            self._shown = lines
            self.query_one("#lines", Static).update(self._text())

    def action_yes(self) -> None:
        self.dismiss(True)


class ValueDialog(Dialog[Any]):
    """Answers with one value read from a field."""

    SIZE = "-narrow"

    def __init__(self, theme: Theme, title: str, note: str, field: FormField, value: str) -> None:
        super().__init__(theme)
        self._title, self._note, self._field, self._value = title, note, field, value

    def body(self) -> Iterable[Widget]:
        yield self.words([(self._title, "bold"), (f"   {self._note}", "muted")])
        yield self.gap()
        yield FieldRow((self._field,), {self._field.name: self._value}, self.look)
        yield self.gap()
        yield self.words([("enter", "bold"), (" go", "muted"), ("    esc", "bold"), (" cancel", "muted")])

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.focus()
        field.action_select_all()

    @on(Input.Submitted)
    def _submit(self) -> None:
        try:
            value = self._field.read(self.query_one(Input).value)
        except ValueError as error:
            self.show_errors({self._field.name: str(error)})
            return
        self.dismiss(value)


@dataclass(frozen=True, slots=True)
class Choice:
    """One line to choose from; ``value`` is the answer."""

    label: str
    note: str
    value: Any


class ChoiceDialog(Dialog[Any]):
    """Answers with the value of the line chosen with ↑ ↓ and enter, or with its number, or by a click."""

    SIZE = "-narrow"

    def __init__(self, theme: Theme, title: str, note: str, choices: Sequence[Choice]) -> None:
        super().__init__(theme)
        self._title, self._note, self._choices = title, note, choices

    def body(self) -> Iterable[Widget]:
        yield self.words([(self._title, "bold"), (f"   {self._note}", "muted")])
        yield self.gap()
        options = [Option(say(self.look, self._line(n, c)), id=str(n)) for n, c in enumerate(self._choices, start=1)]
        yield OptionList(*options, compact=True, markup=False)
        yield self.gap()
        yield self.words([("enter", "bold"), (" choose", "muted"), ("    esc", "bold"), (" cancel", "muted")])

    def _line(self, number: int, choice: Choice) -> Words:
        return [(f" {number}  ", "bold"), (f"{choice.label:<22}", "text"), (choice.note, "muted")]

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_key(self, event: Any) -> None:
        if event.character and event.character.isdigit() and 1 <= int(event.character) <= len(self._choices):
            event.stop()
            self.dismiss(self._choices[int(event.character) - 1].value)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index].value)


class FilterDialog(Dialog[str]):
    """Types the request filter; what is typed takes effect at once. Enter keeps it, escape drops it."""

    SIZE = "-filter"

    def __init__(self, theme: Theme, value: str, changed: Callable[[str], None]) -> None:
        super().__init__(theme)
        self._value, self._changed = value, changed

    def body(self) -> Iterable[Widget]:
        field = Field(self._value, select_on_focus=False, compact=True, id="filter")
        field.cursor_blink = False
        field.styles.width = "1fr"
        yield Horizontal(
            self.words([("/", "bold"), (" filter", "muted")], classes="label"), field,
            self.words([("  enter", "bold"), (" keep  ", "muted"), ("esc", "bold"), (" drop", "muted")],
            classes="label"), classes="row",
        )  # fmt: skip

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._changed(event.value)

    @on(Input.Submitted)
    def _keep(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

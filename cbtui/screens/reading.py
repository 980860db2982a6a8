"""Dialogs to read: keys, glossary, help of a pane. What is typed searches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events, on
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Input, Static

from cbtui.keys import GROUPS, Situation, key_name
from cbtui.screens.base import Dialog
from cbtui.screens.words import Words, say
from cbtui.theme import Theme

Find = Callable[[str], Sequence[Words]]
"""Lines that hold a text (all of them for "")."""


class ReadingDialog(Dialog[None]):
    """Lines under a search field. Letters search, ↑ ↓ and page keys scroll, escape closes."""

    SIZE = "-reading"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("up", "scroll(-1)", "up"),
        ("down", "scroll(1)", "down"),
        ("pageup", "scroll(-10)", "page up"),
        ("pagedown", "scroll(10)", "page down"),
    ]

    def __init__(self, theme: Theme, title: str, find: Find, *, search: bool = True) -> None:
        super().__init__(theme)
        self._title, self._find, self._search = title, find, search

    def body(self) -> Iterable[Widget]:
        tail = "   type to search, esc closes" if self._search else "   esc closes"
        yield self.words([(self._title, "bold"), (tail, "muted")])
        if self._search:
            field = Input("", select_on_focus=False, compact=True, id="search")
            field.cursor_blink = False
            field.styles.width = 40
            field.styles.margin = 0
            yield field
        with VerticalScroll(id="lines", can_focus=False):
            yield Static("", markup=False, id="text", classes="wrapped")

    def on_mount(self) -> None:
        if self._search:
            self.query_one("#search", Input).focus()
        self._fill("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._fill(event.value)

    @on(Input.Submitted)
    def _done(self) -> None:
        self.dismiss(None)

    def on_key(self, event: events.Key) -> None:
        """Without a search field any letter that opened it closes it again."""
        if not self._search and event.key in ("q", "enter", "f1", "g"):
            event.stop()
            self.dismiss(None)

    def _fill(self, text: str) -> None:
        lines = self._find(text.strip()) or [[("nothing found", "muted")]]
        page = Text("\n", end="").join([say(self.look, line, wrap=True) for line in lines])
        self.query_one("#text", Static).update(page)
        self.query_one("#lines").scroll_home(animate=False)

    def action_scroll(self, by: int) -> None:
        self.query_one("#lines").scroll_relative(y=by, animate=False)


def find_keys(now: Situation, keys: Mapping[str, tuple[str, ...]]) -> Find:
    """Searches every action by its keys, words and group; what cannot be used now says why."""

    def find(text: str) -> list[Words]:
        lines: list[Words] = []
        for group, actions in GROUPS.items():
            found: list[Words] = []
            for action in actions:
                names = " ".join(key_name(key) for key in keys[action.id])
                if text.lower() not in f"{names} {action.label} {action.help} {group}".lower():
                    continue
                reason = action.check(now)
                line = [(f" {names:<8} ", "bold"), (f"{action.label:<12} ", "text"), (action.help, "muted")]
                found.append([*line, (f"  Not now: {reason}.", "amber")] if reason else line)
            if found:
                lines += [[(group.upper(), "bold")], *found, [("", "muted")]]
        return lines[:-1]

    return find


def find_terms(terms: Mapping[str, str]) -> Find:
    """Searches a glossary."""

    def find(text: str) -> list[Words]:
        return [
            [(f" {term:<22} ", "bold"), (meaning, "text")]
            for term, meaning in terms.items()
            if text.lower() in f"{term} {meaning}".lower()
        ]

    return find


def plain_lines(lines: Sequence[str]) -> Find:
    """Fixed lines."""
    return lambda text: [[(line, "text")] for line in lines]

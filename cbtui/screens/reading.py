"""Dialogs to read: keys, glossary, help of a pane. What is typed searches."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events, on
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Input, Static

from cbtui.keys import GROUPS, Action, key_name
from cbtui.screens.base import Dialog
from cbtui.screens.inorder import Field
from cbtui.screens.words import Words, say
from cbtui.situation import Situation
from cbtui.theme import Theme


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to read: ``head`` stays on the left, ``body`` is broken into lines beside it."""

    head: Words
    body: Words = ()


Find = Callable[[str], Sequence[Entry]]
"""Entries that hold a text (all of them for "")."""


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
        self._entries: Sequence[Entry] = ()

    def body(self) -> Iterable[Widget]:
        tail = "   type to search, esc closes" if self._search else "   esc closes"
        yield self.words([(self._title, "bold"), (tail, "muted")])
        if self._search:
            field = Field("", select_on_focus=False, compact=True, id="search")
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
        self._entries = self._find(text.strip()) or [Entry([("nothing found", "muted")])]
        self._write()
        self.query_one("#lines").scroll_home(animate=False)

    def on_resize(self) -> None:
        self.call_after_refresh(self._write)

    def _write(self) -> None:
        width = max(20, self.query_one("#lines").size.width - 2)
        lines = [line for entry in self._entries for line in flow(entry, width, self.look)]
        self.query_one("#text", Static).update(Text("\n", end="").join(lines))

    def action_scroll(self, by: int) -> None:
        self.query_one("#lines").scroll_relative(y=by, animate=False)


def flow(entry: Entry, width: int, theme: Theme) -> list[Text]:
    """The lines of an entry: words are moved down whole, and stand below the first word of the body."""
    head = say(theme, entry.head)
    indent = head.cell_len if head.cell_len < width // 2 else 4
    lines, line = [], head
    for piece, role in entry.body:
        for word in re.findall(r"\S+\s*", piece):
            if line.cell_len + cell_len(word.rstrip()) > width and line.cell_len > indent:
                lines.append(line)
                line = say(theme, [(" " * indent, role)])
            line.append_text(say(theme, [(word, role)]))
    return [*lines, line]


def find_keys(now: Situation, keys: Mapping[str, tuple[str, ...]]) -> Find:
    """Searches every action by its keys, words and group; what cannot be used now says why."""

    def find(text: str) -> list[Entry]:
        entries: list[Entry] = []
        for group, actions in GROUPS.items():
            found = [_key_entry(action, now, keys) for action in actions if _holds(action, group, keys, text)]
            if found:
                entries += [Entry([(group.upper(), "bold")]), *found, Entry([("", "muted")])]
        return entries[:-1]

    return find


def _holds(action: Action, group: str, keys: Mapping[str, tuple[str, ...]], text: str) -> bool:
    names = " ".join(key_name(key) for key in keys[action.id])
    return text.lower() in f"{names} {action.label} {action.help} {group}".lower()


def _key_entry(action: Action, now: Situation, keys: Mapping[str, tuple[str, ...]]) -> Entry:
    names = " ".join(key_name(key) for key in keys[action.id])
    reason = action.check(now)
    body = [(f"{action.help} ", "muted"), *([(f"Not now: {reason}.", "amber")] if reason else [])]
    return Entry([(f" {names:<8} ", "bold"), (f"{action.label:<12} ", "text")], body)


def find_terms(terms: Mapping[str, str]) -> Find:
    """Searches a glossary."""

    def find(text: str) -> list[Entry]:
        return [
            Entry([(f" {term:<16} ", "bold")], [(meaning, "text")])
            for term, meaning in terms.items()
            if text.lower() in f"{term} {meaning}".lower()
        ]

    return find


def plain_lines(lines: Sequence[str]) -> Find:
    """Fixed lines."""
    return lambda text: [Entry([("", "text")], [(line, "text")]) for line in lines]

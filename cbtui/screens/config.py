"""The configuration editor: current and new value of each field, checked before anything is applied."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from cbtui.configuration import EDITABLE, RESTART, ConfigChange, Plan, config_fields, judge
from cbtui.screens.base import COLUMN_WIDTH, Dialog
from cbtui.screens.fields import Press, Switcher
from cbtui.screens.inorder import Field
from cbtui.screens.words import Words, say
from cbtui.theme import Theme
from cbtui.view.chrome import ConfigField

Rehearse = Callable[[ConfigChange, Callable[[Sequence[Words]], None]], None]
"""Asked what a change would make of the next step; calls back with four lines."""
REQUESTS = ("again", "finish", "fail")
_REQUESTS_WORDS = ("add again", "finish first", "fail")

_FATES = (
    "A restart begins them again from their first token.",
    "They finish first, then the engine restarts.",
    "A restart ends them unfinished.",
)
DRY_RUN = ("dry-run", "dry-batch", "dry-blocks", "dry-waits")
_LOSSES = "The cache is lost. What is finished, the log and the timeline stay; the new engine's steps follow."


class Setting(Field):
    """The new value of a field. It resets itself: the focus may have moved on since the key was typed."""

    BINDINGS: ClassVar[list[BindingType]] = [("ctrl+r", "reset", "reset")]

    def __init__(self, now: str, **options: Any) -> None:
        super().__init__(now, **options)
        self._now = now

    def action_reset(self) -> None:
        self.value = self._now


class ConfigDialog(Dialog[ConfigChange]):
    """Answers with what is to change, or None.

    Args:
        config: what runs now. built: what the buffers were made for.
        unfinished: how many requests have not ended now.
        rehearse: tries a change on a copy of the scheduler.
        plan: says what a new engine would have, or why it would not fit.
        chosen: the field the cursor begins on; another than the editable ones means the first of these.
    """

    SIZE = "-wide"
    GAP_HEIGHT: ClassVar[int] = 26
    BINDINGS: ClassVar[list[BindingType]] = [
        ("up", "move(-1)", "up"),
        ("down", "move(1)", "down"),
    ]

    def __init__(
        self,
        theme: Theme,
        config: Any,
        built: Any,
        unfinished: Callable[[], int],
        rehearse: Rehearse,
        plan: Plan,
        chosen: str = "",
    ) -> None:
        super().__init__(theme)
        self._rehearse, self._plan = rehearse, plan
        self._rehearsed: ConfigChange | None = None
        self._config, self._built, self._unfinished, self._chosen = config, built, unfinished, chosen

    def body(self) -> Iterable[Widget]:
        yield self.words([("Configuration", "bold"), ("   nothing is applied before you say so", "muted")])
        yield self.gap()
        yield self.words([("", "muted")], id="head")
        yield self.section("")
        for row in config_fields(self._config)[: len(EDITABLE)]:
            field = Setting(row.now, select_on_focus=False, compact=True, id=row.name, classes="new")
            field.styles.width = 13
            field.styles.margin = 0
            field.cursor_blink = False
            yield Horizontal(
                Static("", markup=False, id=f"{row.name}-before", classes="before"), field,
                Static("", markup=False, id=f"{row.name}-after", classes="fill"), classes="row",
            )  # fmt: skip
            yield self.words([("", "vermilion")], id=f"{row.name}-error", classes="error wrapped under")
        yield self.words([("", "muted")], id="note", classes="wrapped")
        yield self.gap()
        yield Horizontal(
            self.words([("", "muted")], id="restart", classes="label"),
            Switcher(_REQUESTS_WORDS, 0, self.look, id="requests"), classes="row", id="restart-row",
        )  # fmt: skip
        yield self.words([("", "amber")], id="restart-note", classes="wrapped")
        for name in DRY_RUN:
            yield self.words([], id=name, classes="wrapped")
        yield self.gap()
        yield Horizontal(
            Press("Apply", self.look, id="apply", on=False), Press("Restart", self.look, id="again", on=False),
            Static("", markup=False, id="hint", classes="fill wrapped"),
            self.words([], id="keys", classes="label"), classes="row",
        )  # fmt: skip

    def on_mount(self) -> None:
        fields = list(self.query(Input))
        next((field for field in fields if field.id == self._chosen), fields[0]).focus()
        self._check()

    @on(Input.Changed)
    def _check(self) -> None:
        change, fields = self._judged()
        field = " reset  " if self._narrow else " reset field  "
        self.write("#keys", [("  ^r", "bold"), (field, "muted"), ("esc", "bold"), (" discard", "muted")])
        note = "" if self._narrow else f"{'takes effect':<14}note"
        head = f"   {'field':<26}{'now':>10}   {'new':<14}{note or 'takes effect'}"
        self.write("#head", [(head, "muted")])
        for row in fields:
            self._show_row(row)
        self._show_note(fields)
        refused = [row for row in fields if row.error]
        self._show_foot(change, refused)

    @property
    def _narrow(self) -> bool:
        """There is no room for notes beside the fields."""
        return self.app.size.width < COLUMN_WIDTH

    def on_resize(self) -> None:
        super().on_resize()
        self._check()

    def on_descendant_focus(self) -> None:
        self._show_note(self._judged()[1])

    def _show_note(self, fields: Sequence[ConfigField]) -> None:
        """The note of the field with the cursor, where there is no room for it beside the field."""
        row = next((row for row in fields if self.focused is not None and row.name == self.focused.id), None)
        line = self.query_one("#note", Static)
        beside = 0 if self._narrow else self.query_one(f"#{fields[0].name}-after").size.width - 15
        line.display = row is not None and len(row.note) > beside
        if row is not None:
            line.update(say(self.look, [(f"   {row.note}", "muted")], wrap=True))

    def _judged(self) -> tuple[ConfigChange, tuple[ConfigField, ...]]:
        texts = {field.id: field.value for field in self.query(Input) if field.id is not None}
        return judge(texts, self._config, self._built, self._plan)

    def _show_row(self, row: ConfigField) -> None:
        sign, role = (" ", "text")
        if row.error:
            sign, role = self.look.glyphs.refused, "vermilion"
        elif row.changed:
            sign, role = self.look.glyphs.live, "bold"
        arrow = self.look.glyphs.arrow if row.changed else " "
        self.write(f"#{row.name}-before", [(f" {sign} ", role), (f"{row.name:<26}", role), (f"{row.now:>10} ", "muted"),
                                           (f"{arrow:<2}", role)])  # fmt: skip
        tone = "vermilion" if row.error else "amber" if row.changed and row.effect == RESTART else "muted"
        self.write(f"#{row.name}-after", [(f" {row.effect:<14}", tone), ("" if self._narrow else row.note, "muted")])
        self.query_one(f"#{row.name}", Input).set_class(bool(row.error), "-wrong")
        error = self.query_one(f"#{row.name}-error", Static)
        error.set_class(bool(row.error), "-shown")
        error.update(say(self.look, [(row.error, "vermilion")], wrap=True))

    def _show_foot(self, change: ConfigChange, refused: list[ConfigField]) -> None:
        apply, again = self.query_one("#apply", Press), self.query_one("#again", Press)
        when = "" if self._narrow else " at the next step"
        apply.set(f"Apply {len(change.now)}{when}", bool(change.now) and not refused)
        again.set(f"Restart with {len(change.now) + len(change.restart)}", bool(change.restart) and not refused)
        for press in (apply, again):  # a button that cannot be pressed would take the room of the reason
            press.display = not refused
        words: Words = [(f"nothing applied: {len(refused)} refused", "vermilion")] if refused else []
        self.write("#hint", words)
        for name in ("#restart-row", "#restart-note"):
            self.query_one(name).display = bool(change.restart)
        changed = bool(change.now or change.restart) and not refused
        for name in DRY_RUN:
            self.query_one(f"#{name}").display = changed
        if changed:
            self._try(change)
        self.beat()

    def _try(self, change: ConfigChange) -> None:
        """One question at a time: what is typed meanwhile is tried when the answer is there."""
        if self._rehearsed is None:
            self._rehearsed = change
            self._rehearse(change, self._tried)

    def _tried(self, lines: Sequence[Words]) -> None:
        asked, self._rehearsed = self._rehearsed, None
        if not self.is_attached:
            return
        for name, line in zip(DRY_RUN, lines, strict=True):
            self.query_one(f"#{name}", Static).update(say(self.look, line, wrap=True))
        change, fields = self._judged()
        if change != asked and (change.now or change.restart) and not any(row.error for row in fields):
            self._try(change)

    @on(Switcher.Turned)
    def beat(self) -> None:
        """What a restart would do to the requests; their number changes while the dialog is open."""
        count = self._unfinished()
        self.write("#restart", [(f"{count} unfinished request{'s' if count != 1 else ''}:", "amber")])
        fate = _FATES[self.query_one("#requests", Switcher).index]
        note = say(self.look, [(f"{fate} {_LOSSES}", "amber")], wrap=True)
        self.query_one("#restart-note", Static).update(note)

    @on(Press.Pressed)
    def _pressed(self, message: Press.Pressed) -> None:
        self._answer(restart=message.press.id == "again")

    @on(Input.Submitted)
    def _entered(self) -> None:
        """Enter applies what needs no restart; for a restart it goes to the button, which wants an enter of its own."""
        change, fields = self._judged()
        refused = next((row for row in fields if row.error), None)
        if refused is not None:
            self.query_one(f"#{refused.name}", Input).focus()
        elif change.restart:
            self.query_one("#again", Press).focus()
            self.write("#hint", [("enter once more restarts", "amber")])
        elif change.now:
            self._answer(restart=False)
        else:
            self.write("#hint", [("nothing is changed yet", "muted")])

    def turns_focus(self, key: str) -> bool:
        """↑ and ↓ too, where the fields are."""
        if key in ("up", "down"):
            self.action_move(-1 if key == "up" else 1)
            return True
        return super().turns_focus(key)

    def _answer(self, *, restart: bool) -> None:
        change, _ = self._judged()
        requests = REQUESTS[self.query_one("#requests", Switcher).index]
        if restart:
            self.dismiss(ConfigChange({}, {**change.now, **change.restart}, requests))
        else:
            self.dismiss(ConfigChange(change.now))

    def action_move(self, by: int) -> None:
        """↑ and ↓ go through the fields."""
        (self.focus_previous if by < 0 else self.focus_next)(Input)

"""The burst dialog: many requests of drawn lengths at a given rate."""

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from cbtui.forms import BURST_FIELDS, BurstSpec, read_burst, texts_of
from cbtui.screens.base import Dialog
from cbtui.screens.fields import FieldRow, Press
from cbtui.sentences import count
from cbtui.theme import Theme


class BurstDialog(Dialog[BurstSpec]):
    """Answers with the burst to add, or None."""

    GAP_HEIGHT: ClassVar[int] = 18

    def __init__(self, theme: Theme, spec: BurstSpec) -> None:
        super().__init__(theme)
        self._spec = spec

    def body(self) -> Iterable[Widget]:
        yield self.words([("Add many requests", "bold"), ("   lengths are drawn evenly", "muted")])
        texts = texts_of(self._spec, BURST_FIELDS)
        for title, row in zip(("ARRIVALS", "PROMPTS", "OUTPUT"), BURST_FIELDS, strict=True):
            yield self.gap()
            yield self.section(title)
            yield FieldRow(row, texts, self.look)
        yield self.gap()
        yield self.words([("", "muted")], id="sum")
        yield self.gap()
        yield Horizontal(
            Press("Add", self.look, id="submit"), Static("", markup=False, id="hint", classes="fill"),
            self.words([("tab", "bold"), (" next  ", "muted"), ("esc", "bold"), (" cancel", "muted")],
            classes="label"), classes="row",
        )  # fmt: skip

    def on_mount(self) -> None:
        self.query(Input).first().focus()
        self._check()

    @on(Input.Changed)
    def _check(self) -> None:
        spec, errors = read_burst(self.texts())
        self.show_errors(errors)
        label = "Add requests" if errors else f"Add {count(spec.count, 'request')}"
        self.query_one("#submit", Press).set(label, not errors)
        self.write("#hint", [("fix what is marked first" if errors else "", "vermilion")])
        mean = spec.count * (spec.prompt_min + spec.prompt_max + spec.new_min + spec.new_max) / 2
        time = f" over about {spec.count / spec.per_second:.0f} s" if spec.per_second else " all at once"
        line = "" if errors else f"about {mean:,.0f} tokens to compute{time}"
        self.write("#sum", [(line, "muted")])

    @on(Input.Submitted)
    @on(Press.Pressed)
    def _submit(self) -> None:
        spec, errors = read_burst(self.texts())
        self.show_errors(errors)
        if errors:
            self.query_one(f"#{next(iter(errors))}", Input).focus()
        else:
            self.dismiss(spec)

"""The add dialog: a prompt and how it is to be continued."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import events, on
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from cbtui.forms import REQUEST_FIELDS, read_request, texts_of
from cbtui.launch import RequestSpec
from cbtui.screens.base import Dialog
from cbtui.screens.fields import FieldCell, FieldRow, Press, Switcher
from cbtui.screens.inorder import InOrder
from cbtui.screens.renewal import Renewal
from cbtui.screens.words import Words, say
from cbtui.sentences import count
from cbtui.theme import Theme

Count = Callable[[str, bool, Callable[[int, int], None]], None]
"""Asked for the tokens of (text, chat); calls back with (tokens of the text, tokens the template adds)."""


Foresee = Callable[[RequestSpec, Callable[[Sequence[Words], str], None]], None]
"""Asked what would become of a request; calls back with two lines, and why it would be refused ("" when it is not)."""


@dataclass(frozen=True, slots=True)
class AddFacts:
    """What the dialog shows about the engine; none of it changes while it is open.

    Attributes:
        has_template: the tokenizer brings a chat template.
        page_size: tokens per block, 0 when unknown. groups: number of layer groups, each with its own blocks.
        waiting: labels of the requests in the queue.
        copy: the selected request, for `^d`; None when none is selected.
    """

    has_template: bool
    page_size: int
    groups: int
    waiting: tuple[str, ...]
    copy: RequestSpec | None


class PromptArea(InOrder, TextArea):
    """Takes any text. Enter hands the dialog in; ^j, shift+enter and pasting make new lines."""

    WRITES = True

    class Entered(Message):
        """Enter was pressed."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.post_message(self.Entered())
        elif event.key in ("ctrl+j", "shift+enter", "alt+enter"):
            event.stop()
            event.prevent_default()
            self.insert("\n")

    def write(self, character: str) -> None:
        self.replace(character, *self.selection, maintain_selection_offset=False)


class AddDialog(Dialog[RequestSpec]):
    """Answers with the request to add, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("ctrl+t", "template", "template"),
        ("ctrl+d", "copy", "copy"),
    ]
    GAP_HEIGHT: ClassVar[int] = 30

    def __init__(
        self, theme: Theme, spec: RequestSpec, facts: AddFacts, count: Count, foresee: Foresee, step: Callable[[], int]
    ) -> None:
        super().__init__(theme)
        self.spec, self.facts, self._count, self._foresee = spec, facts, count, foresee
        self._foreseen: RequestSpec | None = None
        self._refusal: tuple[RequestSpec, str] | None = None
        """the request asked about last, and why the engine would refuse it"""
        self._renewal = Renewal(step)
        self._ids: tuple[int, ...] = spec.prompt_ids
        self._asked: tuple[str, bool] | None = None

    def body(self) -> Iterable[Widget]:
        look, facts = self.look, self.facts
        queue = "enters the queue at the next step boundary"
        yield self.words([("Add request", "bold"), (f"   {queue}", "muted")])
        yield self.gap()
        template = Switcher(("on", "off"), int(not (self.spec.chat and facts.has_template)), look, id="chat")
        template.disabled = not facts.has_template
        word = "chat template" if facts.has_template else "no chat template"
        yield self.section(
            "PROMPT", "", self.words([(word, "muted")], classes="fact"), template, self.words([("  ^t", "bold")],
            classes="fact"),
        )  # fmt: skip
        area = PromptArea(self.spec.text, id="prompt", compact=True, soft_wrap=True, show_line_numbers=False)
        area.cursor_blink = False
        yield area
        yield self.words([("", "muted")], id="tokens")
        yield self.words([("", "muted")], id="prompt-error", classes="error wrapped")
        yield self.gap()
        texts = texts_of(self.spec, REQUEST_FIELDS)
        length, sampling, further = REQUEST_FIELDS
        yield self.section("LENGTH")
        yield FieldRow(length, texts, look)
        yield self.gap()
        yield self.section("SAMPLING", "temperature 0 is greedy; further: as repetition_penalty=1.2")
        yield FieldRow(sampling, texts, look)
        yield FieldRow(further, texts, look)
        yield self.gap()
        yield self.section("OUTPUT", id="output")
        yield Horizontal(
            self.words([("streaming", "muted")], classes="label"),
            Switcher(("on", "off"), int(not self.spec.streaming), look, id="streaming"),
            self.words([("     log-probabilities", "muted")], classes="label"),
            Switcher(("on", "off"), int(not self.spec.logprobs), look, id="logprobs"),
            classes="row",
        )
        yield self.gap()
        yield self.words([("", "muted")], id="queue")
        yield self.words([("", "muted")], id="forecast", classes="wrapped")
        yield self.words([("", "muted")], id="forecast-blocks", classes="wrapped")
        yield self.gap()
        yield Horizontal(
            Press("Add request", look, id="submit"), Static("", markup=False, id="hint", classes="fill"),
            self.words(self._keys(), classes="label"), classes="row",
        )  # fmt: skip

    def _keys(self) -> Words:
        copy = [("  ^d", "bold"), (" copy selected", "muted")] if self.facts.copy else []
        return [("tab", "bold"), (" next", "muted"), *copy, ("  esc", "bold"), (" cancel", "muted")]

    def on_mount(self) -> None:
        self.query_one("#prompt", TextArea).focus()
        waiting = self.facts.waiting
        names = " ".join(waiting[:12]) + (" and more" if len(waiting) > 12 else "")
        line = f"queue now: {names}, then this one" if waiting else "queue now: empty, this one is first"
        self.write("#queue", [(line, "muted")])
        self._check()
        self._ask_tokens()

    @on(TextArea.Changed)
    def _prompt_changed(self) -> None:
        if self._ids and self.query_one("#prompt", TextArea).text != self.spec.text:
            self._ids = ()
        self._check()
        self._ask_tokens()

    @on(Input.Changed)
    def _field_changed(self) -> None:
        self._check()

    @on(Switcher.Turned)
    def _turned(self, message: Switcher.Turned) -> None:
        if message.switcher.id == "chat":
            self._ask_tokens()

    @on(Input.Submitted)
    @on(Press.Pressed)
    @on(PromptArea.Entered)
    def _submit(self) -> None:
        spec, errors = self._read()
        self._show(spec, errors)
        if not errors and self._refusal is not None and self._refusal[0] == spec and self._refusal[1]:
            self._show_prompt_error(f"not added: {self._refusal[1]}")
            self.write("#hint", [("not added", "vermilion")])
            self.query_one("#prompt-error").scroll_visible(animate=False)
        elif not errors:
            self.dismiss(spec)
        elif "prompt" not in errors:
            self.query_one(f"#{next(iter(errors))}", Input).focus()

    def _read(self) -> tuple[RequestSpec, dict[str, str]]:
        text = self.query_one("#prompt", TextArea).text
        base = replace(
            self.spec,
            text=text,
            prompt_ids=self._ids,
            chat=self.query_one("#chat", Switcher).value == "on",
            streaming=self.query_one("#streaming", Switcher).value == "on",
            logprobs=self.query_one("#logprobs", Switcher).value == "on",
        )
        spec, errors = read_request(base, self.texts())
        if not text and not self._ids:
            errors["prompt"] = "the prompt must hold at least one token"
        return spec, errors

    def _check(self) -> None:
        """An empty prompt only switches the button off: nobody is told off before the first letter."""
        spec, errors = self._read()
        self._show(spec, {name: text for name, text in errors.items() if name != "prompt"}, ready=not errors)

    def _show(self, spec: RequestSpec, errors: dict[str, str], ready: bool = False) -> None:
        self.show_errors(errors)
        self._show_prompt_error(errors.get("prompt", ""))
        if ready:
            self._ask_forecast(spec)
        else:
            self._show_forecast(((), ()))
        label = "Add request" if spec.copies == 1 else f"Add {spec.copies} requests"
        self.query_one("#submit", Press).set(label, ready)
        fix = next(iter(errors), "")
        hint = f"fix {fix.replace('_', ' ')} first" if fix else ""
        self.write("#hint", [(hint, "vermilion")])

    def _show_prompt_error(self, error: str) -> None:
        line = self.query_one("#prompt-error", Static)
        line.set_class(bool(error), "-shown")
        words = f"└ {error}" if self.look.glyphs.unicode else f"^ {error}"
        line.update(say(self.look, [(words, "vermilion")], wrap=True))

    def _ask_forecast(self, spec: RequestSpec) -> None:
        """One question at a time, as for the tokens."""
        if self._foreseen is None:
            self._foreseen = spec
            self._foresee(spec, self._forecast_came)

    def _forecast_came(self, lines: Sequence[Words], refusal: str) -> None:
        asked, self._foreseen = self._foreseen, None
        self._refusal = None if asked is None else (asked, refusal)
        if not self.is_attached:
            return
        spec, errors = self._read()
        if errors:
            return
        self._show_forecast(lines)
        if spec != asked:
            self._ask_forecast(spec)

    def _show_forecast(self, lines: Sequence[Words]) -> None:
        for name, line in zip(("#forecast", "#forecast-blocks"), lines, strict=True):
            self.query_one(name, Static).update(say(self.look, line, wrap=True))

    def beat(self) -> None:
        """The engine goes on while a prompt is written: what it would do changes."""
        if self._renewal.is_due(busy=self._foreseen is not None):
            spec, errors = self._read()
            if not errors:
                self._ask_forecast(spec)

    def _ask_tokens(self) -> None:
        """One question at a time: what is typed meanwhile is asked about when the answer is there."""
        question = self._question()
        if self._ids:
            self._show_tokens(len(self._ids), 0)
        elif self._asked is None:
            self._asked = question
            self._count(*question, self._answered)

    def _question(self) -> tuple[str, bool]:
        return self.query_one("#prompt", TextArea).text, self.query_one("#chat", Switcher).value == "on"

    def _answered(self, plain: int, extra: int) -> None:
        asked, self._asked = self._asked, None
        if not self.is_attached:
            return
        self._show_tokens(plain, extra)
        if asked != self._question():
            self._ask_tokens()

    def _show_tokens(self, plain: int, extra: int) -> None:
        total = plain + extra
        words = [(count(total, "token"), "bright")]
        if extra:
            words.append((f" = {plain} text + {extra} template", "muted"))
        if self.facts.page_size and total:
            pages = -(-total // self.facts.page_size)
            each = "" if self.facts.groups == 1 else f" in each of {self.facts.groups} layer groups"
            words.append((f"   {count(pages, 'block')} of {self.facts.page_size} tokens{each}", "muted"))
        self.write("#tokens", words)

    def action_template(self) -> None:
        switch = self.query_one("#chat", Switcher)
        if not switch.disabled:
            switch.action_turn(1)

    def action_copy(self) -> None:
        """Fills everything in from the selected request."""
        copy = self.facts.copy
        if copy is None:
            return
        self.spec, self._ids = copy, () if copy.text else copy.prompt_ids
        texts = texts_of(copy, REQUEST_FIELDS)
        for cell in self.query(FieldCell):
            cell.input.value = texts[cell.field.name]
        self.query_one("#prompt", TextArea).text = copy.text
        self._ask_tokens()
        self._check()

"""Actions on requests: add, burst, duplicate, cancel, undo, and moving the cursor among them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cbtui.burst import make_burst
from cbtui.foresight import forecast_words
from cbtui.forms import BurstSpec
from cbtui.launch import RequestSpec
from cbtui.prompts import counts, has_chat_template
from cbtui.questions import NO_ANSWER, ask_forecast
from cbtui.screens.add import AddDialog, AddFacts
from cbtui.screens.burst import BurstDialog
from cbtui.screens.small import FilterDialog
from cbtui.screens.words import Words
from cbtui.sentences import refusal
from cbtui.view.chrome import ORDERS
from cbtui.view.scene import Scene

if TYPE_CHECKING:
    from cbtui.app import MonitorApp


class RequestActions:
    """What a person does with requests."""

    def __init__(self, app: "MonitorApp") -> None:
        self._app = app
        self._session = app.session
        self._last = app.session.launch.defaults
        self._burst = BurstSpec()

    def add(self) -> None:
        dialog = AddDialog(self._app.look, self._last, self._facts(), self._count_tokens, self._foresee, self._step)
        self._app.push_screen(dialog, self._added)

    def _facts(self) -> AddFacts:
        state, story = self._session.state, self._app.selected_story
        picture = None if state is None else state.picture
        return AddFacts(
            has_template=has_chat_template(getattr(self._session.loaded, "tokenizer", None)),
            page_size=0 if picture is None else picture.page_size,
            groups=1 if picture is None else len(picture.windows),
            waiting=() if state is None or picture is None else tuple(state.label(key) for key in picture.waiting),
            copy=None if story is None else self._session.spec_of(story),
        )

    def _step(self) -> int:
        """The last step shown."""
        return 0 if self._session.state is None else self._session.state.step

    def _count_tokens(self, text: str, chat: bool, answer: Callable[[int, int], None]) -> None:
        tokenizer = getattr(self._session.loaded, "tokenizer", None)
        if tokenizer is not None and text:
            self._session.ask(lambda: counts(tokenizer, text, chat), lambda found: answer(*found))
        else:
            answer(0, 0)

    def _foresee(self, spec: RequestSpec, answer: Callable[[Sequence[Words], str], None]) -> None:
        def told(found: Any) -> None:
            state = self._session.state
            if state is not None:
                refused = isinstance(found, str) and found != NO_ANSWER
                reason = refusal(found)[0].removeprefix("refused: ") if refused else ""
                answer(forecast_words(Scene.of(state, self._app.chrome, self._app.look), found), reason)

        ask_forecast(self._session, spec, told)

    def _added(self, spec: RequestSpec | None) -> None:
        if spec is not None:
            self._session.add(spec)
            self._last = RequestSpec(
                chat=spec.chat, max_new_tokens=spec.max_new_tokens, stop_strings=spec.stop_strings,
                temperature=spec.temperature, top_k=spec.top_k, top_p=spec.top_p, streaming=spec.streaming,
                logprobs=spec.logprobs,
            )  # fmt: skip

    def burst(self) -> None:
        self._app.push_screen(BurstDialog(self._app.look, self._burst), self._burst_added)

    def _burst_added(self, spec: BurstSpec | None) -> None:
        if spec is not None:
            self._burst = spec
            tokenizer = self._session.loaded.tokenizer
            self._session.ask(lambda: make_burst(spec, tokenizer), self._spread)

    def _spread(self, requests: list[tuple[float, RequestSpec]]) -> None:
        self._session.add_over_time(requests, self._app.clock())

    def duplicate(self) -> None:
        story = self._app.selected_story
        if story is not None:
            self._session.add(self._session.spec_of(story))

    def cancel(self) -> None:
        story = self._app.selected_story
        if story is not None:
            self._session.cancel(story)

    def undo(self) -> None:
        self._session.undo()

    def previous(self) -> None:
        self._app.place.down(-1)

    def next(self) -> None:
        self._app.place.down(1)

    def page_up(self) -> None:
        self._app.place.down(-10)

    def page_down(self) -> None:
        self._app.place.down(10)

    def detail(self) -> None:
        if self._app.chrome.mode == 6:
            self._app.perform("config")
        else:
            self._app.change(mode=2, maximised=None)

    def pin(self) -> None:
        """Pins the selected stream, or lets it go; at most three are kept, the newest ones."""
        key, pinned = self._app.chrome.selected, self._app.chrome.pinned
        if key is not None:
            kept = tuple(p for p in pinned if p != key) if key in pinned else (*pinned, key)[-3:]
            self._app.change(pinned=kept)

    def filter(self) -> None:
        before = self._app.chrome.filter
        self._app.change(filtering=True)
        dialog = FilterDialog(self._app.look, before, lambda text: self._app.change(filter=text))
        self._app.push_screen(dialog, self._filtered)

    def _filtered(self, text: str | None) -> None:
        self._app.change(filter=text or "", filtering=False)

    def order(self) -> None:
        self._app.change(order=self._app.turn("order", ORDERS, self._app.chrome.order))

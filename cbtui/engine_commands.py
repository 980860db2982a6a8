"""What a person can tell an engine, and ask it."""

from collections.abc import Callable, Iterable
from typing import Any

from cbtui.acks import pace_words
from cbtui.adding import Adder
from cbtui.engine_state import LONG_STEP, EngineState
from cbtui.inbox import Inbox
from cbtui.launch import RequestSpec
from cbtui.stories import Story

ASKED = {"cancel_request": "cancel", "hold": "pause", "set_config": "the new value", "clear_prefix_cache": "clearing"}
"""In a word, what takes effect between two steps, by the method that asks for it."""
RATES = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)


class EngineCommands(EngineState):
    """Each command is queued by the manager and acknowledged in the record of the step where it took effect.

    Args:
        clock: see ``EngineState``.
        inbox: takes answers and refusals. adder: adds requests.
        rate: steps per second at the start.

    Attributes:
        loaded: what was loaded last, None at first.
        rate: steps per second asked for, None for full speed.
        say, take_notices, ask: of the inbox.
    """

    def __init__(self, clock: Callable[[], float], inbox: Inbox, adder: Adder, rate: float | None) -> None:
        super().__init__(clock)
        self.loaded: Any = None
        self.rate = rate
        self.say, self.take_notices, self.ask = inbox.say, inbox.take_notices, inbox.ask
        self._adder = adder

    def command(self, name: str, *args: Any, **kwargs: Any) -> bool:
        """Calls a method of the manager that queues a command. A refusal becomes a notice; True when it was taken."""
        if self.manager is None:
            self.say("no engine is running", "error")
            return False
        try:
            getattr(self.manager, name)(*args, **kwargs)
        except (RuntimeError, ValueError) as error:
            self.say(str(error), "error")
            return False
        if name in ASKED and self.step_seconds > LONG_STEP:
            step = self.manager.status.step + 1
            self.say(f"{ASKED[name]}: asked, takes effect when step {step} ends, {self.step_seconds:.1f} s now")
        return True

    def add(self, spec: RequestSpec) -> None:
        """Tokenises and adds a request (and its copies) on a worker; a refusal comes back as a notice."""
        self._adder.add(self.manager, getattr(self.loaded, "tokenizer", None), spec)

    def add_over_time(self, requests: Iterable[tuple[float, RequestSpec]], now: float) -> None:
        """Adds each request after its seconds from now."""
        self._adder.spread(requests, now)

    def spec_of(self, story: Story) -> RequestSpec:
        """The request behind a story, as it can be added again."""
        return self._adder.spec_of(story)

    def cancel(self, story: Story) -> None:
        """Cancels a request; ``undo`` can add it again."""
        if self.command("cancel_request", story.request_id):
            self._adder.note_cancelled(story)

    @property
    def can_undo(self) -> bool:
        """Whether a request was cancelled here and not yet added again."""
        return self._adder.can_undo

    def undo(self) -> None:
        """Adds the request cancelled last once more, from its beginning."""
        spec = self._adder.take_cancelled()
        if spec is not None:
            self.add(spec)

    def set_rate(self, rate: float | None) -> None:
        """Slow motion: at most ``rate`` steps per second, None for full speed."""
        if self.command("set_rate", rate):
            self.rate = rate
            if self.engine == "held":  # no record tells of it before the next step
                self.say(f"{pace_words(rate)} when the engine goes on")

    def change_pace(self, direction: int) -> None:
        """One notch slower (-1) or faster (+1)."""
        ladder = (*RATES, None)
        place = ladder.index(self.rate) if self.rate in ladder else len(RATES)
        self.set_rate(ladder[min(len(RATES), max(0, place + direction))])

    def run_until(self, kind: str, value: int | None) -> None:
        """Runs until something happens, see ``RunUntil``, then pauses."""
        from engine.manager import RunUntil

        self.command("run_until", RunUntil(kind, value))

    def explain(self, story: Story, answer: Callable[[Any], None]) -> None:
        """Asks the scheduler why a request is where it is."""
        manager = self.manager
        if manager is not None:
            self.ask(lambda: manager.explain(story.request_id), answer)

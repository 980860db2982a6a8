"""What goes into an engine and comes out of it: requests and commands from any thread, outputs to whoever waits."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from engine.blueprint import Blueprint
from engine.commands import Act, CommandQueue
from engine.core.config import ResolvedConfig, change
from engine.core.errors import RequestError
from engine.core.request import FinishReason, GenerationOutput, Request
from engine.core.scheduler import Outcome, Scheduler
from engine.delivery import Router, output_ids
from engine.outputs import OutputMaker, never_started


class Intake:
    """The side of an engine that accepts requests and commands. They take effect between two steps.

    Args:
        blueprint: how to build the engine.
        clock: seconds, monotonic.
        router: where results go.

    Attributes:
        config: the configuration that runs.
        results: outputs not taken yet.
        abandoned: the engine was given up and delivers nothing more.
    """

    def __init__(self, blueprint: Blueprint, clock: Callable[[], float], router: Router) -> None:
        self.blueprint = blueprint
        self.config: ResolvedConfig = blueprint.config
        self.clock = clock
        self.results = router
        self.outputs = OutputMaker(blueprint.tokenizer)
        self.abandoned = False
        text_of = self.outputs.text_of if blueprint.tokenizer is not None else None
        self.scheduler = Scheduler(blueprint.layout, self.config.scheduler_settings(), text_of)
        self._commands = CommandQueue()
        self._questions: deque[Callable[[], None]] = deque()

    # -- from any thread ----------------------------------------------------------------------------------------------

    def build_request(self, prompt: Any, request_id: str | None = None, **wanted: Any) -> Request:
        """A checked request that was not queued. See ``RequestBuilder.build`` for what is wanted and the errors."""
        name = self.results.new_id() if request_id is None else request_id
        request = self.blueprint.builder.build(prompt, request_id=name, created_time=self.clock(), **wanted)
        self.scheduler.check(request)
        return request

    def submit(self, prompt: Any, request_id: str | None = None, **wanted: Any) -> str:
        """Accept a request and queue it. Returns its id.

        Raises:
            TypeError, RequestError: refused; nothing was queued.
        """
        return self.enqueue(self.build_request(prompt, request_id, **wanted))

    def enqueue(self, request: Request) -> str:
        """Queue a checked request. From now on its terminal output is owed.

        Raises:
            RequestError: its id belongs to a live request.
        """
        self.results.accept(request)
        self._commands.post("add", request.request_id, lambda: self._add(request), request)
        return request.request_id

    def cancel(self, request_id: str) -> int:
        """Ask for the end of a request; returns the ticket. An unknown id has no effect, and the ack says so."""
        return self.post("cancel", request_id, lambda: self.cancel_now(request_id))

    def post(self, kind: str, target: str, act: Act) -> int:
        """Queue a command; it takes effect at the start of the next round and is acknowledged in its record."""
        return self._commands.post(kind, target, act)

    def ask(self, question: Callable[[], None]) -> None:
        """Have ``question`` called by the stepping thread between two records, after the commands posted before it."""
        self._questions.append(question)

    def configure(self, **fields: Any) -> int:
        """Change configuration fields between two steps, one command each; returns the ticket of the last one.

        Raises:
            ConfigError: unknown, out of range, or not changeable while the engine runs.
        """
        change(self.config, self.blueprint.config, **fields)
        ticket = 0
        for name in fields:
            ticket = self.post("config", name, partial(self._set, fields, name))
        return ticket

    @property
    def has_news(self) -> bool:
        """Whether commands or questions wait."""
        return bool(self._commands or self._questions)

    @property
    def is_urgent(self) -> bool:
        """Whether something waits that ``attend`` does, and that is not to wait for the next step."""
        return self._commands.pacing or bool(self._questions and not self._commands)

    @property
    def waiting(self) -> int:
        """Requests accepted and not started."""
        return len(self.scheduler.state.line) + self._commands.num_adds

    # -- the stepping thread, between two steps -----------------------------------------------------------------------

    def attend(self) -> None:
        """What never waits until the rate lets the next step begin: commands about the pace, and questions.

        Other commands stay queued, and questions asked after them too.
        """
        self._commands.carry_out(pacing=True)
        if not self._commands:
            self._answer()

    def cancel_now(self, request_id: str) -> str:
        """Cancel between two steps; returns what was done, and raises RequestError for an unknown id."""
        if not self.scheduler.sequences_of(request_id):
            raise RequestError(f"there is no live request {request_id!r}")
        ended = self.scheduler.cancel(request_id, self.clock())
        self._send([self.outputs.terminal(seq) for seq in ended])
        return "" if ended else "ends with the step in flight"

    def clear_cache(self) -> str:
        """Forget all cached prefixes; returns what was done."""
        return f"{self.scheduler.clear_prefix_cache()} blocks forgotten"

    def take_outputs(self) -> list[GenerationOutput]:
        """Outputs nobody took yet, in order of arrival. For use without a manager."""
        outputs = []
        while (output := self.results.next(timeout=0)) is not None:
            outputs.append(output)
        return outputs

    def _add(self, request: Request) -> str:
        now = self.clock()
        try:
            family = self.scheduler.add(request, now)
        except RequestError as error:
            reason = FinishReason.FAILED
            self._send([never_started(request, name, reason, str(error), now) for name in output_ids(request)])
            raise
        self._send([self.outputs.terminal(seq) for seq in family if seq.finish_reason is not None])
        return ""

    def _set(self, fields: dict[str, Any], name: str) -> str:
        """Takes all fields, which may only go together; returns the value of the one that is acknowledged."""
        self._configure(fields)
        return str(getattr(self.config, name).value)

    def _configure(self, fields: dict[str, Any]) -> None:
        self.config = change(self.config, self.blueprint.config, **fields)
        self.scheduler.configure(self.config.scheduler_settings())
        self.blueprint.builder.return_logprobs = self.config.return_logprobs.value

    def _answer(self) -> None:
        while self._questions:
            self._questions.popleft()()

    def _deliver(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        outputs = self.outputs.partials(outcome.tokens, outcome.ended)
        outputs += [self.outputs.terminal(seq) for seq in outcome.ended]
        self._send(outputs)

    def _send(self, outputs: list[GenerationOutput]) -> None:
        if outputs and not self.abandoned:
            self.results.deliver(outputs)

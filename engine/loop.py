"""The engine's loop body. ``Engine.step()`` does one round and needs no thread."""

import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from engine.blueprint import Blueprint, draw
from engine.commands import Act, CommandQueue
from engine.control import Pace, broken_words
from engine.core.config import ResolvedConfig, change
from engine.core.errors import EngineError, InvariantError, RequestError
from engine.core.observe import Counters, Keyframe, Spans, StepRecord
from engine.core.plan import StepPlan, StepResult
from engine.core.request import FinishReason, GenerationOutput, Request, RequestStatus
from engine.core.scheduler import Outcome, Scheduler
from engine.core.tap import Tap
from engine.delivery import Router, output_ids
from engine.follow import Follower
from engine.inspector import Inspector
from engine.outputs import OutputMaker, never_started

logger = logging.getLogger(__name__)
HISTORY_BYTES = 64 * 1024**2


class Runner(Protocol):
    """What computes a plan. ``launch`` must not block on a device, ``collect`` waits for the result."""

    def launch(self, plan: StepPlan) -> Any: ...

    def collect(self, ticket: Any) -> StepResult: ...

    def close(self) -> None: ...


class Engine:
    """Scheduler, runner and results, joined by one loop body.

    ``submit``, ``post`` and ``ask`` may be called from any thread; everything else belongs to the thread that steps.

    Args:
        model: a decoder-only ``transformers`` model. None needs ``blueprint``.
        tokenizer: for prompts given as text, for stop strings, and for the text of outputs.
        generation_config: defaults of every request; the model's own when None.
        config: a ``ContinuousBatchingConfig``.
        clock: seconds, monotonic; the time of everything observed.
        runner: a runner, or a function from ``Blueprint`` to one; None runs the model.
        router: where results go.
        blueprint: what to build, when it was drawn already.

    Attributes:
        results: outputs not taken yet.
        tap: step records, while somebody watches.
        pace: held, slowed down or free; see ``engine.control``.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        generation_config: Any = None,
        config: Any = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        runner: Any = None,
        router: Router | None = None,
        blueprint: Blueprint | None = None,
    ) -> None:
        self.blueprint = blueprint or draw(model, tokenizer, generation_config, config)
        self.config: ResolvedConfig = self.blueprint.config
        self.clock = clock
        self.results = router or Router()
        self.outputs = OutputMaker(self.blueprint.tokenizer)
        self.tap = Tap(self.config.history_steps.value, HISTORY_BYTES)
        self.pace = Pace()
        self.abandoned = False
        self.step_started: float | None = None
        self._follower: Follower | None = None
        text_of = self.outputs.text_of if self.blueprint.tokenizer is not None else None
        self.scheduler = Scheduler(self.blueprint.layout, self.config.scheduler_settings(), text_of)
        self._given = runner
        self._runner: Runner | None = None
        self._store: Any = None
        self._commands = CommandQueue()
        self._questions: deque[Callable[[], None]] = deque()
        self._flights: deque[tuple[StepPlan, Any]] = deque()
        self._previews = 0
        self._counters = Counters()
        self._inspector = Inspector(self.config.check_invariants.value, clock)

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
            ticket = self.post("config", name, lambda: self._configure(fields))
        return ticket

    def want_preview(self, records: int = 1) -> None:
        """The next records, as many as given, will each say what the step after them would do."""
        self._previews = max(self._previews, records)

    def follow(self, follower: Follower | None) -> int:
        """Have a follower go along from the next round on, in place of the one before; returns the ticket."""
        return self.post("follow", "", lambda: self.follow_now(follower))

    @property
    def has_news(self) -> bool:
        """Whether commands or questions wait."""
        return bool(self._commands or self._questions)

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished or any step in flight."""
        return self.scheduler.has_work or bool(self._flights)

    @property
    def may_step(self) -> bool:
        """Whether ``step`` would do something beyond commands, leaving aside the rate."""
        return bool(self._flights) or (self.pace.open and self.scheduler.has_work)

    @property
    def waiting(self) -> int:
        """Requests accepted and not started."""
        return len(self.scheduler.state.line) + self._commands.num_adds

    # -- the stepping thread ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Build the runner, if there is none. Raises what the runner raises when the model or memory is not right."""
        if self._runner is None:
            given = self._given
            if given is None:
                self._runner = self.blueprint.make_runner(self._store)
                self._store = None
            else:
                self._runner = given if hasattr(given, "launch") else given(self.blueprint)

    @property
    def runner(self) -> Runner:
        self.open()
        assert self._runner is not None
        return self._runner

    def close(self, *, keep_cache: bool = False) -> None:
        """Give the model back, once all requests have ended; the cache too, unless it is kept for the next ``open``."""
        runner, self._runner = self._runner, None
        self._follower = None
        self._flights.clear()
        if keep_cache:
            self._store = getattr(runner, "store", None)
        else:
            self._store = None
            self.scheduler.clear_prefix_cache()
            self._note_events()
        if runner is not None:
            runner.close()

    def step(self) -> bool:
        """One round: take commands, plan and launch a step, take in one that is done, deliver, answer questions.

        Returns:
            Whether a step was launched or taken in.

        Raises:
            Stalled: there is work and nothing could be planned.
            InvariantError: the bookkeeping is broken and nobody watches; a watched engine holds instead.
            Exception: whatever running the step raised. The engine cannot go on; call ``fail``.
        """
        began = self.clock()
        self._watch()
        self._commands.carry_out()
        marks = [began, self.clock()]
        plan = None
        if self.scheduler.has_work and self.pace.open:
            self.step_started = began
            plan = self._plan_and_launch(began, marks)
        else:
            marks += [marks[-1]] * 2
        outcome = self._take_in(plan, marks)
        self.step_started = None
        self._deliver(outcome)
        marks.append(self.clock())
        worked = plan is not None or outcome is not None
        self._publish(began, marks, worked, self._inspect(worked))
        self._answer()
        return worked

    def run_until_idle(self) -> None:
        """Step until all accepted work is done or the pace holds it."""
        while self.has_news or self.has_work:
            if not self.step() and not self.has_news:
                return

    def settle(self) -> None:
        """Take in every step in flight without planning another."""
        while self._flights:
            began = self.clock()
            self._watch()
            marks = [began] * 4
            outcome = self._take_in(None, marks)
            self._deliver(outcome)
            marks.append(self.clock())
            self._publish(began, marks, True)

    def fail(self, reason: FinishReason, error: str) -> None:
        """End everything that was accepted with ``reason``; each sequence gets its terminal output with what it has."""
        now = self.clock()
        self._follower = None
        self._watch()
        pending = self._commands.end(carry_out=reason is not FinishReason.FAILED)
        self._flights.clear()
        self._send([self.outputs.terminal(seq) for seq in self.scheduler.fail_all(reason, error, now)])
        for request in pending:
            self._send([never_started(request, name, reason, error, now) for name in output_ids(request)])
        self._note_events()

    def salvage(self, reason: FinishReason, error: str) -> list[GenerationOutput]:
        """Terminal outputs, as far as known, of sequences whose step does not come back. Changes no state."""
        now = self.clock()
        outputs = []
        for seq in list(self.scheduler):
            if seq.status < RequestStatus.FINISHED:
                output = self.outputs.terminal(seq)
                output.status, output.finish_reason, output.error = RequestStatus.FAILED, reason, error
                output.lifespan = (seq.started_time, now)
                outputs.append(output)
        return outputs

    def finish(self) -> None:
        """Go on freely to the end of what was accepted; a follower adds nothing more."""
        self._follower = None
        self.pace.resume()

    def lent_model(self) -> AbstractContextManager[None]:
        """The model with its own attention, for others to use while nothing is in flight."""
        lend = getattr(self._runner, "lend", None)
        return contextlib.nullcontext() if lend is None else lend()

    def warmup(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Let the runner prepare what it can in advance; ``progress(done, total)`` is called along the way."""
        prepare = getattr(self.runner, "warmup", None)
        if prepare is not None:
            prepare(progress)
        elif progress is not None:
            progress(1, 1)

    def clear_cache(self) -> str:
        """Forget all cached prefixes; returns what was done."""
        return f"{self.scheduler.clear_prefix_cache()} blocks forgotten"

    def keyframe(self) -> Keyframe:
        """The full visible state as of the last record."""
        self._watch()
        return self.scheduler.keyframe(self.scheduler.step, self.clock(), self.tap.latest if self.tap.watched else None)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        needed = self.pace.until is not None or self._follower is not None
        self.scheduler.observe(self.tap.watched or needed)

    def follow_now(self, follower: Follower | None) -> str | None:
        """As ``follow``, between two steps on the engine's thread; returns what was done."""
        self._follower = follower
        self._watch()
        return None if follower is None else follower.begin(self)

    def _answer(self) -> None:
        while self._questions:
            self._questions.popleft()()

    def _plan_and_launch(self, began: float, marks: list[float]) -> StepPlan | None:
        plan = self.scheduler.plan(now=began)
        marks.append(self.clock())
        launched = bool(plan.slices or plan.copies)
        if launched:
            self._flights.append((plan, self.runner.launch(plan)))
            self.pace.began(began)
        marks.append(self.clock())
        return plan if launched else None

    def _take_in(self, launched: StepPlan | None, marks: list[float]) -> Outcome | None:
        """Collects the oldest step when the pipeline is full, or nothing new was launched."""
        depth = 1 if self.config.use_async_batching.value and launched is not None and self.pace.open else 0
        if len(self._flights) <= depth:
            marks += [marks[-1]] * 2
            return None
        plan, ticket = self._flights.popleft()
        result = self.runner.collect(ticket)
        marks.append(self.clock())
        if self.abandoned:
            raise EngineError("the engine was given up while this step ran")
        if result.error is not None:
            raise result.error
        outcome = self.scheduler.apply(plan, result, marks[-1])
        marks.append(self.clock())
        return outcome

    def _deliver(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        outputs = self.outputs.partials(outcome.tokens, outcome.ended)
        outputs += [self.outputs.terminal(seq) for seq in outcome.ended]
        self._send(outputs)

    def _send(self, outputs: list[GenerationOutput]) -> None:
        if outputs and not self.abandoned:
            self.results.deliver(outputs)

    def _inspect(self, worked: bool) -> tuple[str, ...] | None:
        """What is broken after this round, None when it was not looked at."""
        if not worked:
            return None
        until, watched = self.pace.until, self.tap.watched
        wanted = until is not None and until.kind == "invariant"
        broken = self._inspector.after_step(self.scheduler, watched=watched, wanted=wanted)
        if broken:
            words = broken_words(self.scheduler.step, broken)
            if not (watched or wanted):
                raise InvariantError(words)
            logger.error("%s; the engine holds until it is told to go on", words)
        return broken

    def _publish(
        self, began: float, marks: list[float], worked: bool, broken: tuple[str, ...] | None = None
    ) -> None:
        acks = self._commands.take_acks()
        if not self.scheduler.state.journal.on or not (worked or acks):
            return
        following = None
        if self._previews and self.scheduler.has_work:
            following, self._previews = self.scheduler.preview(), self._previews - 1
        parts = [later - earlier for earlier, later in itertools.pairwise(marks)]
        ranks, plan_bytes = getattr(self._runner, "waits", ()), getattr(self._runner, "plan_bytes", 0)
        record = self.scheduler.take_events().record(
            began, Spans(*parts), acks, following, invariants=broken, ranks=ranks, plan_bytes=plan_bytes
        )
        if self.tap.watched:
            self.tap.publish(record)
        reached = self._reached(record)
        if reached is not None:
            self.pace.hold()
            self.post("pause", "", lambda: reached)
        self._counters = record.counters
        if self._follower is not None:
            self._follower.heard(self, record)

    def _reached(self, record: StepRecord) -> str | None:
        """Why the engine holds after this record, in words; None when it goes on."""
        if record.invariants:
            return broken_words(record.step, record.invariants)
        if self.pace.until is None:
            return None
        return self.pace.until.reached(self.scheduler, record, self._counters)

    def _note_events(self) -> None:
        """Publish what happened outside a round: the end of everything, a cleared cache."""
        now = self.clock()
        self._watch()
        self._publish(now, [now] * 7, True)

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

    def cancel_now(self, request_id: str) -> str:
        """Cancel between two steps; returns what was done, and raises RequestError for an unknown id."""
        if not self.scheduler.sequences_of(request_id):
            raise RequestError(f"there is no live request {request_id!r}")
        ended = self.scheduler.cancel(request_id, self.clock())
        self._send([self.outputs.terminal(seq) for seq in ended])
        return "" if ended else "ends with the step in flight"

    def _configure(self, fields: dict[str, Any]) -> str:
        self.config = change(self.config, self.blueprint.config, **fields)
        self.scheduler.configure(self.config.scheduler_settings())
        self._inspector.mode = self.config.check_invariants.value
        self.blueprint.builder.return_logprobs = self.config.return_logprobs.value
        return ", ".join(f"{name}={getattr(self.config, name).value!r}" for name in fields)

    def take_outputs(self) -> list[GenerationOutput]:
        """Outputs nobody took yet, in order of arrival. For use without a manager."""
        outputs = []
        while (output := self.results.next(timeout=0)) is not None:
            outputs.append(output)
        return outputs

"""The engine's loop body. ``Engine.step()`` does one round and needs no thread."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from engine.blueprint import Blueprint, draw
from engine.control import Pace
from engine.core.errors import EngineError
from engine.core.observe import Keyframe
from engine.core.plan import StepPlan
from engine.core.request import FinishReason, GenerationOutput, RequestStatus
from engine.core.scheduler import Outcome
from engine.core.tap import Tap
from engine.delivery import Router, output_ids
from engine.follow import Follower
from engine.inspector import Inspector
from engine.intake import Intake
from engine.observation import Observer
from engine.outputs import never_started
from engine.runner import Runner, RunnerSlot

HISTORY_BYTES = 64 * 1024**2


class Engine(Intake):
    """Scheduler, runner and results, joined by one loop body.

    ``submit``, ``post`` and ``ask``, see ``Intake``, may be called from any thread; everything else belongs to the
    thread that steps.

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
        drawn = blueprint or draw(model, tokenizer, generation_config, config)
        super().__init__(drawn, clock, router or Router())
        self.tap = Tap(self.config.history_steps.value, HISTORY_BYTES)
        self.pace = Pace()
        self.step_started: float | None = None
        self._follower: Follower | None = None
        self._untold = False
        self._slot = RunnerSlot(drawn, runner)
        self._flights: deque[tuple[StepPlan, Any]] = deque()
        inspector = Inspector(self.config.check_invariants.value, clock)
        self._observer = Observer(self.scheduler, self.tap, self.pace, inspector)

    # -- from any thread ----------------------------------------------------------------------------------------------

    def want_preview(self, records: int = 1) -> None:
        """The next records, as many as given, will each say what the step after them would do."""
        self._observer.want_preview(records)

    def follow(self, follower: Follower | None) -> int:
        """Have a follower go along from the next round on, in place of the one before; returns the ticket."""
        return self.post("follow", "", lambda: self.follow_now(follower))

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished or any step in flight."""
        return self.scheduler.has_work or bool(self._flights)

    @property
    def may_step(self) -> bool:
        """Whether ``step`` would do something beyond commands, leaving aside the rate."""
        return bool(self._flights) or (self.pace.open and self.scheduler.has_work)

    @property
    def begins_step(self) -> bool:
        """Whether ``step`` would begin a step, leaving aside the rate; requests that are queued count."""
        return self.pace.open and (self.scheduler.has_work or self.waiting > 0)

    # -- the stepping thread ------------------------------------------------------------------------------------------

    def follow_now(self, follower: Follower | None) -> str | None:
        """As ``follow``, between two steps on the engine's thread; returns what was done."""
        self._follower = follower
        self._watch()
        return None if follower is None else follower.begin(self)

    def open(self) -> None:
        """Build the runner, if there is none. Raises what the runner raises when the model or memory is not right."""
        self._slot.open()

    @property
    def runner(self) -> Runner:
        return self._slot.open()

    def close(self, *, keep_cache: bool = False) -> None:
        """Give the model back, once all requests have ended; the cache too, unless it is kept for the next ``open``."""
        runner = self._slot.take_out(keep_cache=keep_cache)
        self._follower = None
        self._flights.clear()
        cleared = 0 if keep_cache else self.scheduler.clear_prefix_cache()
        if self._untold or cleared:
            self._note_events()
        self._untold = False
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
        began, was_held = self.clock(), not self.pace.open
        self._take_commands()
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
        self._publish(began, marks, worked, self._observer.inspect(worked), was_held=was_held)
        self._answer()
        return worked

    def take_commands(self) -> None:
        """A round between two steps that are far apart: commands take effect and questions are answered, no more.

        Steps in flight stay there, and nothing is planned. What was done has a record with a step number of its own.
        """
        began, was_held = self.clock(), not self.pace.open
        self._take_commands()
        self._publish(began, [began, *[self.clock()] * 6], False, was_held=was_held)
        self._answer()

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

    def fail(self, reason: FinishReason, error: str, *, closes: bool = False) -> None:
        """End everything that was accepted with ``reason``; each sequence gets its terminal output with what it has.

        With ``closes``, ``close`` follows at once, and one record tells of both.
        """
        now = self.clock()
        self._follower = None
        self._watch()
        pending = self._commands.end(carry_out=reason is not FinishReason.FAILED)
        self._flights.clear()
        self._send([self.outputs.terminal(seq) for seq in self.scheduler.fail_all(reason, error, now)])
        for request in pending:
            self._send([never_started(request, name, reason, error, now) for name in output_ids(request)])
        if closes:
            self._untold = True
        else:
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
        return self._slot.lent_model()

    def warmup(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Let the runner prepare what it can in advance; ``progress(done, total)`` is called along the way."""
        self._slot.warmup(progress)

    def keyframe(self) -> Keyframe:
        """The full visible state as of the last record."""
        self._watch()
        return self.scheduler.keyframe(self.scheduler.step, self.clock(), self.tap.latest if self.tap.watched else None)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._observer.watch(followed=self._follower is not None)

    def _take_commands(self) -> None:
        self._watch()
        self._commands.carry_out()
        if self.pace.released and self._follower is not None:
            self._follower.let_go(self)
        self.pace.released = False

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

    def _configure(self, fields: dict[str, Any]) -> None:
        super()._configure(fields)
        self._observer.inspector.mode = self.config.check_invariants.value

    def _publish(
        self,
        began: float,
        marks: list[float],
        worked: bool,
        broken: tuple[str, ...] | None = None,
        *,
        was_held: bool = False,
    ) -> None:
        watched = self.scheduler.state.journal.on
        if watched and not (worked or self._commands.telling):
            return
        acks = self._commands.take_acks()
        if not watched:
            return
        record, reached = self._observer.publish(began, marks, acks, broken, self._slot.runner, was_held=was_held)
        if reached is not None:
            self.pace.hold()
        if self._follower is not None:
            self._follower.heard(self, record)

    def _note_events(self) -> None:
        """Publish what happened outside a round: the end of everything, a cleared cache."""
        now = self.clock()
        self._watch()
        self._publish(now, [now] * 7, True, was_held=not self.pace.open)

"""The scheduler: ``plan()`` says what the next step does, ``apply()`` takes in what it produced."""

from collections.abc import Iterator
from dataclasses import fields

from engine.core import lifecycle
from engine.core.admission import admit_waiting
from engine.core.cache import PagedCache
from engine.core.errors import RequestError, Stalled
from engine.core.journal import StepEvents
from engine.core.keyframe import collect_events, live_keyframe, start_recording
from engine.core.layout import CacheLayout, SchedulerSettings
from engine.core.observe import Keyframe, PlanPreview, StepRecord
from engine.core.outcome import Outcome, TokenEvent, apply_result
from engine.core.plan import StepPlan, StepResult
from engine.core.policy import POLICIES, prefill_leads
from engine.core.preview import preview
from engine.core.request import FinishReason, Request, RequestStatus, Sequence
from engine.core.running import plan_chunks, plan_decodes
from engine.core.state import Flight, State
from engine.core.stop import TextOf
from engine.core.walk import Walk

__all__ = ["Outcome", "Scheduler", "TokenEvent"]


class Scheduler:
    """Continuous batching over a paged cache. Not thread-safe: one thread calls everything.

    The loop around it is ``plan`` → run the model → ``apply``. With asynchronous batching the next ``plan`` comes
    before the ``apply`` of the one in flight; steps are applied in the order planned, at most two are open at a time.

    Args:
        layout: shape of the cache.
        settings: policy and limits; ``configure`` replaces them between steps.
        text_of: called after each appended token of a sequence with stop strings; returns the text that became
            decodable. Without it stop strings are not looked for.
        cache: a cache of that layout, to use another digest than the default.
    """

    def __init__(
        self,
        layout: CacheLayout,
        settings: SchedulerSettings,
        text_of: TextOf | None = None,
        cache: PagedCache | None = None,
    ) -> None:
        self.text_of = text_of
        self.state = State(layout, settings, cache or PagedCache(layout))
        self.configure(settings)

    # -- the two verbs ------------------------------------------------------------------------------------------------

    def plan(self, step: int | None = None, now: float | None = None) -> StepPlan:
        """Decide the next step and take rows and blocks for it.

        Every running sequence is visited once, then the line from its head until somebody does not fit. Each visited
        one gets one decision. ``computed``, ``in_flight`` and ``pending`` of the planned ones move on.

        Args:
            step: number of the step; the next one when not given.
            now: start of the step in seconds, kept as the start of newly admitted sequences. Decides nothing.

        Returns:
            The plan. It has no slices when everybody waits for the step in flight, or nobody is there.

        Raises:
            Stalled: somebody is there, nothing is in flight, and nobody could be planned.
        """
        state = self.state
        state.step = state.step + 1 if step is None else step
        state.cache.pool.step = state.step
        walk = Walk(state.step, state.settings)
        decodes = [seq for seq in state.running.values() if seq.status is RequestStatus.DECODING]
        chunks = [seq for seq in state.running.values() if seq.status is not RequestStatus.DECODING]
        if chunks and prefill_leads(state.settings, state.held):
            plan_chunks(state, walk, chunks)
            plan_decodes(state, walk, decodes, behind_prefill=bool(walk.slices))
        else:
            plan_decodes(state, walk, decodes, behind_prefill=False)
            if chunks:
                plan_chunks(state, walk, chunks)
        if state.line:
            admit_waiting(state, walk)
        plan = walk.finish()
        state.decisions = walk.decisions
        if plan.slices or plan.copies:
            state.flights.append(Flight(plan, walk.prompt_tokens))
        elif not state.flights and (state.running or state.line):
            raise Stalled(plan.decisions)
        if now is not None:
            lifecycle.note_start(plan, now)
        if state.journal.on:
            state.journal.planned(plan, walk.decisions, walk.prompt_tokens)
        return plan

    def apply(self, plan: StepPlan, result: StepResult, now: float) -> Outcome:
        """Take in what a planned step produced: tokens, ends, published blocks, blocks given back.

        Args:
            plan: the oldest plan not applied yet, or an empty one.
            result: one row per sampling slice of the plan. With ``error`` set all sequences of the plan fail.
            now: seconds, the time of the new tokens.

        Returns:
            The new tokens in plan order, and the sequences that ended, the cancelled ones included.

        Raises:
            InvariantError: the plan is not the one to apply next.
        """
        return apply_result(self.state, plan, result, now, self.text_of)

    # -- commands, between two steps ----------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        """Raise ``RequestError`` with numbers if the request can never run here. Changes nothing."""
        refused = lifecycle.refusal(self.state, request)
        if refused is not None:
            raise RequestError(f"request {request.request_id!r}: {refused.text}")

    def add(self, request: Request, now: float | None = None) -> list[Sequence]:
        """Accept a request: all its sequences join the end of the line.

        Returns:
            The sequences by ``child``. With ``max_new_tokens`` 0 they are finished already and come out of no step.

        Raises:
            RequestError: never fits, too long, empty, or its id belongs to a live request. Nothing was queued.
        """
        return lifecycle.enter(self.state, request, request.created_time if now is None else now)

    def cancel(self, request_id: str, now: float) -> list[Sequence]:
        """Cancel all living sequences of a request; an unknown id has no effect.

        Returns:
            Those that ended now. One that a step in flight computes ends when that is applied, and comes out there.
        """
        family = list(self.state.families.get(request_id, ()))
        return [seq for seq in family if lifecycle.withdraw(self.state, seq, now)]

    def fail_all(self, reason: FinishReason, error: str | None, now: float) -> list[Sequence]:
        """End every living sequence now and give everything back; steps in flight are forgotten.

        Returns:
            The sequences that ended, by key.
        """
        return lifecycle.end_all(self.state, reason, error, now)

    def configure(self, settings: SchedulerSettings) -> None:
        """Replace the settings from the next plan on. Running sequences above a lowered row limit finish in turns.

        Raises:
            ValueError: an unknown policy or a limit below 1.
        """
        if settings.policy not in POLICIES:
            raise ValueError(f"policy {settings.policy!r} is not known: use one of {', '.join(POLICIES)}")
        for name in ("max_batch_tokens", "max_requests_per_batch", "max_steps_without_decode"):
            if getattr(settings, name) < 1:
                raise ValueError(f"{name} is {getattr(settings, name)}; the least is 1")
        old = self.state.settings
        changed = {f.name: getattr(settings, f.name) for f in fields(settings)}
        changed = {name: value for name, value in changed.items() if value != getattr(old, name)}
        self.state.configure(settings)
        if self.state.journal.on:
            self.state.journal.settings.update(changed)

    def clear_prefix_cache(self) -> int:
        """Forget all published blocks, for example because weights changed. Returns how many there were.

        Blocks held by sequences stay theirs and are never published, so that nothing computed before is found later.
        """
        return self.state.cache.prefix.clear()

    # -- looking ------------------------------------------------------------------------------------------------------

    @property
    def layout(self) -> CacheLayout:
        return self.state.layout

    @property
    def settings(self) -> SchedulerSettings:
        return self.state.settings

    @property
    def cache(self) -> PagedCache:
        return self.state.cache

    @property
    def step(self) -> int:
        """Number of the last planned step."""
        return self.state.step

    @property
    def has_work(self) -> bool:
        """Whether anybody is here or any step is in flight."""
        return bool(self.state.running or self.state.line or self.state.flights)

    @property
    def num_in_flight(self) -> int:
        """Steps planned and not applied."""
        return len(self.state.flights)

    @property
    def running(self) -> tuple[Sequence, ...]:
        """Sequences that hold a row and may be planned, in order of admission."""
        return tuple(self.state.running.values())

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """Sequences in the line with nothing on the host, in order."""
        return tuple(self.state.line.waiting())

    @property
    def offloaded(self) -> tuple[Sequence, ...]:
        """Sequences in the line whose blocks are in the host pool, in order."""
        return tuple(self.state.line.parked)

    @property
    def leaving(self) -> tuple[Sequence, ...]:
        """Sequences that are over, or cancelled, and keep their blocks until the step in flight is applied."""
        return tuple(self.state.leaving.values())

    def sequences_of(self, request_id: str) -> tuple[Sequence, ...]:
        """Living sequences of a request, by ``child``; empty for an unknown id."""
        return tuple(self.state.families.get(request_id, ()))

    def preview(self) -> PlanPreview:
        """What ``plan`` would do now if nothing else came: a dry run on a copy."""
        return preview(self)

    def copy(self, max_waiting: int = 64) -> "Scheduler":
        """An independent scheduler in the same state for dry runs, with the first ``max_waiting`` of the line.

        It records nothing and looks for no stop strings.
        """
        state = self.state.copy(max_waiting)
        twin = Scheduler(self.layout, self.settings, cache=state.cache)
        twin.state = state
        return twin

    # -- observation --------------------------------------------------------------------------------------------------

    def observe(self, on: bool) -> None:
        """Start or stop recording. Off costs one comparison where something could be recorded."""
        start_recording(self.state, on)

    def take_events(self, step: int | None = None) -> StepEvents:
        """What happened since the last call, for one ``StepRecord``; ``StepEvents.record`` makes it.

        A period without a plan (commands while the engine idles) is a step of its own and gets the next number.

        Args:
            step: number of the record, when the caller counts for itself.
        """
        return collect_events(self.state, step)

    def keyframe(self, step: int, time: float, record: StepRecord | None = None) -> Keyframe:
        """The full visible state. Taken right after ``take_events`` it is what folding that record gives."""
        return live_keyframe(self.state, step, time, record)

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences that hold anything or wait, by key."""
        return iter(self.state.sequences())

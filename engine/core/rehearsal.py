"""What would happen if: a request added, settings changed, a new engine. Dry runs of the real scheduler on copies."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.dryrun import run_ahead
from engine.core.errors import RequestError, Stalled
from engine.core.forecast import FARTHEST_PLACE
from engine.core.layout import CacheLayout, SchedulerSettings
from engine.core.observe import Decision, Verdict
from engine.core.request import Request
from engine.core.walk import PLANNED

if TYPE_CHECKING:
    from engine.core.scheduler import Scheduler

NOBODY = -1
"""Key of no sequence: run ahead until all have ended."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What would become of a request added now, as seen from the last step.

    Attributes:
        step: the first step with its tokens, at the latest; None when it is farther away than was looked.
        early: by how much ``step`` may be less: adding it may take a step number of its own, or not.
        steps: how many steps from now that is, 1 for the next; or how many were looked at.
        decision: what the next step would decide for it.
        cached: prompt tokens it would find in the prefix cache.
        need: blocks it takes for its first chunk. full: at its full length. pool: blocks there are.
    """

    step: int | None
    steps: int
    decision: Decision | None
    cached: int
    need: int
    full: int
    pool: int
    early: int = 0


@dataclass(frozen=True, slots=True)
class Outlook:
    """The next step, and the end of what is there now.

    Attributes:
        tokens, budget: planned and at most. rows, max_rows: sequences planned and at most.
        used, blocks: blocks owned after it and in the pool. margin: blocks the safety margin keeps usable.
        limit: what ended the making of the plan, "" for nothing.
        waiting: request ids of those without a row after it, in order. refused: of those that could never run.
        steps: steps until all have ended, at the latest; None when that is farther away than was looked.
    """

    tokens: int
    budget: int
    rows: int
    max_rows: int
    used: int
    blocks: int
    margin: int
    limit: str
    waiting: tuple[str, ...]
    refused: tuple[str, ...]
    steps: int | None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The outlook as things are and as they would be. ``anew``: in a new engine, all requests from their beginning."""

    before: Outlook
    after: Outlook
    anew: bool


def forecast(scheduler: "Scheduler", request: Request, queued: int) -> Forecast:
    """When ``request`` would start if it were added now, everybody ran to the last token and nobody else came.

    Args:
        scheduler: a copy made between two steps with the first ``FARTHEST_PLACE`` of the line; it is used up.
        queued: how many stand in the line of the original.

    Raises:
        RequestError: it would be refused.
    """
    (seq, *_) = scheduler.add(request)
    cache, settings = scheduler.cache, scheduler.settings
    hit = cache.prefix.lookup(seq)
    chunk = min(len(seq.tokens) - hit.tokens, settings.max_batch_tokens)
    need = cache.quote_start(seq, hit, chunk)
    full = cache.blocks_ever(seq.num_prompt + max(0, request.max_new_tokens - 1))
    pool = scheduler.layout.num_blocks
    if queued > FARTHEST_PLACE:
        order = Decision(seq.key, Verdict.WAIT_ORDER, next(iter(scheduler.state.line)).key, queued + 1)
        return Forecast(None, 0, order, hit.tokens, need, full, pool)
    twin = scheduler.copy(FARTHEST_PLACE + 1)
    place = len(scheduler.state.line)
    head = next(iter(scheduler.state.line), None)
    try:
        scheduler.plan()
    except Stalled:
        pass  # the decisions made on the way are what is asked for
    decision = scheduler.state.decisions.get(seq.key)
    if decision is None and head is not None and head is not seq:
        decision = Decision(seq.key, Verdict.WAIT_ORDER, head.key, place)
    ahead = run_ahead(twin, seq.key)
    return Forecast(ahead.step, ahead.steps, decision, hit.tokens, need, full, pool)


def rehearse(scheduler: "Scheduler", settings: SchedulerSettings, layout: CacheLayout | None, queued: int) -> Rehearsal:
    """What changed settings, or a new engine of another layout, would make of the next step.

    Args:
        scheduler: a copy made between two steps with the first ``FARTHEST_PLACE`` of the line; it stays as it is.
        settings: to try. layout: of a new engine; None keeps the one that runs.
        queued: how many stand in the line of the original.
    """
    far = queued > FARTHEST_PLACE
    before = outlook(scheduler.copy(FARTHEST_PLACE), far)
    if layout is None:
        twin = scheduler.copy(FARTHEST_PLACE)
        twin.configure(settings)
        return Rehearsal(before, outlook(twin, far), False)
    from engine.core.scheduler import Scheduler

    fresh, refused = Scheduler(layout, settings), []
    requests = {seq.request.request_id: seq.request for seq in scheduler}
    for request in requests.values():
        try:
            fresh.add(request)
        except RequestError:
            refused.append(request.request_id)
    return Rehearsal(before, outlook(fresh, far, tuple(refused)), True)


def outlook(scheduler: "Scheduler", far: bool, refused: tuple[str, ...] = ()) -> Outlook:
    """Plans the next step of ``scheduler``, a copy made for this. ``far``: not all of the line are in it."""
    later = scheduler.copy(FARTHEST_PLACE)
    state, settings = scheduler.state, scheduler.settings
    tokens, rows, limit = 0, 0, ""
    if scheduler.has_work:
        try:
            plan = scheduler.plan()
        except Stalled:
            pass  # an empty plan is what there is to show
        else:
            tokens, rows, limit = plan.num_tokens, len(plan.slices), plan.limit
    planned = {key for key, decision in state.decisions.items() if decision.verdict in PLANNED}
    waiting = tuple(dict.fromkeys(seq.request.request_id for seq in state.line if seq.key not in planned))
    return Outlook(
        tokens, settings.max_batch_tokens, rows, settings.max_requests_per_batch,
        scheduler.layout.num_blocks - scheduler.cache.pool.usable, scheduler.layout.num_blocks, state.margin, limit,
        waiting, refused, None if far else _steps_to_the_end(later),
    )  # fmt: skip


def _steps_to_the_end(scheduler: "Scheduler") -> int | None:
    """Steps until everybody has ended, None when that is too far away. Uses the scheduler up."""
    start = scheduler.step
    ahead = run_ahead(scheduler, NOBODY)
    if scheduler.has_work:
        return None
    return ahead.ended[-1][1] - start if ahead.ended else 0

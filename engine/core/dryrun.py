"""Running a copy of the scheduler ahead: everybody runs to the last token asked for, nobody arrives."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.errors import Stalled
from engine.core.plan import StepPlan, StepResult
from engine.core.walk import PLANNED

if TYPE_CHECKING:
    from engine.core.scheduler import Scheduler

MAX_STEPS = 5_000
"""Steps one dry run looks ahead."""

MAX_WORK = 15_000
"""Slices one dry run may plan: with a few microseconds each it ends within some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a dry run found.

    Attributes:
        step: the first step with tokens of the sequence asked for, or None when it is farther away than was looked.
        steps: how many steps from now that is, 1 for the very next; or how many were looked at.
        ended: (sequence key, step) of those that ended before, in that order.
        stalled: the scheduler found nobody to plan. Never without a bug.
    """

    step: int | None
    steps: int
    ended: tuple[tuple[int, int], ...]
    stalled: bool = False


def run_ahead(twin: "Scheduler", key: int, max_steps: int = MAX_STEPS, max_work: int = MAX_WORK) -> Ahead:
    """Step ``twin``, a copy made for this, until it plans tokens of the sequence ``key``.

    The made-up tokens are negative and different for each sequence, so they are no end-of-sequence and never match a
    cached prefix. Steps in flight are finished first. An early end cannot be known: the answer is "at the latest".
    """
    ended: list[tuple[int, int]] = []
    for flight in list(twin.state.flights):
        ended += _finish(twin, flight.plan)
    work = 0
    for count in range(1, max_steps + 1):
        try:
            plan = twin.plan()
        except Stalled:
            return Ahead(None, count, tuple(ended), stalled=True)
        decision = twin.state.decisions.get(key)
        if decision is not None and decision.verdict in PLANNED:
            return Ahead(plan.step, count, tuple(ended))
        work += len(plan.slices)
        if work > max_work or not twin.has_work:
            return Ahead(None, count, tuple(ended))
        ended += _finish(twin, plan)
    return Ahead(None, max_steps, tuple(ended))


def _finish(twin: "Scheduler", plan: StepPlan) -> list[tuple[int, int]]:
    """Apply a plan with made-up tokens. Returns who ended."""
    result = StepResult([-2 - piece.seq.key for piece in plan.slices if piece.samples])
    return [(seq.key, plan.step) for seq in twin.apply(plan, result, 0.0).ended]

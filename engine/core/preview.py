"""What the next step would do: the real scheduler on a copy of its state."""

from typing import TYPE_CHECKING

from engine.core.errors import Stalled
from engine.core.journal import slice_records
from engine.core.observe import PlanPreview

if TYPE_CHECKING:
    from engine.core.scheduler import Scheduler


def preview(scheduler: "Scheduler") -> PlanPreview:
    """Plan one step on a copy. Empty when nobody could be planned."""
    twin = scheduler.copy()
    try:
        plan = twin.plan()
    except Stalled as stalled:
        return PlanPreview((), stalled.decisions, "", 0)
    return PlanPreview(slice_records(plan.slices), plan.decisions, plan.limit, plan.num_tokens)

"""What held a whole step up, in words: its limit, and what was left of its budget."""

from collections.abc import Sequence

from cbtui.sentences import Wordings
from cbtui.view.scene import LIMITS, Scene, first_waiter
from engine.core.observe import Decision, PlanPreview, Verdict


def limit_name(scene: Scene, limit: str, decisions: Sequence[Decision]) -> str:
    """The binding limit in words, with who it holds up."""
    waiter = first_waiter(decisions)
    name = LIMITS.get(limit, limit)
    if limit in ("blocks", "margin") and waiter is not None:
        return f"{name} ({scene.label(waiter.seq)} waits)"
    return name


def idle_reason(scene: Scene, decisions: Sequence[Decision]) -> str:
    """Why a budget that nothing limits is not used up: nobody waits, or whoever waits does so for another request."""
    waiter = next((d for d in decisions if d.verdict in (Verdict.WAIT_ORDER, Verdict.WAIT_IN_FLIGHT)), None)
    if waiter is None:
        return "nobody waits"  # in this plan: who came later, or a pause, changes nothing in it
    if waiter.verdict is Verdict.WAIT_ORDER:
        return f"{scene.label(waiter.seq)} waits for {scene.label(waiter.a)}"
    return f"{scene.label(waiter.seq)} waits for step {waiter.a}"


def unused(scene: Scene, number: int, plan: PlanPreview) -> Wordings:
    """What the empty part of the token budget says: how much, and whose fault."""
    waiter = first_waiter(plan.decisions)
    who = scene.label(waiter.seq) if waiter is not None else ""
    reason = {
        "rows": "all rows taken",
        "blocks": f"{who} finds no blocks" if who else "no free blocks",
        "margin": f"margin holds {who}" if who else "held by the margin",
        "tokens": "the next chunk does not fit",
    }.get(plan.limit, idle_reason(scene, plan.decisions))
    return (f"{number} unused: {reason}", f"{number} unused", str(number))

"""One word for where a request is."""

from cbtui.notes import REJECTIONS
from cbtui.picture import Live
from cbtui.stories import Story
from engine.core.observe import Verdict
from engine.core.request import FinishReason, RequestStatus


def state_of(live: Live | None, story: Story, step: int) -> str:
    """One word for where a request is after ``step``.

    "waiting", "prefill", "decode", "stalled", "to_cpu", "on_cpu", "to_gpu", "finished", "cancelled", "stopped"
    (with the engine), "failed", "refused".
    """
    if story.is_refused or (story.decision is not None and story.decision.verdict in REJECTIONS):
        return "refused"
    if live is None or live.change.place == "done":
        return _ended_word(story, live)
    decision = live.decision
    if live.change.place == "offloaded":
        moved = decision is not None and decision.verdict is Verdict.OFFLOAD
        return "to_cpu" if moved else "on_cpu"
    if live.change.place == "waiting":
        return "waiting"
    phase = story.phase_at(step)
    if decision is not None and decision.verdict is Verdict.RESTORE:
        return "to_gpu"
    if phase is not None and phase.kind in ("prefill", "decode", "stalled"):
        return phase.kind
    return "decode" if live.change.status is RequestStatus.DECODING else "prefill"


def _ended_word(story: Story, live: Live | None) -> str:
    change = live.change if live is not None else story.change
    if change is None:
        return "finished"
    if change.status is RequestStatus.CANCELLED or change.finish_reason is FinishReason.CANCELLED:
        return "cancelled"
    if change.finish_reason is FinishReason.STOPPED:
        return "stopped"
    if change.status is RequestStatus.FAILED or change.finish_reason is FinishReason.FAILED:
        return "failed"
    return "finished"

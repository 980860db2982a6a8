"""What is worth a letter on the timeline or a line in the log, before it is worded."""

from dataclasses import dataclass

from cbtui.picture import Picture
from engine.core.observe import Decision, StepRecord, Verdict

ENDINGS = (Verdict.FINISHED, Verdict.CANCELLED, Verdict.FAILED)
REJECTIONS = (Verdict.REJECT_NEVER_FITS, Verdict.REJECT_TOO_LONG)
TOLD = (*ENDINGS, *REJECTIONS, Verdict.ADMIT, Verdict.RESTORE, Verdict.OFFLOAD, Verdict.RECOMPUTE)
MARKS = {
    Verdict.RECOMPUTE: "P",
    Verdict.OFFLOAD: "O",
    Verdict.CANCELLED: "X",
    Verdict.FAILED: "!",
    Verdict.REJECT_NEVER_FITS: "!",
    Verdict.REJECT_TOO_LONG: "!",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A letter on the timeline: P preempt, O offload, X cancel, ! refused or failed, S setting."""

    step: int
    letter: str
    key: int = 0


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of the step log before it is worded: ``kind`` is a Verdict value or "setting", "refused", "command"."""

    step: int
    kind: str
    key: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    text: str = ""


def third_number(decision: Decision, record: StepRecord, picture: Picture) -> int:
    """A third number for the log: prompt chunk of an admission, host blocks of an offload, blocks kept cached."""
    if decision.verdict is Verdict.ADMIT:
        return next((s.query for s in record.slices if s.seq == decision.seq), 0)
    live = picture.sequences.get(decision.seq)
    if decision.verdict is Verdict.OFFLOAD and live is not None:
        return live.change.host_blocks
    if decision.verdict in ENDINGS:
        freed = {d.block for d in record.deltas if d.seq == decision.seq and d.block}
        return sum(1 for block in freed if picture.blocks[block].state == "cached")
    return 0

"""What is worth a letter on the timeline or a line in the log, before it is worded."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cbtui.picture import Picture
from engine.core.observe import BlockOp, Decision, StepRecord, Verdict

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


KEPT_BLOCK_EVENTS = 16
"""Per block, for the story of its life."""


class BlockEvent(NamedTuple):
    """Something that happened to a block; see BlockOp; ``place`` is the index in the table."""

    step: int
    op: BlockOp
    seq: int
    place: int
    other: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A letter on the timeline: P preempt, O offload, X cancel, ! refused or failed, S setting, N new engine."""

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


def note_lives(lives: dict[int, deque[BlockEvent]], record: StepRecord) -> None:
    """Add what a record did to each block."""
    for delta in record.deltas:
        if delta.block:
            life = lives.get(delta.block)
            if life is None:
                life = lives[delta.block] = deque(maxlen=KEPT_BLOCK_EVENTS)
            life.append(BlockEvent(record.step, delta.op, delta.seq, delta.index, delta.other))


def numbers_of(record: StepRecord, slices: Sequence[tuple[int, str, int, int]], picture: Picture) -> dict[str, int]:
    """What ``Series`` keeps of a record; ``slices`` are its own as rows, ``picture`` is the moment after it."""
    moves = picture.moves
    return {
        "tokens": sum([query for _, _, query, _ in slices]),
        "budget": record.budget,
        "used": picture.used,
        "cached": picture.cached,
        "host": picture.host_used,
        "queue": picture.queued,
        "running": len(slices),
        "prefill": sum([query for _, kind, query, _ in slices if kind == "prefill"]),
        "output": len(record.outputs),
        "out": len(moves.out_slots),
        "back": len(moves.back_slots),
    }

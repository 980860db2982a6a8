"""What can be seen of the engine: one stream of records, and keyframes to start from.

Everything a monitor shows is a fold over this stream (``engine.core.fold``). All types are immutable and hold only
numbers, strings and tuples, so they may cross threads, be kept, pickled and compared. Sequences appear as their integer
``key``, blocks as their integer id.
"""

import enum
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

from engine.core.counters import Counters, RankWait, Spans
from engine.core.packed import PackedKind
from engine.core.request import FinishReason, RequestStatus


class Verdict(enum.StrEnum):
    """What the scheduler decided for one candidate, and what the numbers ``a`` and ``b`` of the decision mean."""

    DECODE = "decode"
    """one token; a = tokens in its cache, b = new blocks taken."""
    CHUNK = "chunk"
    """part of a prompt; a = tokens now, b = prompt tokens left after it."""
    ADMIT = "admit"
    """first chunk of a newly admitted request; a = tokens found in the prefix cache, b = new blocks taken."""
    RESTORE = "restore"
    """back from the host pool; a = blocks copied back, b = host slots still used by others."""
    WAIT_TOKENS = "wait_tokens"
    """no budget; a = tokens wanted, b = tokens left in this step."""
    WAIT_ROWS = "wait_rows"
    """no row; a = rows taken, b = rows there are."""
    WAIT_BLOCKS = "wait_blocks"
    """no blocks; a = blocks needed, b = blocks usable (free + cached)."""
    WAIT_MARGIN = "wait_margin"
    """the safety margin would be broken; a = blocks usable after taking what it needs, b = blocks the margin keeps."""
    WAIT_ORDER = "wait_order"
    """behind somebody in the queue; a = key of the sequence it waits behind, b = its place in the queue (from 1)."""
    WAIT_IN_FLIGHT = "wait_in_flight"
    """its next step depends on the step in flight; a = that step, b = 0."""
    WAIT_PREFILL = "wait_prefill"
    """decode held back by ``prefill_first``; a = steps since its last token, b = cap on that."""
    OFFLOAD = "offload"
    """moved to the host pool; a = key of who needed the room, b = blocks freed."""
    RECOMPUTE = "recompute"
    """cache dropped, will be computed again; a = key of who needed the room, b = blocks freed."""
    REJECT_NEVER_FITS = "reject_never_fits"
    """cannot fit even alone; a = blocks needed at full length, b = blocks in the pool."""
    REJECT_TOO_LONG = "reject_too_long"
    """longer than the model allows; a = tokens, b = limit."""
    CANCELLED = "cancelled"
    """by the caller; a = output tokens so far, b = blocks freed."""
    FINISHED = "finished"
    """ended; a = output tokens, b = blocks freed. The reason is in the sequence change."""
    FAILED = "failed"
    """ended by an error; a = output tokens, b = blocks freed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One candidate, one verdict, two numbers that were true at that moment (see Verdict)."""

    seq: int
    verdict: Verdict
    a: int = 0
    b: int = 0


class BlockOp(enum.StrEnum):
    """What happened to a block or to one table entry that points at it."""

    ALLOC = "alloc"  # free -> owned: tables[group][index] of seq now points at block
    SHARE = "share"  # one more reference: tables[group][index] of seq now points at block (it may have been cached)
    RELEASE = "release"  # one reference less; at zero it becomes cached when published, else free
    PUBLISH = "publish"  # content hash entered into the prefix index
    EVICT = "evict"  # cached -> free, hash removed from the index (seq = -1, or who needed the block)
    RECYCLE = "recycle"  # behind the window: like RELEASE, and the table entry now points at the trash block
    OFFLOAD = "offload"  # contents copied to host slot `other`; the entry's block is released by its own RELEASE
    RESTORE = "restore"  # contents copied from host slot `other`; the block came by its own ALLOC
    COPY = "copy"  # contents copied from block `other`; the block came by its own ALLOC
    DROP = "drop"  # host slot `other` given up without a copy back (block = 0)


@dataclass(frozen=True, slots=True)
class BlockDelta:
    """One change of the block state. ``group``/``index`` locate the table entry of ``seq``; -1 where none is meant."""

    op: BlockOp
    block: int
    seq: int = -1
    group: int = -1
    index: int = -1
    other: int = -1


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """Tokens of one sequence in the batch: ``kind`` is "decode" or "prefill", ``past`` tokens were there before."""

    seq: int
    kind: str
    query: int
    past: int


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A sequence as it entered: what a view needs to know about it once.

    ``prompt_ids`` are given so that a view can show the prompt; ``sampling`` is a printable summary such as
    "greedy" or "T=0.7 top_p=0.9 seed=42".
    """

    seq: int
    request_id: str
    child: int
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: str
    created_time: float


@dataclass(frozen=True, slots=True)
class SequenceChange:
    """New values of a sequence that changed in this step. All fields are absolute values, not differences.

    ``place`` is one of "waiting", "running", "offloaded", "done". ``row`` is its slot among running ones, -1 for none.
    """

    seq: int
    status: RequestStatus
    place: str
    computed: int
    num_tokens: int
    row: int
    cached_tokens: int
    preemptions: int
    recomputed: int
    host_blocks: int
    first_token_time: float = -1.0
    finish_reason: FinishReason | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One token that became known. ``logprob`` is None when nobody asked for it."""

    seq: int
    token: int
    logprob: float | None = None


SLICES = PackedKind(SliceRecord, "SLICES", growing=("past",))
DECISIONS = PackedKind(Decision, "DECISIONS", growing=("a",))
DELTAS = PackedKind(BlockDelta, "DELTAS")
CHANGES = PackedKind(SequenceChange, "CHANGES", growing=("computed", "num_tokens"))
OUTPUTS = PackedKind(TokenOutput, "OUTPUTS")


@dataclass(frozen=True, slots=True)
class CommandAck:
    """A command that took effect (or was refused) at the start of this step.

    ``kind``: "add", "cancel", "pause", "resume", "step", "config", "stop", "hard_stop", "clear_prefix_cache" …
    ``target``: request id or field name. ``detail``: the reason when refused, else what was done.
    """

    ticket: int
    kind: str
    target: str
    accepted: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """What the next step would do if nothing else arrived: a dry run on a copy of the scheduler's state."""

    slices: Seq[SliceRecord]
    decisions: Seq[Decision]
    limit: str
    num_tokens: int

    def opened(self) -> "PlanPreview":
        """The same with plain tuples, see ``StepRecord.opened``."""
        return PlanPreview(tuple(self.slices), tuple(self.decisions), self.limit, self.num_tokens)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Everything one step did.

    ``requests`` are the sequences that entered; ``changes`` the new values of all that changed; ``deltas`` the block
    changes in the order they happened. ``time`` is when the step started, in seconds on the engine's monotonic clock.
    What there are many of comes as ``Packed``, made when it is read, or as plain tuples (see ``opened``).
    ``settings`` names scheduler settings that took effect at the start of this step (name -> value), usually empty.
    """

    step: int
    time: float
    spans: Spans
    commands: tuple[CommandAck, ...]
    requests: tuple[RequestInfo, ...]
    slices: Seq[SliceRecord]
    decisions: Seq[Decision]
    deltas: Seq[BlockDelta]
    changes: Seq[SequenceChange]
    outputs: Seq[TokenOutput]
    counters: Counters
    limit: str
    budget: int
    rows: int
    waiting: tuple[int, ...]
    """keys of the waiting sequences in queue order (at most the first 1,000; ``num_waiting`` is the true number)."""
    num_waiting: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)
    next: PlanPreview | None = None
    invariants: tuple[str, ...] | None = None
    """None: not checked after this step. Empty: all hold. Else a sentence for each that is broken."""
    ranks: tuple[RankWait, ...] = ()
    """what each process of a split model waited for; empty when the model is in one piece."""
    plan_bytes: int = 0
    """size of the plan as it was sent to the other processes, 0 when there are none."""
    was_held: bool = False
    """no step could begin right before this record, until its commands: the time since the last one was a pause."""

    def opened(self) -> "StepRecord":
        """The same record with plain tuples, for a reader that looks at it more than once."""
        return replace(
            self, slices=tuple(self.slices), decisions=tuple(self.decisions), deltas=tuple(self.deltas),
            changes=tuple(self.changes), outputs=tuple(self.outputs),
            next=None if self.next is None else self.next.opened(),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block: ``state`` is "free", "owned" or "cached"; ``owners`` the (seq, table index) pairs that point at it.

    ``group`` is the layer group whose tokens it holds, -1 when free. ``last_use`` is the step of its last reference.
    """

    state: str = "free"
    group: int = -1
    owners: tuple[tuple[int, int], ...] = ()
    published: bool = False
    last_use: int = 0


@dataclass(frozen=True, slots=True)
class SequenceView:
    """One live sequence: what it was asked for, where it is, its tables and its tokens so far."""

    info: RequestInfo
    change: SequenceChange
    tables: tuple[tuple[int, ...], ...]
    host: tuple[tuple[int, int, int], ...]
    output: tuple[int, ...]
    decision: Decision | None


@dataclass(frozen=True, slots=True)
class Keyframe:
    """The full visible state after a step.

    ``blocks[i]`` is block i; index 0 is the trash block and always free. ``host[i]`` is (seq, group, index) or None.
    A sequence that ended in this very step is still in ``sequences`` (place "done"); the next step drops it.
    """

    step: int
    time: float
    page_size: int
    windows: tuple[int | None, ...]
    """one per layer group: its sliding window, or None for full attention."""
    blocks: tuple[BlockView, ...]
    host: tuple[tuple[int, int, int] | None, ...]
    sequences: Mapping[int, SequenceView]
    waiting: tuple[int, ...]
    counters: Counters
    settings: Mapping[str, object]
    record: StepRecord | None = None
    """the record of this step, when there is one."""

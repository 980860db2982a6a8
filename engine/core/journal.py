"""What happened since the last record, collected only while somebody wants it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.core.counters import Counters, RankWait, Spans
from engine.core.observe import (
    CHANGES,
    DECISIONS,
    DELTAS,
    SLICES,
    BlockDelta,
    CommandAck,
    Decision,
    PlanPreview,
    RequestInfo,
    SequenceChange,
    SliceRecord,
    StepRecord,
    TokenOutput,
)
from engine.core.packed import Packed
from engine.core.plan import Slice, StepPlan
from engine.core.quick import quick
from engine.core.request import RequestStatus, SamplingParams, Sequence
from engine.core.steady import Steady

MAX_WAITING_SHOWN = 1000
"""Keys of the line that a record lists; the true number stands beside them."""


@dataclass(frozen=True, slots=True)
class StepEvents:
    """What the scheduler adds to the record of one step. Field by field as in ``StepRecord``."""

    step: int
    requests: tuple[RequestInfo, ...]
    slices: Packed[SliceRecord]
    decisions: Packed[Decision]
    deltas: Packed[BlockDelta]
    changes: Packed[SequenceChange]
    outputs: Packed[TokenOutput]
    counters: Counters
    limit: str
    budget: int
    rows: int
    waiting: tuple[int, ...]
    num_waiting: int
    settings: Mapping[str, object] = field(default_factory=dict)

    def record(
        self,
        time: float,
        spans: Spans = Spans(),
        commands: tuple[CommandAck, ...] = (),
        next: PlanPreview | None = None,
        step: int | None = None,
        invariants: tuple[str, ...] | None = None,
        ranks: tuple[RankWait, ...] = (),
        plan_bytes: int = 0,
        was_held: bool = False,
    ) -> StepRecord:
        """The whole record: these events plus what only the loop knows.

        Args:
            time: when the step started, seconds on the engine's clock.
            spans: where its time went.
            commands: acknowledgements of this step.
            next: what the next step would do, when somebody asked.
            step: number of the step, when the loop counts for itself.
            invariants: what is broken after it; None when that was not checked.
            ranks, plan_bytes: of a split model.
            was_held: the engine was held right before it.
        """
        return make_record(
            self.step if step is None else step, time, spans, commands, self.requests, self.slices, self.decisions,
            self.deltas, self.changes, self.outputs, self.counters, self.limit, self.budget, self.rows, self.waiting,
            self.num_waiting, self.settings, next, invariants, ranks, plan_bytes, was_held,
        )  # fmt: skip


make_events = quick(StepEvents)
make_record = quick(StepRecord)


class Journal:
    """Events since the last record.

    Attributes:
        on: whether anything is collected at all.
        deltas: shared with the block pool, which writes into it.
        ended: sequences that ended since the last record.
        departed: sequences that ended in the last record: still part of a keyframe, gone with the next record.
        decided: key -> its last decision, for keyframes.
        decodes: whether the plan computes nothing but one token of each sequence it visits.
        steady: the steps before, as long as they did the same.
    """

    def __init__(self) -> None:
        self.on = False
        self.deltas: list[BlockDelta] = []
        self.departed: list[Sequence] = []
        self.decided: dict[int, Decision] = {}
        self.waiting: tuple[int, tuple[int, ...]] = (-1, ())
        self.steady: Steady | None = None
        self.clear()

    def clear(self) -> None:
        """Start the next record with nothing in it."""
        self.deltas.clear()
        self.requests: list[RequestInfo] = []
        self.plan: StepPlan | None = None
        self.decodes = False
        self.decisions: list[Decision] = []
        self.touched: dict[int, Sequence] = {}
        self.outputs: list[tuple[int, int, float | None]] = []
        self.ended: list[Sequence] = []
        self.settings: dict[str, object] = {}

    def planned(self, plan: StepPlan, decisions: Mapping[int, Decision], prompt_tokens: int) -> None:
        """A step was planned.

        Args:
            decisions: the plan's, by key.
            prompt_tokens: its tokens that are not decode steps.
        """
        self.plan = plan
        self.decodes = not prompt_tokens and 0 < len(plan.slices) == len(plan.decisions)
        self.decisions.extend(plan.decisions)
        self.decided.update(decisions)
        self.touch_slices(plan.slices)

    def touch_slices(self, slices: Iterable[Slice]) -> None:
        touched = self.touched
        for piece in slices:
            touched[piece.seq.key] = piece.seq

    def decide(self, seq: Sequence, decision: Decision) -> None:
        """A decision made outside a plan: the end of a sequence, a refusal."""
        self.touched[seq.key] = seq
        self.decisions.append(decision)
        self.decided[seq.key] = decision


def slice_records(slices: Iterable[Slice]) -> Packed[SliceRecord]:
    """Slices without their sequences."""
    return SLICES([
        (
            s.seq.key,
            "decode" if s.samples and s.length == 1 and s.start >= s.seq.num_prompt else "prefill",
            s.length,
            s.start,
        )
        for s in slices
    ])  # fmt: skip


def place_of(seq: Sequence) -> str:
    """Where a sequence is, in the words of ``SequenceChange``."""
    if seq.status >= RequestStatus.FINISHED:
        return "done"
    if seq.row >= 0:
        return "running"
    return "offloaded" if seq.host else "waiting"


def change_of(seq: Sequence) -> SequenceChange:
    """The visible values of a sequence now."""
    return changes_of((seq,))[0]


def changes_of(seqs: Iterable[Sequence]) -> Packed[SequenceChange]:
    """The visible values of sequences now."""
    over = RequestStatus.FINISHED
    return CHANGES([
        (
            s.key, s.status, "running" if s.row >= 0 and s.status < over else place_of(s), s.computed, len(s.tokens),
            s.row, s.cached_tokens, s.preemptions, s.recomputed, len(s.host), s.first_token_time, s.finish_reason,
            s.error,
        )
        for s in seqs
    ])  # fmt: skip


def decisions_of(decisions: Iterable[Decision]) -> Packed[Decision]:
    """Decisions as they are recorded."""
    return DECISIONS([(d.seq, d.verdict, d.a, d.b) for d in decisions])


def deltas_of(deltas: Iterable[BlockDelta]) -> Packed[BlockDelta]:
    """Block changes as they are recorded."""
    return DELTAS([(d.op, d.block, d.seq, d.group, d.index, d.other) for d in deltas])


def info_of(seq: Sequence) -> RequestInfo:
    """What a view needs to know once about a sequence."""
    request = seq.request
    return RequestInfo(
        seq.key, request.request_id, seq.child, request.prompt_ids, request.max_new_tokens,
        sampling_summary(request.sampling), request.created_time,
    )  # fmt: skip


def sampling_summary(sampling: SamplingParams) -> str:
    """How tokens are drawn, in a few words: "greedy" or "T=0.7 top_p=0.9 seed=42"."""
    parts = ["greedy"] if sampling.is_greedy else [f"T={sampling.temperature:g}"]
    if not sampling.is_greedy:
        parts += [f"top_k={sampling.top_k}"] if sampling.top_k else []
        parts += [f"top_p={sampling.top_p:g}"] if sampling.top_p != 1.0 else []
        parts += [f"min_p={sampling.min_p:g}"] if sampling.min_p else []
        parts += [f"seed={sampling.seed}"] if sampling.seed is not None else []
    for name, neutral in (("repetition_penalty", 1.0), ("presence_penalty", 0.0), ("frequency_penalty", 0.0)):
        value = getattr(sampling, name)
        parts += [f"{name.removesuffix('_penalty')}={value:g}"] if value != neutral else []
    parts += [f"no_repeat={sampling.no_repeat_ngram}"] if sampling.no_repeat_ngram else []
    return " ".join(parts)

"""One moment of the engine as the screen knows it: a mutable fold over step records.

It follows the same rules as ``engine.core.fold`` but changes in place, so that a record costs what it changed and not
the size of the pool. Output tokens are not held here: stories keep them once for all moments.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from cbtui.live import Live, Opened, clear_entry, entered, live_of, set_entry
from cbtui.packing import keys_of
from engine.core.counters import Counters
from engine.core.observe import (
    BlockDelta,
    BlockOp,
    BlockView,
    Decision,
    Keyframe,
    SequenceChange,
    SequenceView,
    StepRecord,
)
from engine.core.quick import quick

T = TypeVar("T")
_make_block = quick(BlockView)
_TAKES, _GIVES = frozenset({BlockOp.ALLOC, BlockOp.SHARE}), frozenset({BlockOp.RELEASE, BlockOp.RECYCLE})
_EMPTIES = frozenset({BlockOp.RESTORE, BlockOp.DROP})
_OFFLOAD, _RESTORE, _COPY, _PUBLISH = BlockOp.OFFLOAD, BlockOp.RESTORE, BlockOp.COPY, BlockOp.PUBLISH
"""Looked up once: reading a member of an enum's class takes longer than what is done with it."""


@dataclass(slots=True)
class Moves:
    """What the last step moved: blocks and host slots with the sequence they belong to."""

    out_blocks: dict[int, int] = field(default_factory=dict)
    back_blocks: dict[int, int] = field(default_factory=dict)
    out_slots: dict[int, int] = field(default_factory=dict)
    back_slots: dict[int, int] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)


class Picture:
    """The state after one step. ``apply`` moves it on; ``keyframe`` freezes it.

    ``kinds`` counts blocks by (state, layer group, whether several hold it). ``record`` is that of the step, ``batch``
    the last one seen that computed something.
    """

    def __init__(self, keyframe: Keyframe) -> None:
        self.step = keyframe.step
        self.time = keyframe.time
        self.page_size = keyframe.page_size
        self.windows = keyframe.windows
        self.blocks: list[BlockView] = list(keyframe.blocks)
        self.host: list[tuple[int, int, int] | None] = list(keyframe.host)
        self.sequences: dict[int, Live] = {key: live_of(view) for key, view in keyframe.sequences.items()}
        self.waiting: tuple[int, ...] = keyframe.waiting
        self.num_waiting = len(keyframe.waiting)
        self.counters: Counters = keyframe.counters
        self.settings: Mapping[str, object] = keyframe.settings
        self._record = None if keyframe.record is None else Opened(keyframe.record)
        self._batch = self._record if keyframe.record is not None and keyframe.record.slices else None
        self._gone = [key for key, live in self.sequences.items() if live.is_gone]
        self.used = self.cached = self.host_used = 0
        self.kinds: Counter[tuple[str, int, bool]] = Counter()
        self.moves = Moves()
        self._count()
        if keyframe.record is not None:
            self.num_waiting = max(self.num_waiting, keyframe.record.num_waiting)
            self._note_moves(keyframe.record.deltas)

    def _count(self) -> None:
        self.kinds = Counter(map(_kind, self.blocks[1:]))
        self.used = sum(number for (state, _, _), number in self.kinds.items() if state == "owned")
        self.cached = sum(number for (state, _, _), number in self.kinds.items() if state == "cached")
        self.host_used = sum(1 for slot in self.host if slot is not None)

    @property
    def num_blocks(self) -> int:
        """Usable blocks; the trash block is not one of them."""
        return len(self.blocks) - 1

    @property
    def free(self) -> int:
        return self.num_blocks - self.used - self.cached

    @property
    def usable(self) -> int:
        """Blocks that can be had without taking them from anybody."""
        return self.num_blocks - self.used

    @property
    def queued(self) -> int:
        """Waiting sequences that hold nothing on the host."""
        return max(0, self.num_waiting - len(self.offloaded))

    @property
    def running(self) -> list[Live]:
        return [s for s in self.sequences.values() if s.change.place == "running"]

    @property
    def offloaded(self) -> list[Live]:
        return [s for s in self.sequences.values() if s.change.place == "offloaded"]

    def is_window(self, group: int) -> bool:
        return 0 <= group < len(self.windows) and self.windows[group] is not None

    def setting(self, name: str) -> object | None:
        return self.settings.get(name)

    def skim(self, records: Iterable[StepRecord]) -> None:
        """Fold in records that one more will follow: what is replaced until then is not even made.

        ``apply`` is to be called next, if there were any.
        """
        changed: dict[int, Sequence[SequenceChange]] = {}
        decided: dict[int, Sequence[Decision]] = {}
        for record in records:
            self._enter(record)
            changed.update(dict.fromkeys(keys_of(record.changes), record.changes))
            decided.update(dict.fromkeys(keys_of(record.decisions), record.decisions))
        for key, live in self.sequences.items():
            if key in changed:
                live.change = _last(changed[key], key)
            if key in decided:
                live.decision = _last(decided[key], key)
        self._gone = [key for key, live in self.sequences.items() if live.is_gone]

    def _enter(self, record: StepRecord) -> Sequence[BlockDelta]:
        """What each record adds to: requests, blocks, host slots, settings. Returns its block changes."""
        for info in record.requests:
            self.sequences[info.seq] = Live(info, entered(info), [[] for _ in self.windows])
        deltas = tuple(record.deltas)
        for delta in deltas:
            self._apply_delta(delta, record.step)
        if record.settings:
            self.settings = {**self.settings, **record.settings}
        self._record = Opened(record)
        if record.slices:
            self._batch = self._record
        return deltas

    @property
    def record(self) -> StepRecord | None:
        """That of the step, None where there is none."""
        return None if self._record is None else self._record.record

    @property
    def batch(self) -> StepRecord | None:
        """The last record seen that computed something."""
        return None if self._batch is None else self._batch.record

    def apply(
        self, record: StepRecord, changes: Iterable[SequenceChange] | None = None,
        decisions: Iterable[Decision] | None = None,
    ) -> None:  # fmt: skip
        """Fold one record in. ``changes`` and ``decisions`` are its own, for who has made them already."""
        self._drop_gone()
        deltas = self._enter(record)
        self._renew(
            record.changes if changes is None else changes, record.decisions if decisions is None else decisions
        )
        self.waiting, self.num_waiting = record.waiting, max(record.num_waiting, len(record.waiting))
        self.step, self.time, self.counters = record.step, record.time, record.counters
        self._note_moves(deltas)

    def pass_by(self, record: StepRecord) -> None:
        """Fold in what a record did to blocks, of one that only goes on from the one before, as the next one will.

        ``apply`` is to be called for the last of them.
        """
        self._drop_gone()
        for delta in record.deltas:
            self._apply_delta(delta, record.step)

    def _drop_gone(self) -> None:
        for key in self._gone:
            self.sequences.pop(key, None)
        self._gone = []

    def _renew(self, changes: Iterable[SequenceChange], decisions: Iterable[Decision]) -> None:
        """Gives sequences their new values and decisions."""
        for change in changes:
            live = self.sequences.get(change.seq)
            if live is not None:
                live.change = change
                if live.is_gone:
                    self._gone.append(change.seq)
        for decision in decisions:
            live = self.sequences.get(decision.seq)
            if live is not None:
                live.decision = decision

    def _note_moves(self, deltas: Iterable[BlockDelta]) -> None:
        moves = Moves()
        for delta in deltas:
            if delta.block:
                moves.changed.add(delta.block)
            if delta.op is _OFFLOAD:
                moves.out_blocks[delta.block] = delta.seq
                moves.out_slots[delta.other] = delta.seq
            elif delta.op is _RESTORE:
                moves.back_blocks[delta.block] = delta.seq
                moves.back_slots[delta.other] = delta.seq
        self.moves = moves

    def _apply_delta(self, delta: BlockDelta, step: int) -> None:
        op, live = delta.op, self.sequences.get(delta.seq)
        if op is _OFFLOAD:
            self._fill_slot(delta, live)
        elif op in _EMPTIES:
            self._empty_slot(delta.other)
        elif op is not _COPY and 0 < delta.block < len(self.blocks):
            self._change_block(delta, step, live)

    def _change_block(self, delta: BlockDelta, step: int, live: Live | None) -> None:
        op, number = delta.op, delta.block
        old = self.blocks[number]
        entry = (delta.seq, delta.index)
        if op in _TAKES:
            new = _make_block("owned", delta.group, tuple(sorted((*old.owners, entry))), old.published, step)
            set_entry(live, delta, number)
        elif op in _GIVES:
            owners = list(old.owners)
            if entry in owners:
                owners.remove(entry)
            new = _left_over(tuple(owners), old.published, old.group, step)
            clear_entry(live, delta)
        else:
            new = _left_over(old.owners, op is _PUBLISH, old.group, old.last_use)
        self.blocks[number] = new
        self.kinds[_kind(old)] -= 1
        self.kinds[_kind(new)] += 1
        self.used += (new.state == "owned") - (old.state == "owned")
        self.cached += (new.state == "cached") - (old.state == "cached")

    def _fill_slot(self, delta: BlockDelta, live: Live | None) -> None:
        self.host_used += self.host[delta.other] is None
        self.host[delta.other] = (delta.seq, delta.group, delta.index)
        if live is not None:
            live.host[delta.other] = (delta.group, delta.index)

    def _empty_slot(self, slot: int) -> None:
        owner = self.host[slot]
        if owner is None:
            return
        self.host[slot] = None
        self.host_used -= 1
        live = self.sequences.get(owner[0])
        if live is not None:
            live.host.pop(slot, None)

    def keyframe(self, outputs: Mapping[int, tuple[int, ...]] | None = None) -> Keyframe:
        """This moment, frozen. ``outputs`` gives the output tokens of each sequence; without it they are left empty."""
        outputs = outputs or {}
        sequences = {
            key: SequenceView(
                live.info,
                live.change,
                tuple(map(tuple, live.tables)),
                tuple(sorted((group, index, slot) for slot, (group, index) in live.host.items())),
                outputs.get(key, ()),
                live.decision,
            )
            for key, live in self.sequences.items()
        }
        return Keyframe(
            self.step, self.time, self.page_size, self.windows, tuple(self.blocks), tuple(self.host), sequences,
            self.waiting, self.counters, self.settings, None if self._record is None else self._record.packed,
        )  # fmt: skip


def _last(items: Sequence[T], key: int) -> T:
    """The last one about a sequence."""
    return items[len(items) - 1 - keys_of(items)[::-1].index(key)]


def _kind(block: BlockView) -> tuple[str, int, bool]:
    return block.state, block.group, len(block.owners) > 1


def _left_over(owners: tuple[tuple[int, int], ...], published: bool, group: int, last_use: int) -> BlockView:
    """A block with these owners: owned, else cached while its hash is in the index, else free."""
    state = "owned" if owners else "cached" if published else "free"
    return _make_block(state, -1 if state == "free" else group, owners, published, last_use)

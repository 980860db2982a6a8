"""Playing records: a keyframe and the records after it give the next keyframe. Pure functions."""

from collections.abc import Callable
from dataclasses import replace

from engine.core.layout import TRASH_BLOCK
from engine.core.observe import (
    BlockDelta,
    BlockOp,
    BlockView,
    Decision,
    Keyframe,
    RequestInfo,
    SequenceChange,
    SequenceView,
    StepRecord,
)


def fold(keyframe: Keyframe, *records: StepRecord) -> Keyframe:
    """The state after ``records``, which follow on ``keyframe`` without a gap, in order.

    Neither argument is changed. Folding many records at once costs one copy of the block list.
    """
    if not records:
        return keyframe
    player = _Player(keyframe)
    for record in records:
        player.play(record)
    return player.keyframe(records[-1])


class _Block:
    """A block while records are played."""

    __slots__ = ("group", "last_use", "owners", "published")

    def __init__(self, view: BlockView) -> None:
        self.group = view.group
        self.owners = list(view.owners)
        self.published = view.published
        self.last_use = view.last_use

    def view(self) -> BlockView:
        state = "owned" if self.owners else "cached" if self.published else "free"
        return BlockView(state, self.group, tuple(sorted(self.owners)), self.published, self.last_use)


class _Seq:
    """A sequence while records are played."""

    __slots__ = ("change", "decision", "host", "info", "output", "tables")

    def __init__(self, info: RequestInfo, num_groups: int) -> None:
        self.info = info
        self.change: SequenceChange | None = None
        self.tables: list[list[int]] = [[] for _ in range(num_groups)]
        self.host: list[tuple[int, int, int]] = []
        self.output: list[int] = []
        self.decision: Decision | None = None

    @classmethod
    def of(cls, view: SequenceView) -> "_Seq":
        seq = cls(view.info, 0)
        seq.change, seq.decision = view.change, view.decision
        seq.tables = [list(table) for table in view.tables]
        seq.host, seq.output = list(view.host), list(view.output)
        return seq

    def view(self) -> SequenceView:
        if self.change is None:
            raise ValueError(f"sequence {self.info.seq} entered without a first state")
        return SequenceView(
            self.info, self.change, tuple(tuple(t) for t in self.tables), tuple(self.host), tuple(self.output),
            self.decision,
        )  # fmt: skip


class _Player:
    """Mutable state between a keyframe and the next. Blocks and sequences are opened when first touched."""

    def __init__(self, keyframe: Keyframe) -> None:
        self.start = keyframe
        self.num_groups = len(keyframe.windows)
        self.blocks: dict[int, _Block] = {}
        self.host = list(keyframe.host)
        self.closed: dict[int, SequenceView] = dict(keyframe.sequences)
        self.open: dict[int, _Seq] = {}
        self.settings = dict(keyframe.settings)
        self.gone = [key for key, view in keyframe.sequences.items() if _is_gone(view.change)]

    def play(self, record: StepRecord) -> None:
        for key in self.gone:
            self.closed.pop(key, None)
            self.open.pop(key, None)
        for info in record.requests:
            self.open[info.seq] = _Seq(info, self.num_groups)
        for delta in record.deltas:
            OPS[delta.op](self, delta, record.step)
        for decision in record.decisions:
            self._seq(decision.seq).decision = decision
        for output in record.outputs:
            self._seq(output.seq).output.append(output.token)
        self.gone = []
        for change in record.changes:
            seq = self._seq(change.seq)
            seq.change = change
            if change.row < 0:  # holds no blocks; entries behind a window have no deltas of their own
                seq.tables = [[] for _ in range(self.num_groups)]
            if _is_gone(change):
                self.gone.append(change.seq)
        self.settings.update(record.settings)

    def keyframe(self, last: StepRecord) -> Keyframe:
        views = list(self.start.blocks)
        for number, block in self.blocks.items():
            views[number] = block.view()
        sequences = dict(self.closed)
        sequences.update({key: seq.view() for key, seq in self.open.items()})
        return replace(
            self.start, step=last.step, time=last.time, blocks=tuple(views), host=tuple(self.host),
            sequences=dict(sorted(sequences.items())), waiting=last.waiting, counters=last.counters,
            settings=self.settings, record=last,
        )  # fmt: skip

    def _seq(self, key: int) -> _Seq:
        seq = self.open.get(key)
        if seq is None:
            seq = self.open[key] = _Seq.of(self.closed.pop(key))
        return seq

    def _block(self, number: int, step: int) -> _Block:
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = _Block(self.start.blocks[number])
        block.last_use = step
        return block

    # -- one method per block operation -------------------------------------------------------------------------------

    def refer(self, delta: BlockDelta, step: int) -> None:
        """ALLOC, SHARE: a table entry points at the block."""
        block = self._block(delta.block, step)
        block.group = delta.group
        block.owners.append((delta.seq, delta.index))
        table = self._seq(delta.seq).tables[delta.group]
        table.extend([TRASH_BLOCK] * (delta.index + 1 - len(table)))
        table[delta.index] = delta.block

    def unrefer(self, delta: BlockDelta, step: int) -> None:
        """RELEASE, RECYCLE: a table entry points at it no more."""
        block = self._block(delta.block, step)
        block.owners.remove((delta.seq, delta.index))
        if not block.owners and not block.published:
            block.group = -1
        table = self._seq(delta.seq).tables[delta.group]
        table[delta.index] = TRASH_BLOCK
        if delta.op is BlockOp.RELEASE and delta.index == len(table) - 1:
            while table and table[-1] == TRASH_BLOCK:
                table.pop()

    def publish(self, delta: BlockDelta, step: int) -> None:
        self._look(delta.block).published = True

    def evict(self, delta: BlockDelta, step: int) -> None:
        block = self._look(delta.block)
        block.published = False
        if not block.owners:
            block.group = -1

    def offload(self, delta: BlockDelta, step: int) -> None:
        self.host[delta.other] = (delta.seq, delta.group, delta.index)
        self._seq(delta.seq).host.append((delta.group, delta.index, delta.other))

    def unhost(self, delta: BlockDelta, step: int) -> None:
        """RESTORE, DROP: the host slot belongs to nobody."""
        self.host[delta.other] = None
        self._seq(delta.seq).host.remove((delta.group, delta.index, delta.other))

    def copy(self, delta: BlockDelta, step: int) -> None:
        """COPY: what is in the block changed, not who holds it."""

    def _look(self, number: int) -> _Block:
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = _Block(self.start.blocks[number])
        return block


OPS: dict[BlockOp, Callable[[_Player, BlockDelta, int], None]] = {
    BlockOp.ALLOC: _Player.refer,
    BlockOp.SHARE: _Player.refer,
    BlockOp.RELEASE: _Player.unrefer,
    BlockOp.RECYCLE: _Player.unrefer,
    BlockOp.PUBLISH: _Player.publish,
    BlockOp.EVICT: _Player.evict,
    BlockOp.OFFLOAD: _Player.offload,
    BlockOp.RESTORE: _Player.unhost,
    BlockOp.COPY: _Player.copy,
    BlockOp.DROP: _Player.unhost,
}


def _is_gone(change: SequenceChange) -> bool:
    """Whether a sequence is over and holds nothing any more: the next record drops it."""
    return change.place == "done" and change.row < 0

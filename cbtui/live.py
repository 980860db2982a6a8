"""Parts of a moment: a sequence with its block tables, and a record that is opened when somebody looks."""

from dataclasses import dataclass, field

from engine.core.observe import BlockDelta, BlockOp, Decision, RequestInfo, SequenceChange, SequenceView, StepRecord
from engine.core.request import RequestStatus

_RELEASE = BlockOp.RELEASE


@dataclass(slots=True)
class Live:
    """A sequence of the picture: what entered, its newest values, its tables and its newest decision."""

    info: RequestInfo
    change: SequenceChange
    tables: list[list[int]]
    host: dict[int, tuple[int, int]] = field(default_factory=dict)
    """host slot -> (group, table index)"""
    decision: Decision | None = None

    @property
    def key(self) -> int:
        return self.info.seq

    @property
    def is_gone(self) -> bool:
        """Whether it is over and holds nothing: the next record drops it."""
        return self.change.place == "done" and self.change.row < 0

    @property
    def prompt(self) -> int:
        return len(self.info.prompt_ids)

    @property
    def output(self) -> int:
        """Output tokens known at this moment."""
        return max(0, self.change.num_tokens - len(self.info.prompt_ids))

    def steps_to_block(self, page_size: int, limit: int | None) -> int | None:
        """In which of its coming steps a decoding sequence takes its next block, 1 for the next one.

        Each step writes one token to the cache, the last token of the output is never written, and what is computed
        may be a step ahead of the tokens that are known.

        Args:
            limit: most output tokens, None when it is not known.

        Returns:
            None when it ends before at the latest.
        """
        computed = self.change.computed
        ahead = -computed % page_size + 1
        if limit is not None and computed + ahead > self.prompt + limit - 1:
            return None
        return ahead

    def held(self, group: int) -> int:
        """Device blocks of one layer group that its table points at."""
        table = self.tables[group]
        return len(table) - table.count(0)


class Opened:
    """A record that is opened when somebody looks: most moments are never drawn."""

    __slots__ = ("packed", "_open")

    def __init__(self, packed: StepRecord) -> None:
        self.packed = packed
        self._open: StepRecord | None = None

    @property
    def record(self) -> StepRecord:
        if self._open is None:
            self._open = self.packed.opened()
        return self._open


def live_of(view: SequenceView) -> Live:
    """A sequence of a keyframe."""
    host = {slot: (group, index) for group, index, slot in view.host}
    return Live(view.info, view.change, [list(table) for table in view.tables], host, view.decision)


def entered(info: RequestInfo) -> SequenceChange:
    """Its values when it has just come."""
    return SequenceChange(info.seq, RequestStatus.PENDING, "waiting", 0, len(info.prompt_ids), -1, 0, 0, 0, 0)


def set_entry(live: Live | None, delta: BlockDelta, block: int) -> None:
    """The entry points at a block."""
    if live is None or delta.group < 0:
        return
    table = live.tables[delta.group]
    table.extend([0] * (delta.index + 1 - len(table)))
    table[delta.index] = block


def clear_entry(live: Live | None, delta: BlockDelta) -> None:
    """The entry points at nothing; a table that lost its last entry gets shorter, unless it only moved its window."""
    if live is None or delta.group < 0:
        return
    table = live.tables[delta.group]
    if delta.index < len(table):
        table[delta.index] = 0
    if delta.op is _RELEASE and delta.index == len(table) - 1:
        while table and not table[-1]:
            table.pop()

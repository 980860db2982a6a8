"""Keyframes and records written short: rows as columns, growing numbers as what they grew by, repeats only once.

Both are turned into tuples of plain values, each record in terms of the one before. Neighbouring records share most of
those values as the same objects, and a pickler writes the same object only once.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain, repeat
from operator import add, attrgetter, sub
from typing import Any

from engine.core import observe
from engine.core.counters import Counters, RankWait, Spans
from engine.core.observe import (
    BlockView,
    CommandAck,
    Decision,
    Keyframe,
    PlanPreview,
    RequestInfo,
    SequenceChange,
    SequenceView,
    StepRecord,
)
from engine.core.packed import Grown, Packed, PackedKind, rows_of
from engine.core.quick import quick

Row = tuple[Any, ...]
InfoOf = Callable[[int], RequestInfo]
"""Key of a sequence -> what entered: records hold only the key, for a prompt may be long."""

_TIMES = struct.Struct(f"{1 + len(fields(Spans))}d")


def values_of(kind: type) -> Callable[[Any], Row]:
    """Takes the values of an instance of a dataclass with at least two fields, in order."""
    return attrgetter(*(f.name for f in fields(kind)))


_SPANS, _COUNTERS, _CHANGE, _DECISION, _BLOCK = map(
    values_of, (Spans, Counters, SequenceChange, Decision, BlockView)
)
_WENT_ON = 5
"""Most parts of a record written short that only goes on; all others have more."""
_OTHER_COUNTERS = attrgetter(*(f.name for f in fields(Counters) if f.name != "output_tokens"))
_make_block, _make_record = quick(BlockView), quick(StepRecord)
_REST = attrgetter(
    "commands", "limit", "budget", "rows", "waiting", "num_waiting", "invariants", "ranks", "plan_bytes", "was_held"
)


def _by_position(kind: type) -> Callable[[Any], tuple[Callable[..., Any], Row]]:
    """How to pickle a dataclass: its class and its values in order. The default goes by field names and is slow."""
    values = values_of(kind)
    return lambda item: (kind, values(item))


BY_POSITION: Mapping[type, Callable[[Any], Any]] = {kind: _by_position(kind) for kind in (CommandAck, RankWait)}
"""A pickler's dispatch table for what is left as it is."""


class Columns(Packed[Any]):
    """Observations kept field by field; the rows are made when somebody looks at one."""

    __slots__ = ("columns",)
    columns: Sequence[Row]

    def __init__(self, kind: PackedKind[Any], columns: Sequence[Row]) -> None:
        super().__init__(kind, ())
        object.__setattr__(self, "columns", columns)

    @property
    def rows(self) -> tuple[Row, ...]:
        if self.columns and not self._values:
            object.__setattr__(self, "_values", tuple(zip(*self.columns, strict=True)))
        return self._values

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0


def keys_of(items: Sequence[Any]) -> Sequence[int]:
    """The sequences that changes or decisions are about, without making those when they are columns."""
    if isinstance(items, Columns):
        return items.columns[0] if items.columns else ()
    return [item.seq for item in items]


class _Table:
    """The rows of one kind of observation, record after record; fields that grow are told as what they grew by."""

    def __init__(self, kind: PackedKind[Any]) -> None:
        self._kind, self._growing = kind, kind.growing
        self._values, width = values_of(kind.cls), len(fields(kind.cls))
        self._last: Sequence[Row] = ((),) * width
        self._short: Sequence[Row] = ((),) * width
        self._grown: Grown[Any] | None = None
        """the last rows, while ``_last`` holds older ones"""

    @property
    def first_column(self) -> Row:
        """Of the rows told last."""
        return self._short[0]

    def goes_on(self, items: Sequence[Any]) -> bool:
        """Whether these rows are those told last one step later."""
        before = self._grown
        if before is None or not isinstance(items, Grown):
            return False
        return items.base is before.base and items.by == before.by + 1

    def go_on(self, items: Sequence[Any]) -> None:
        """These were told, see ``goes_on``."""
        assert isinstance(items, Grown)
        self._grown = items

    def shorten(self, items: Sequence[Any], *, go_on: bool = True) -> Sequence[Row]:
        """Columns of these rows; ``go_on``: the next rows will be told in terms of these."""
        if not items:
            return ()
        if self._grown is not None:
            self._last = list(zip(*self._grown.rows, strict=True))
        rows: Iterable[Row] = items.rows if isinstance(items, Packed) else map(self._values, items)
        columns = list(zip(*rows, strict=True))
        last = columns.copy()
        for place in self._growing:
            columns[place] = tuple(map(sub, columns[place], chain(self._last[place], repeat(0))))
        short = [before if before == column else column for before, column in zip(self._short, columns, strict=True)]
        if go_on:
            self._last, self._short = last, short
            self._grown = items if isinstance(items, Grown) else None
        return short

    def lengthen(self, short: Sequence[Row], *, go_on: bool = True) -> Columns:
        """The rows of these columns."""
        if not short:
            return Columns(self._kind, ())
        columns = list(short)
        for place in self._growing:
            columns[place] = tuple(map(add, columns[place], chain(self._last[place], repeat(0))))
        if go_on:
            self._last = columns
        return Columns(self._kind, columns)

    def lengthen_on(self, other: Row = ()) -> Columns:
        """The last rows one step later; ``other`` as in ``Grown``."""
        columns = list(self._last)
        for place in self._growing:
            columns[place] = tuple([number + 1 for number in columns[place]])
        self._last = columns
        if other:
            columns = columns.copy()
            columns[other[0]] = other[1]
        return Columns(self._kind, columns)


class Shorthand:
    """Writes records that follow each other, or reads them in the same order. One is good for one of both, once.

    Most steps only go on, see ``engine.core.steady``: of their records the times and the new tokens are written.
    """

    def __init__(self) -> None:
        self._slices = _Table(observe.SLICES)
        self._decisions = _Table(observe.DECISIONS)
        self._deltas = _Table(observe.DELTAS)
        self._changes = _Table(observe.CHANGES)
        self._outputs = _Table(observe.OUTPUTS)
        self._counters: Counters = Counters()
        self._grown: Row = ()
        self._rest: Row = ()

    def shorten(self, record: StepRecord) -> Row:
        """The record in terms of the one before."""
        times = _TIMES.pack(record.time, *_SPANS(record.spans))
        rest = (*_REST(record), tuple(info.seq for info in record.requests), dict(record.settings))
        plan = record.next
        if plan is None and rest == self._rest:
            went = self._went_on(record)
            if went:
                return times, *went
        grown = self._growth(record.counters)
        self._grown = self._grown if self._grown == grown else grown
        self._rest = self._rest if self._rest == rest else rest
        slices, decisions = self._slices.shorten(record.slices), self._decisions.shorten(record.decisions)
        following = () if plan is None else (
            self._slices.shorten(plan.slices, go_on=False), self._decisions.shorten(plan.decisions, go_on=False),
            plan.limit, plan.num_tokens,
        )  # fmt: skip
        return (
            times, self._grown, self._rest, slices, decisions, self._deltas.shorten(record.deltas),
            self._changes.shorten(record.changes), self._outputs.shorten(record.outputs), following,
        )  # fmt: skip

    def _growth(self, counters: Counters) -> Row:
        """What they grew by."""
        before, self._counters = self._counters, counters
        return tuple(map(sub, _COUNTERS(counters), _COUNTERS(before)))

    def _went_on(self, record: StepRecord) -> Row:
        """What differs in a record from the one before it as it goes on; empty where that is not all.

        The tokens; if it changed blocks, what and what the decodes took; if counters tell of more than tokens, theirs.
        """
        before, counters = self._counters, record.counters
        slices, decisions, changes, outputs = record.slices, record.decisions, record.changes, rows_of(record.outputs)
        if not (
            outputs
            and self._slices.goes_on(slices)
            and self._decisions.goes_on(decisions)
            and self._changes.goes_on(changes)
        ):
            return ()
        keys, tokens, logprobs = zip(*outputs, strict=True)
        if keys != self._slices.first_column or logprobs.count(None) < len(logprobs):
            return ()
        for table, items in ((self._slices, slices), (self._decisions, decisions), (self._changes, changes)):
            table.go_on(items)
        more = counters.output_tokens != before.output_tokens + len(outputs) or (
            _OTHER_COUNTERS(counters) != _OTHER_COUNTERS(before)
        )
        grown, self._counters = self._growth(counters) if more else (), counters
        if not (record.deltas or more):
            return (tokens,)
        return tokens, self._deltas.shorten(record.deltas), getattr(decisions, "other", ()), grown

    def lengthen(self, short: Row, step: int, info_of: InfoOf) -> StepRecord:
        """The record of ``step``."""
        if len(short) <= _WENT_ON:
            return self._lengthen_on(step, info_of, *short)
        times, grown, self._rest, slices, decisions, deltas, changes, outputs, following = short
        self._counters = Counters(*map(add, grown, _COUNTERS(self._counters)))
        made, decided = self._slices.lengthen(slices), self._decisions.lengthen(decisions)
        plan = None if not following else PlanPreview(
            self._slices.lengthen(following[0], go_on=False), self._decisions.lengthen(following[1], go_on=False),
            *following[2:],
        )  # fmt: skip
        return self._made(
            step, times, info_of, made, decided, self._deltas.lengthen(deltas), self._changes.lengthen(changes),
            self._outputs.lengthen(outputs), plan,
        )  # fmt: skip

    def _lengthen_on(
        self, step: int, info_of: InfoOf, times: bytes, tokens: Row, deltas: Sequence[Row] = (), taken: Row = (),
        grown: Row = (),
    ) -> StepRecord:  # fmt: skip
        """What ``_went_on`` found."""
        before = self._counters
        if grown:
            self._counters = Counters(*map(add, grown, _COUNTERS(before)))
        else:
            self._counters = replace(before, output_tokens=before.output_tokens + len(tokens))
        slices = self._slices.lengthen_on()
        outputs = Columns(observe.OUTPUTS, (slices.columns[0], tokens, (None,) * len(tokens)))
        return self._made(
            step, times, info_of, slices, self._decisions.lengthen_on(taken), self._deltas.lengthen(deltas),
            self._changes.lengthen_on(), outputs, None,
        )  # fmt: skip

    def _made(
        self, step: int, times: bytes, info_of: InfoOf, slices: Columns, decisions: Columns, deltas: Columns,
        changes: Columns, outputs: Columns, plan: PlanPreview | None,
    ) -> StepRecord:  # fmt: skip
        """A record with what was told last of all else."""
        time, *spans = _TIMES.unpack(times)
        commands, limit, budget, rows, waiting, num_waiting, invariants, ranks, size, was_held, keys, new = self._rest
        return _make_record(
            step, time, Spans(*spans), commands, tuple(map(info_of, keys)), slices, decisions, deltas, changes, outputs,
            self._counters, limit, budget, rows, waiting, num_waiting, new, plan, invariants, ranks, size, was_held,
        )  # fmt: skip


def shorten_keyframe(keyframe: Keyframe) -> Row:
    """A keyframe without its record and the output of its sequences."""
    sequences = [
        (key, _CHANGE(view.change), view.tables, view.host, None if view.decision is None else _DECISION(view.decision))
        for key, view in keyframe.sequences.items()
    ]
    return (
        keyframe.step, keyframe.time, keyframe.page_size, keyframe.windows,
        tuple(zip(*map(_BLOCK, keyframe.blocks), strict=True)),
        keyframe.host, sequences, keyframe.waiting, _COUNTERS(keyframe.counters), dict(keyframe.settings),
    )  # fmt: skip


def lengthen_keyframe(short: Row, record: StepRecord | None, info_of: InfoOf) -> Keyframe:
    """The keyframe, with the record of its step; the output of its sequences is left empty."""
    step, time, page_size, windows, blocks, host, sequences, waiting, counters, settings = short
    views = {
        key: SequenceView(
            info_of(key), SequenceChange(*change), tables, slots, (), None if decision is None else Decision(*decision)
        )
        for key, change, tables, slots, decision in sequences
    }
    return Keyframe(
        step, time, page_size, windows, tuple(map(_make_block, *blocks)), host, views, waiting, Counters(*counters),
        settings, record,
    )  # fmt: skip

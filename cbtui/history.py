"""The past, packed: keyframes with the records that follow, compressed in chunks and capped by bytes."""

import io
import pickle
import zlib
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, NamedTuple

from cbtui.picture import Picture
from engine.core import observe
from engine.core.observe import Keyframe, StepRecord

CHUNK_STEPS = 32
"""Records between two keyframes: what a jump into the past has to fold at most."""


BESIDE = 100
"""Bytes kept for each step beside its record: its number, and its place in the graphs' ``Series``, with reserves."""


def _by_position(kind: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
    """How to pickle a dataclass: its class and its values in order. The default goes by field names and is slow."""
    names = [f.name for f in fields(kind)]
    values = attrgetter(*names)
    if len(names) == 1:
        return lambda item: (kind, (values(item),))
    return lambda item: (kind, values(item))


_KINDS = (
    observe.BlockDelta, observe.BlockView, observe.CommandAck, observe.Counters, observe.Decision, observe.Keyframe,
    observe.PlanPreview, observe.RequestInfo, observe.SequenceChange, observe.SequenceView, observe.SliceRecord,
    observe.Spans, observe.StepRecord, observe.TokenOutput,
)  # fmt: skip


class _Packer:
    """Pickles observations."""

    def __init__(self) -> None:
        self._table: dict[type, Any] = {kind: _by_position(kind) for kind in _KINDS}

    def pack(self, item: Keyframe | StepRecord) -> bytes:
        if type(item.settings) is not dict:  # read-only mappings cannot be pickled
            item = replace(item, settings=dict(item.settings))
        out = io.BytesIO()
        pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = self._table
        pickler.dump(item)
        return out.getvalue()


@dataclass(slots=True)
class _Chunk:
    """A keyframe and the records after it, each pickled; ``packed`` holds them all once the chunk is closed."""

    first: int
    keyframe: bytes
    records: list[bytes] = field(default_factory=list)
    steps: array = field(default_factory=lambda: array("q"))
    packed: bytes = b""

    @property
    def last(self) -> int:
        return self.steps[-1] if self.steps else self.first

    @property
    def size(self) -> int:
        """Bytes it takes once it is closed, with what is kept beside it for each step."""
        return len(self.packed) + BESIDE * len(self.steps)


class History:
    """Kept steps in order. The newest chunk is open, older ones are packed; the oldest go first when bytes run out."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.packed_bytes = 0
        self._chunks: deque[_Chunk] = deque()
        self._packer = _Packer()
        self._opened: tuple[int, bytes, list[bytes]] | None = None

    @property
    def oldest(self) -> int | None:
        return self._chunks[0].first if self._chunks else None

    @property
    def newest(self) -> int | None:
        return self._chunks[-1].last if self._chunks else None

    def begin(self, keyframe: Keyframe) -> None:
        """Start a chunk; packs the one before and drops the oldest ones over the limit (never the last two)."""
        if self._chunks:
            self._close(self._chunks[-1])
        self._chunks.append(_Chunk(keyframe.step, self._packer.pack(keyframe)))
        while self.packed_bytes > self.limit_bytes and len(self._chunks) > 2:
            self.packed_bytes -= self._chunks.popleft().size

    def append(self, record: StepRecord) -> bool:
        """Add the record after the newest one. True when the chunk is full and wants a keyframe to go on from."""
        chunk = self._chunks[-1]
        chunk.records.append(self._packer.pack(record))
        chunk.steps.append(record.step)
        return len(chunk.records) >= CHUNK_STEPS

    def _close(self, chunk: _Chunk) -> None:
        chunk.packed = zlib.compress(pickle.dumps((chunk.keyframe, chunk.records), pickle.HIGHEST_PROTOCOL), 1)
        chunk.keyframe, chunk.records = b"", []
        self.packed_bytes += chunk.size

    def _contents(self, chunk: _Chunk) -> tuple[bytes, list[bytes]]:
        if not chunk.packed:
            return chunk.keyframe, chunk.records
        if self._opened is None or self._opened[0] != chunk.first:
            keyframe, records = pickle.loads(zlib.decompress(chunk.packed))
            self._opened = (chunk.first, keyframe, records)
        return self._opened[1], self._opened[2]

    def _find(self, step: int) -> _Chunk | None:
        found = None
        for chunk in reversed(self._chunks):
            found = chunk
            if chunk.first <= step:
                break
        return found

    def picture(self, step: int) -> Picture | None:
        """The picture after ``step``, or after the nearest kept step before it; None when nothing is kept."""
        chunk = self._find(step)
        if chunk is None:
            return None
        keyframe, records = self._contents(chunk)
        picture = Picture(pickle.loads(keyframe))
        for number, record in zip(chunk.steps, records, strict=True):
            if number > step:
                break
            picture.apply(pickle.loads(record))
        return picture

    def record(self, step: int) -> StepRecord | None:
        """The record of exactly this step, when it is kept."""
        chunk = self._find(step)
        if chunk is None:
            return None
        keyframe, records = self._contents(chunk)
        if step in chunk.steps:
            found: StepRecord = pickle.loads(records[chunk.steps.index(step)])
            return found
        first: Keyframe = pickle.loads(keyframe)
        return first.record if first.step == step else None


PAUSE = 30.0
"""Seconds between two steps that are a pause and not a pace."""

SERIES = ("tokens", "budget", "used", "cached", "host", "queue", "running", "prefill", "output", "out", "back")


class Stretch(NamedTuple):
    """The steps ``first`` … ``last`` with the seconds they took and the output tokens they gave."""

    first: int
    last: int
    seconds: float
    tokens: int

    @property
    def steps(self) -> int:
        return self.last - self.first + 1


@dataclass(slots=True)
class Series:
    """Numbers per step, column by column; -1 where a step was missed. ``first`` is the step of index 0."""

    first: int = 0
    time: array = field(default_factory=lambda: array("d"))
    columns: dict[str, array] = field(default_factory=lambda: {name: array("i") for name in SERIES})

    def __len__(self) -> int:
        return len(self.time)

    @property
    def last(self) -> int:
        return self.first + len(self.time) - 1

    def append(self, step: int, time: float, values: dict[str, int]) -> None:
        if not self.time:
            self.first = step
        gap = min(step - self.first - len(self.time), 100_000)
        if gap > 0:
            self.time.extend([time] * gap)
            for column in self.columns.values():
                column.extend([-1] * gap)
            self.first = step - len(self.time)
        self.time.append(time)
        for name, column in self.columns.items():
            column.append(values.get(name, -1))

    def trim(self, first: int) -> None:
        """Forget everything before step ``first``."""
        count = min(first - self.first, len(self.time))
        if count > 0:
            del self.time[:count]
            for column in self.columns.values():
                del column[:count]
            self.first += count

    def __getitem__(self, name: str) -> array:
        return self.columns[name]

    def at(self, name: str, step: int) -> int:
        """The value at a step, -1 when there is none."""
        index = step - self.first
        return self.columns[name][index] if 0 <= index < len(self.time) else -1

    def stretch(self, step: int | None, window: float) -> Stretch | None:
        """What happened in the ``window`` seconds up to the start of a step, at least in one step.

        None where too little is known, or the step came after a pause.
        """
        last = len(self.time) - 1 if step is None else min(len(self.time) - 1, step - self.first)
        if last < 1:
            return None
        first, end = last, self.time[last]
        if end - self.time[last - 1] < PAUSE:
            first = last - 1
        while 0 < first < last and end - self.time[first - 1] <= window:
            first -= 1
        seconds = end - self.time[first]
        if first == last or seconds <= 0:
            return None
        tokens = sum(max(0, n) for n in self.columns["output"][first:last])
        return Stretch(self.first + first, self.first + last - 1, seconds, tokens)

"""The past, packed: keyframes with the records that follow, compressed in chunks and capped by bytes."""

import pickle
import zlib
from array import array
from collections import deque
from dataclasses import dataclass, field, replace

from cbtui.picture import Picture
from engine.core.observe import Keyframe, StepRecord

CHUNK_STEPS = 64
"""Records between two keyframes: what a jump into the past has to fold at most."""


@dataclass(slots=True)
class _Chunk:
    keyframe: Keyframe | None
    records: list[StepRecord]
    first: int
    last: int
    packed: bytes = b""


class History:
    """Kept steps in order. The newest chunk is plain, older ones are packed; the oldest go first when bytes run out."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.packed_bytes = 0
        self._chunks: deque[_Chunk] = deque()
        self._unpacked: tuple[int, Keyframe, list[StepRecord]] | None = None

    @property
    def oldest(self) -> int | None:
        return self._chunks[0].first if self._chunks else None

    @property
    def newest(self) -> int | None:
        return self._chunks[-1].last if self._chunks else None

    def begin(self, keyframe: Keyframe) -> None:
        """Start a chunk; packs the one before and drops the oldest ones over the limit (never the last two)."""
        if self._chunks:
            self._pack(self._chunks[-1])
        self._chunks.append(_Chunk(keyframe, [], keyframe.step, keyframe.step))
        while self.packed_bytes > self.limit_bytes and len(self._chunks) > 2:
            self.packed_bytes -= len(self._chunks.popleft().packed)

    def append(self, record: StepRecord) -> bool:
        """Add the record after the newest one. True when the chunk is full and wants a keyframe to go on from."""
        chunk = self._chunks[-1]
        if type(record.settings) is not dict:  # read-only mappings cannot be packed
            record = replace(record, settings=dict(record.settings))
        chunk.records.append(record)
        chunk.last = record.step
        return len(chunk.records) >= CHUNK_STEPS

    def _pack(self, chunk: _Chunk) -> None:
        keyframe = chunk.keyframe
        if keyframe is not None and type(keyframe.settings) is not dict:
            keyframe = replace(keyframe, settings=dict(keyframe.settings))
        chunk.packed = zlib.compress(pickle.dumps((keyframe, chunk.records), pickle.HIGHEST_PROTOCOL), 1)
        chunk.keyframe, chunk.records = None, []
        self.packed_bytes += len(chunk.packed)

    def _contents(self, chunk: _Chunk) -> tuple[Keyframe, list[StepRecord]]:
        if chunk.keyframe is not None:
            return chunk.keyframe, chunk.records
        if self._unpacked is None or self._unpacked[0] != chunk.first:
            keyframe, records = pickle.loads(zlib.decompress(chunk.packed))
            self._unpacked = (chunk.first, keyframe, records)
        return self._unpacked[1], self._unpacked[2]

    def _find(self, step: int) -> _Chunk | None:
        found = None
        for chunk in reversed(self._chunks):
            found = chunk
            if chunk.first <= step:
                break
        return found

    def picture(self, step: int) -> Picture | None:
        """The picture after ``step``, or after the nearest kept step; None when nothing is kept."""
        chunk = self._find(step)
        if chunk is None:
            return None
        keyframe, records = self._contents(chunk)
        picture = Picture(keyframe)
        for record in records:
            if record.step > step:
                break
            picture.apply(record)
        return picture

    def record(self, step: int) -> StepRecord | None:
        """The record of exactly this step, when it is kept."""
        chunk = self._find(step)
        while chunk is not None:
            keyframe, records = self._contents(chunk)
            for record in records:
                if record.step == step:
                    return record
            if keyframe.step == step:
                return keyframe.record
            return None
        return None


SERIES = ("tokens", "budget", "used", "cached", "host", "queue", "running", "prefill", "output", "out", "back")


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

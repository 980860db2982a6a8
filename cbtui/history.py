"""The past, packed: keyframes with the records that follow, compressed in chunks and capped by bytes."""

import io
import pickle
import sys
import zlib
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable

from cbtui.packing import BY_POSITION, Row, Shorthand, lengthen_keyframe, shorten_keyframe, values_of
from cbtui.picture import Picture
from engine.core.observe import Keyframe, RequestInfo, StepRecord

CHUNK_STEPS = 64
"""Records between two keyframes: what a jump into the past has to fold at most."""
OPENED = 2
"""Chunks kept open for readers: the one they are in, and the one before or after it."""
LEVEL = 1
"""Of the compression. The engine computes meanwhile: higher levels cost it several times that for little."""
ALLOCATION = 16
"""Bytes the allocator takes for each object beside it."""
ENTRY = 100
"""Bytes an entry of a dictionary with numbers for keys takes, with its share of what is kept free."""

_INFO = values_of(RequestInfo)


class _Chunk:
    """A keyframe, its record and the records after it, written short; ``packed`` holds them all once it is closed.

    Attributes:
        first: step of the keyframe. last: of the newest record.
        keys: sequences that the keyframe speaks of, and those that entered later.
    """

    __slots__ = ("_keyframe", "_records", "_shorthand", "first", "keys", "last", "packed")

    def __init__(self, keyframe: Keyframe) -> None:
        self.first = self.last = keyframe.step
        self.keys = array("q")
        self.packed = b""
        self._shorthand: Shorthand | None = Shorthand()
        self._keyframe = shorten_keyframe(keyframe)
        self._records = [() if keyframe.record is None else self._shorthand.shorten(keyframe.record)]

    def append(self, record: StepRecord) -> None:
        """Add the record of the next step."""
        assert self._shorthand is not None, "the chunk is closed"
        self._records.append(self._shorthand.shorten(record))
        self.last = record.step

    def close(self) -> None:
        """Packs it all: nothing can be added any more."""
        out = io.BytesIO()
        pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = BY_POSITION
        pickler.dump((self._keyframe, self._records))
        self.packed = zlib.compress(out.getbuffer(), LEVEL)
        self.keys = array("q", self.keys)  # without what it grew in advance
        self._shorthand, self._keyframe, self._records = None, (), []

    @property
    def contents(self) -> tuple[Row, list[Row]]:
        """The keyframe and the records, written short; of an open chunk, records that are added come to this list."""
        if self.packed:
            keyframe, records = pickle.loads(zlib.decompress(self.packed))
            return keyframe, records
        return self._keyframe, self._records

    @property
    def size(self) -> int:
        """Bytes it takes once it is closed."""
        parts = (self, self.first, self.last, self.keys, self.packed, self._records)
        return sum(map(sys.getsizeof, parts)) + ALLOCATION * len(parts)


class _Reader:
    """Reads one chunk, record after record and only as far as somebody wants to know."""

    def __init__(self, chunk: _Chunk, info_of: Callable[[int], RequestInfo]) -> None:
        self.chunk, self._info_of, self._shorthand = chunk, info_of, Shorthand()
        keyframe, self._short = chunk.contents
        base = self._shorthand.lengthen(self._short[0], chunk.first, info_of) if self._short[0] else None
        self.keyframe = lengthen_keyframe(keyframe, base, info_of)
        self._records: list[StepRecord] = []

    def upto(self, step: int) -> list[StepRecord]:
        """The records after the keyframe up to a step."""
        first = self.chunk.first + 1
        for number in range(first + len(self._records), step + 1):
            short = self._short[number - self.chunk.first]
            self._records.append(self._shorthand.lengthen(short, number, self._info_of))
        return self._records[: max(0, step - self.chunk.first)]


class History:
    """Kept steps in order. The newest chunk is open, older ones are packed.

    Attributes:
        limit_bytes: what is kept of these steps, here and elsewhere, is not to take more; whoever knows what is kept
            elsewhere gives up the oldest chunks.
        size: bytes taken by the packed chunks and by the requests they speak of. The open chunk and those opened for
            readers come on top: a few hundred steps, whatever the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size = 0
        self._chunks: deque[_Chunk] = deque()
        self._infos: dict[int, bytes] = {}
        self._readers: list[_Reader] = []

    @property
    def oldest(self) -> int | None:
        return self._chunks[0].first if self._chunks else None

    @property
    def newest(self) -> int | None:
        return self._chunks[-1].last if self._chunks else None

    def begin(self, keyframe: Keyframe) -> None:
        """Start a chunk, and pack the one before."""
        if self._chunks:
            self._chunks[-1].close()
            self.size += self._chunks[-1].size
        self._chunks.append(_Chunk(keyframe))
        self._note([view.info for view in keyframe.sequences.values()])
        if keyframe.record is not None:
            self._note(keyframe.record.requests)

    @property
    def room(self) -> int:
        """Records that can be added before a keyframe is wanted, that of the last one."""
        chunk = self._chunks[-1]
        return CHUNK_STEPS - (chunk.last - chunk.first)

    def append(self, record: StepRecord) -> bool:
        """Add the record of the next step. True when a keyframe of this step is wanted to go on from.

        It is wanted when the chunk is full, and in place of a record before which steps are missing.
        """
        chunk = self._chunks[-1]
        if record.step != chunk.last + 1:
            return True
        self._note(record.requests)
        chunk.append(record)
        return chunk.last - chunk.first >= CHUNK_STEPS

    def drop_oldest(self) -> bool:
        """Give up the oldest chunk, and requests nobody speaks of any more. False when only two are left."""
        if len(self._chunks) <= 2:
            return False
        chunk = self._chunks.popleft()
        self.size -= chunk.size
        self._readers = [reader for reader in self._readers if reader.chunk is not chunk]
        needed = set(self._chunks[0].keys)
        for key in chunk.keys:
            if key not in needed and key in self._infos:
                self.size -= _entry_size(self._infos.pop(key))
        return True

    def _note(self, infos: Iterable[RequestInfo]) -> None:
        """Keeps what entered, once for all chunks that speak of it."""
        keys = self._chunks[-1].keys
        for info in infos:
            keys.append(info.seq)
            if info.seq not in self._infos:
                packed = self._infos[info.seq] = pickle.dumps(_INFO(info), pickle.HIGHEST_PROTOCOL)
                self.size += _entry_size(packed)

    def _info(self, key: int) -> RequestInfo:
        return RequestInfo(*pickle.loads(self._infos[key]))

    def _reader(self, chunk: _Chunk) -> _Reader:
        reader = next((reader for reader in self._readers if reader.chunk is chunk), None)
        if reader is None:
            reader = _Reader(chunk, self._info)
            self._readers = [reader, *self._readers[: OPENED - 1]]
        return reader

    def _find(self, step: int) -> _Chunk | None:
        """The newest chunk that begins at a step or before it, else the oldest one."""
        place = bisect_right(self._chunks, step, key=lambda chunk: chunk.first)
        return self._chunks[max(0, place - 1)] if self._chunks else None

    def picture(self, step: int) -> Picture | None:
        """The picture after ``step``, or after the nearest kept step; None when nothing is kept."""
        chunk = self._find(step)
        if chunk is None:
            return None
        reader = self._reader(chunk)
        picture, records = Picture(reader.keyframe), reader.upto(min(step, chunk.last))
        picture.skim(records[:-1])
        for record in records[-1:]:
            picture.apply(record)
        return picture

    def record(self, step: int) -> StepRecord | None:
        """The record of exactly this step, when it is kept."""
        chunk = self._find(step)
        if chunk is None or not chunk.first <= step <= chunk.last:
            return None
        reader = self._reader(chunk)
        return reader.upto(step)[-1] if step > chunk.first else reader.keyframe.record


def _entry_size(packed: bytes) -> int:
    return sys.getsizeof(packed) + ALLOCATION + ENTRY

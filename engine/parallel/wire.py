"""A step plan as bytes. Block tables travel as what was added to them, so a decoding sequence costs about 20 bytes.

::

    step, slices, tokens, offloads, restores, forks         uint32 each
    per slice: row, start, length                           int32 columns
    per slice: 1 samples | 2 carries | 4 its row is new     uint8
    ids                                                     int32, all slices one after the other
    per layer group and slice: entries added                int32
    entries                                                 int32, group after group, slice after slice
    copies: pairs                                           int32
"""

import struct
from dataclasses import dataclass

import numpy as np
import torch

from engine.core.layout import CacheLayout
from engine.core.plan import Copies, StepPlan
from engine.core.request import Sequence
from engine.parallel.frames import ProtocolError
from engine.run.batch import Batch

_COUNTS = struct.Struct("<6I")
SAMPLES, CARRIES, FRESH = 1, 2, 4


@dataclass(slots=True, eq=False)
class _Sent:
    """Whose table a row holds on the other side, and how many entries of each group."""

    seq: Sequence
    life: int
    lengths: list[int]


class PlanEncoder:
    """Writes plans, and remembers which table entries the others have."""

    def __init__(self, layout: CacheLayout) -> None:
        self._groups = len(layout.groups)
        self._rows: dict[int, _Sent] = {}

    def encode(self, plan: StepPlan) -> bytes:
        """Bytes of a plan; call it for every plan, in order, before the scheduler changes its sequences."""
        columns: list[tuple[int, int, int]] = []
        flags, ids = bytearray(), []
        counts: list[list[int]] = [[] for _ in range(self._groups)]
        entries: list[list[int]] = [[] for _ in range(self._groups)]
        for piece in plan.slices:
            seq = piece.seq
            columns.append((seq.row, piece.start, piece.length))
            ids += [0] if piece.carry else seq.tokens[piece.start : piece.start + piece.length]
            sent, fresh = self._sent(seq)
            flags.append(SAMPLES * piece.samples | CARRIES * piece.carry | FRESH * fresh)
            for group, table in enumerate(seq.tables):
                new = table[sent.lengths[group] :]
                counts[group].append(len(new))
                entries[group] += new
                sent.lengths[group] = len(table)
        copies = (plan.copies.offload, plan.copies.restore, plan.copies.fork)
        parts = [
            _COUNTS.pack(plan.step, len(columns), len(ids), *map(len, copies)),
            np.array(columns, np.int32).T.tobytes(),
            bytes(flags),
            np.array(ids, np.int32).tobytes(),
        ]
        parts += [np.array(column, np.int32).tobytes() for column in (*counts, *entries)]
        parts += [np.array(pairs, np.int32).tobytes() for pairs in copies]
        return b"".join(parts)

    def _sent(self, seq: Sequence) -> tuple[_Sent, bool]:
        sent = self._rows.get(seq.row)
        known = sent is not None and sent.seq is seq and sent.life == seq.preemptions
        if sent is not None and known and all(n <= len(t) for n, t in zip(sent.lengths, seq.tables, strict=True)):
            return sent, False
        sent = self._rows[seq.row] = _Sent(seq, seq.preemptions, [0] * len(seq.tables))
        return sent, True


@dataclass(slots=True, eq=False)
class Step:
    """A plan as it arrived.

    Attributes:
        step: its number. copies: to make first.
        batch: the index tensors, None when nothing is computed; ids in its ``holes`` are still in flight on rank 0.
    """

    step: int
    copies: Copies
    batch: Batch | None


class PlanDecoder:
    """Reads plans in the order they were written, and keeps the block tables of the rows."""

    def __init__(self, layout: CacheLayout, device: torch.device, max_requests: int) -> None:
        self._layout, self._device = layout, device
        self._tables = [np.zeros((max_requests + 1, 16), np.int32) for _ in layout.groups]
        self._lengths = np.zeros((len(layout.groups), max_requests + 1), np.int64)

    def decode(self, data: bytes) -> Step:
        """One plan as index tensors.

        Raises:
            ProtocolError: more or fewer bytes than the counts say.
        """
        if len(data) < _COUNTS.size:
            raise ProtocolError(f"a plan of {len(data)} bytes")
        step, count, tokens, *pairs = _COUNTS.unpack_from(data)
        reader = _Reader(data, _COUNTS.size)
        rows, starts, lengths = reader.take(np.int32, 3 * count).reshape(3, count).astype(np.int64)
        flags = reader.take(np.uint8, count)
        ids = reader.take(np.int32, tokens).astype(np.int64)
        added = [reader.take(np.int32, count) for _ in self._layout.groups]
        for group, counts in enumerate(added):
            self._append(group, rows, flags, counts, reader.take(np.int32, int(counts.sum())))
        copies = Copies(*(tuple(map(tuple, reader.take(np.int32, 2 * n).reshape(n, 2).tolist())) for n in pairs))  # type: ignore[arg-type]
        reader.end()
        if not count:
            return Step(step, copies, None)
        width = int((starts + lengths).max() - 1) // self._layout.page_size + 1
        tables = [table[rows, :width] for table in self._tables]
        sampling = (flags & SAMPLES).astype(bool)
        carries = (flags & CARRIES).astype(bool)
        places = (np.cumsum(lengths) - lengths)[carries].tolist()
        holes = (places, rows[carries].tolist()) if places else None
        batch = Batch(self._layout, self._device, ids, starts, lengths, tables, sampling, holes)
        return Step(step, copies, batch)

    def _append(self, group: int, rows: np.ndarray, flags: np.ndarray, counts: np.ndarray, entries: np.ndarray) -> None:
        self._make_room(int(rows.max(initial=0)))
        fresh = rows[(flags & FRESH).astype(bool)]
        self._lengths[group, fresh] = 0
        first = 0
        for which in np.flatnonzero(counts).tolist():
            row, count = int(rows[which]), int(counts[which])
            have = int(self._lengths[group, row])
            width = self._tables[group].shape[1]
            if have + count > width:
                more = (1 << (have + count - 1).bit_length()) - width
                self._tables = [np.pad(table, ((0, 0), (0, more))) for table in self._tables]
            self._tables[group][row, have : have + count] = entries[first : first + count]
            self._lengths[group, row] = have + count
            first += count

    def _make_room(self, row: int) -> None:
        more = row + 1 - self._lengths.shape[1]
        if more > 0:
            self._tables = [np.pad(table, ((0, more), (0, 0))) for table in self._tables]
            self._lengths = np.pad(self._lengths, ((0, 0), (0, more)))


class _Reader:
    """Takes arrays off the front of some bytes."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data, self._offset = data, offset

    def take(self, kind: type[np.generic], count: int) -> np.ndarray:
        """The next ``count`` numbers. Raises ProtocolError when there are not so many."""
        size = count * np.dtype(kind).itemsize
        if self._offset + size > len(self._data):
            raise ProtocolError(f"a plan of {len(self._data)} bytes ends too early")
        array: np.ndarray = np.frombuffer(self._data, kind, count, self._offset)
        self._offset += size
        return array

    def end(self) -> None:
        """Raises ProtocolError when something is left."""
        if self._offset != len(self._data):
            raise ProtocolError(f"a plan of {len(self._data)} bytes goes on after {self._offset}")

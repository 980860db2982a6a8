"""A plan as index tensors: which ids go in, where their keys are written, and where each query finds its keys."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from engine.core.layout import CacheLayout
from engine.core.plan import Slice, StepPlan
from engine.core.request import Sequence
from engine.run.upload import upload

_PIECE = 256
"""Fewest queries a prompt chunk is cut into in sliding layers; smaller pieces cost more calls than they save work."""


@dataclass(slots=True, eq=False)
class Span:
    """Keys of some slices that one attention call handles together.

    Attributes:
        rows: int64 [n * length], rows of the batch whose queries these are, slice after slice.
        count, length: n slices of ``length`` query tokens each.
        slots: int64 [n, keys], flat cache slots (block * page_size + offset) of each slice's keys, oldest first. Slices
            with fewer keys repeat their first one at the end, so no slot of anybody else is ever read.
        causal: there are as many keys as queries and query i sees keys 0 … i; the mask says the same.
        mask: bool [n, length, keys], True where the query sees the key; None when every query sees every key.
    """

    rows: torch.Tensor
    count: int
    length: int
    slots: torch.Tensor
    causal: bool
    mask: torch.Tensor | None
    _repeated: torch.Tensor | None = None

    def mask_of_heads(self, shared: int) -> torch.Tensor | None:
        """bool [n, 1, shared * length, keys]: the mask for queries of ``shared`` heads one after the other."""
        if self.mask is None:
            return None
        if self._repeated is None:
            one = self.mask[:, None]
            self._repeated = one.repeat(1, 1, shared, 1) if self.length > 1 and shared > 1 else one
        return self._repeated


class Batch:
    """One step's input, on the device.

    Tensors are made when a forward pass asks for them: right after a forward pass, with cold caches, each costs tens of
    microseconds, and the compiled kernels read the arrays.

    Attributes:
        host_ids: int64 numpy [tokens]; ids: the same on the device, on the CPU in the same memory.
        positions: int64 [tokens].
        starts, lengths, offsets: int64 numpy [slices]; first position, query tokens, first row of each slice.
        tables: per layer group int32 numpy [slices, width], block tables.
        host_samples: int64 numpy [n], the rows whose logits are sampled, in plan order; samples: on the device.
        num_samples: n, without padding.
        slots: per layer group int64 [tokens], the flat cache slot each token's key and value are written to.
        holes: (places among the ids, sequence rows) of ids that are not known yet; or None.

    Ids that the step in flight is still sampling are missing until ``fill``.
    """

    def __init__(
        self,
        layout: CacheLayout,
        device: torch.device,
        ids: np.ndarray,
        starts: np.ndarray,
        lengths: np.ndarray,
        tables: list[np.ndarray],
        sampling: np.ndarray,
        holes: tuple[list[int], list[int]] | None = None,
    ) -> None:
        self.layout, self.device = layout, device
        self.starts, self.lengths, self.tables = starts, lengths, tables
        ends = lengths.cumsum()
        self.offsets = ends - lengths
        self.host_ids = ids
        self.host_samples = (ends - 1)[sampling]
        self.num_samples = len(self.host_samples)
        self.holes = None if holes is None else (upload(holes[0], device), upload(holes[1], device))
        self._spans: dict[tuple[int, bool], list[Span]] = {}

    @cached_property
    def ids(self) -> torch.Tensor:
        return upload(self.host_ids, self.device)

    @cached_property
    def samples(self) -> torch.Tensor:
        return upload(self.host_samples, self.device)

    @cached_property
    def positions(self) -> torch.Tensor:
        return upload(self._places[1], self.device)

    @cached_property
    def slots(self) -> list[torch.Tensor]:
        owner, positions = self._places
        page, offset = np.divmod(positions, self.layout.page_size)
        return [
            upload(table[owner, page].astype(np.int64) * self.layout.page_size + offset, self.device)
            for table in self.tables
        ]

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each token: its slice, and its position there."""
        owner = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return owner, np.arange(len(owner)) + (self.starts - self.offsets)[owner]

    def fill(self, carried: torch.Tensor) -> None:
        """Put in the ids the step before has sampled.

        Args:
            carried: int64 [rows], the last sampled id of each sequence row, on the device.
        """
        if self.holes is not None:
            where, rows = self.holes
            self.ids[where] = carried[rows]

    def pad(self, tokens: int, samples: int) -> None:
        """Lengthen the inputs of the model's modules to a size that comes more often.

        Padding tokens have id and position 0, write into the trash block and belong to no slice.
        """
        more = tokens - len(self.ids)
        if more:
            self.ids, self.positions, *self.slots = (
                torch.nn.functional.pad(column, (0, more)) for column in (self.ids, self.positions, *self.slots)
            )
        if samples > len(self.samples):
            self.samples = torch.nn.functional.pad(self.samples, (0, samples - len(self.samples)))

    def spans(self, group: int, together: bool) -> list[Span]:
        """Every query of the batch once, with its keys of one layer group; built once and shared by its layers.

        Args:
            group: layer group.
            together: put single-token slices with similar numbers of keys into one span; else one span a slice.
        """
        if (group, together) not in self._spans:
            window = self.layout.groups[group].window
            if together:
                pieces = [piece for s in np.flatnonzero(self.lengths > 1).tolist() for piece in self._pieces(s, window)]
                decodes = [self._span(group, members, 0, 1, window) for members in self._buckets(window)]
            else:
                pieces, decodes = [(s, 0, int(length)) for s, length in enumerate(self.lengths)], []
            prompts = [self._span(group, np.array([s]), first, length, window) for s, first, length in pieces]
            self._spans[group, together] = prompts + decodes
        return self._spans[group, together]

    def _pieces(self, index: int, window: int | None) -> Iterator[tuple[int, int, int]]:
        """A prompt chunk as (slice, first query, queries): cut up where a window makes most of a wide mask empty."""
        length = int(self.lengths[index])
        step = length if window is None else max(window, _PIECE)
        for first in range(0, length, step):
            yield index, first, min(step, length - first)

    def _buckets(self, window: int | None) -> list[np.ndarray]:
        """Decoding slices that go together: padding stays under a quarter."""
        shares: list[np.ndarray] = []
        single = np.flatnonzero(self.lengths == 1)
        keys = self.starts[single] + 1
        if window is not None:
            keys = np.minimum(keys, window)
        order = np.argsort(keys, kind="stable")
        sorted_keys, first = keys[order], 0
        totals = np.concatenate(([0], np.cumsum(sorted_keys)))
        for last in range(len(order)):
            wasted = sorted_keys[last] * (last + 1 - first) - (totals[last + 1] - totals[first])
            if wasted * 4 > totals[last + 1] - totals[first]:
                shares.append(single[order[first:last]])
                first = last
        if first < len(order):
            shares.append(single[order[first:]])
        return shares

    def _span(self, group: int, members: np.ndarray, first: int, length: int, window: int | None) -> Span:
        """``length`` queries of each member, beginning with its query number ``first``."""
        start = self.starts[members] + first
        low = np.zeros_like(start) if window is None else np.maximum(0, start - window + 1)
        have = start + length - low
        width = int(have.max())
        # A column past a slice's keys points back at its first key and is masked.
        column = np.arange(width)
        position = low[:, None] + np.where(column < have[:, None], column, 0)
        page = self.layout.page_size
        table = self.tables[group][members]
        slots = np.take_along_axis(table, position // page, 1).astype(np.int64) * page + position % page
        mask = None
        if length > 1 or (have != width).any():
            query = start[:, None] + np.arange(length)
            seen = (position[:, None] <= query[:, :, None]) & (column < have[:, None])[:, None]
            if window is not None:
                seen &= position[:, None] > query[:, :, None] - window
            mask = upload(seen, self.device)
        rows = (self.offsets[members][:, None] + first + np.arange(length)).reshape(-1)
        return Span(
            rows=upload(rows, self.device),
            count=len(members),
            length=length,
            slots=upload(slots, self.device),
            causal=length > 1 and not start.any() and (window is None or window >= length),
            mask=mask,
        )


@dataclass(slots=True, eq=False)
class _Copied:
    """What a table row holds already."""

    seq: Sequence
    life: int
    lengths: list[int] = field(default_factory=list)


class BatchBuilder:
    """Turns plans into batches. Keeps the block tables of running sequences by row: a step adds new entries only."""

    def __init__(self, layout: CacheLayout, device: torch.device, max_requests: int) -> None:
        self._layout, self._device = layout, device
        self._rows: list[_Copied | None] = [None] * (max_requests + 1)
        self._tables = [np.zeros((max_requests + 1, 16), np.int32) for _ in layout.groups]

    def build(self, plan: StepPlan) -> Batch:
        """Read the sequences of a plan; after this the scheduler may change them."""
        slices = plan.slices
        starts = np.array([piece.start for piece in slices], np.int64)
        lengths = np.array([piece.length for piece in slices], np.int64)
        sampling = np.array([piece.samples for piece in slices], bool)
        rows = np.array([self._copy_tables(piece.seq) for piece in slices], np.int64)
        longest = max([piece.start + piece.length for piece in slices])
        tables = [table[rows, : -(-longest // self._layout.page_size)] for table in self._tables]
        ids, holes = self._ids(slices)
        return Batch(self._layout, self._device, ids, starts, lengths, tables, sampling, holes)

    def _ids(self, slices: tuple[Slice, ...]) -> tuple[np.ndarray, tuple[list[int], list[int]] | None]:
        """The ids known now, and where the others belong: (places among the ids, rows of their sequences)."""
        ids: list[int] = []
        places: list[int] = []
        rows: list[int] = []
        for piece in slices:
            if piece.carry:
                places.append(len(ids))
                rows.append(piece.seq.row)
                ids.append(0)
            elif piece.length == 1:
                ids.append(piece.seq.tokens[piece.start])
            else:
                ids.extend(piece.seq.tokens[piece.start : piece.start + piece.length])
        return np.array(ids, np.int64), (places, rows) if places else None

    def _copy_tables(self, seq: Sequence) -> int:
        """Bring this sequence's row of the tables up to date; the row's number."""
        row = seq.row
        if row >= len(self._rows):
            self._grow_rows(row)
        copied = self._rows[row]
        if copied is None or copied.seq is not seq or copied.life != seq.preemptions:
            copied = self._rows[row] = _Copied(seq, seq.preemptions, [0] * len(seq.tables))
        for group, table in enumerate(seq.tables):
            have, want = copied.lengths[group], len(table)
            if want == have:
                continue
            if want > self._tables[group].shape[1]:
                self._widen(want)
            first = min(have, want)
            self._tables[group][row, first:want] = table[first:]
            copied.lengths[group] = want
        return row

    def _grow_rows(self, row: int) -> None:
        more = row + 1 - len(self._rows)
        self._rows.extend([None] * more)
        self._tables = [np.pad(table, ((0, more), (0, 0))) for table in self._tables]

    def _widen(self, want: int) -> None:
        width = 1 << (want - 1).bit_length()
        self._tables = [np.pad(table, ((0, 0), (0, width - table.shape[1]))) for table in self._tables]

"""A step's input in tensors that stay where they are.

The host writes a step into one of two sets of page-locked tensors, and from there it is copied into one set of tensors
on the device::

    plan n    ──fill──▶ host set A ─┐ copies, queued
                                    ├────────────────▶ device set ──▶ forward pass
    plan n+1  ──fill──▶ host set B ─┘ behind step n

Two host sets let the host write step n+1 while the copies of step n still wait. One device set is enough: copies and
passes are queued on one stream, so step n+1 arrives there after step n has been computed, and a graph that was captured
with these addresses serves every step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from engine.core.errors import EngineError
from engine.core.layout import CacheLayout
from engine.run.batch import Batch
from engine.run.shapes import Shape, Shapes, first_pages
from engine.run.upload import upload


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """One step on the device, padded to its shape.

    Padding tokens have id and position 0, write into the trash block and belong to no row. Padding rows have no queries
    (varlen) or no keys (decode), so nothing they read or write reaches a real row.

    Attributes:
        ids, positions: int64 [tokens].
        slots: per layer group int64 [tokens], flat cache slot each token's key and value are written to.
        samples: int64 [samples], rows whose logits are wanted.
        query_ends: int32 [rows + 1], cumulative query tokens.
        key_ends: per layer group int32 [rows + 1], cumulative keys.
        key_counts: per layer group int32 [rows].
        tables: per layer group int32 [rows, width], blocks from the oldest visible key's on.
    """

    layout: CacheLayout
    shape: Shape
    ids: torch.Tensor
    positions: torch.Tensor
    slots: list[torch.Tensor]
    samples: torch.Tensor
    query_ends: torch.Tensor
    key_ends: list[torch.Tensor]
    key_counts: list[torch.Tensor]
    tables: list[torch.Tensor]


@dataclass(slots=True, eq=False)
class Filled:
    """A step in a host set, not on the device yet.

    Attributes:
        index: of the host set.
        samples: sampled rows without padding.
        holes: (places among the ids, sequence rows) of ids that are still being sampled, on the device.
    """

    index: int
    shape: Shape
    samples: int
    holes: tuple[torch.Tensor, torch.Tensor] | None
    carried: torch.Tensor | None = None

    def fill(self, carried: torch.Tensor) -> None:
        """Say where the ids sampled by the step before are: int64 [sequence rows], on the device."""
        self.carried = carried


def _fields(shape: Shape) -> Iterator[tuple[str, torch.dtype, tuple[int, ...]]]:
    """(name, element type, dimensions) of every input tensor."""
    for name in ("ids", "positions"):
        yield name, torch.int64, (shape.tokens,)
    yield "samples", torch.int64, (shape.samples,)
    yield "query_ends", torch.int32, (shape.rows + 1,)
    for group, width in enumerate(shape.widths):
        yield f"slots{group}", torch.int64, (shape.tokens,)
        yield f"key_ends{group}", torch.int32, (shape.rows + 1,)
        yield f"key_counts{group}", torch.int32, (shape.rows,)
        yield f"tables{group}", torch.int32, (shape.rows, width)


class StepBuffers:
    """Host and device tensors for the largest step, handed out in the shape of each.

    Args:
        shapes: sizes of this engine.
        sets: host sets; as many steps may be filled and not sent.
        event: makes and records an event on the device's queue, or None on devices that copy at once; its
            ``synchronize`` waits until the copies queued before it are over.
    """

    def __init__(
        self,
        layout: CacheLayout,
        device: torch.device,
        shapes: Shapes,
        *,
        sets: int = 2,
        event: Callable[[], torch.cuda.Event] | None = None,
    ) -> None:
        self.layout, self.device = layout, device
        widths = tuple(max(width, shapes.decode_pages) for width in shapes.widest)
        tokens = max(shapes.max_tokens, shapes.max_rows)
        largest = Shape("", tokens, shapes.max_rows, shapes.max_rows, 0, (), widths)
        sizes = [(name, kind, _size(dims)) for name, kind, dims in _fields(largest)]
        pin = device.type == "cuda"
        self._device = {name: torch.zeros(size, dtype=kind, device=device) for name, kind, size in sizes}
        self._host = [
            {name: torch.zeros(size, dtype=kind, pin_memory=pin) for name, kind, size in sizes} for _ in range(sets)
        ]
        self._event = event
        self._copied: list[torch.cuda.Event | None] = [None] * sets
        self._waiting = [False] * sets
        self._next = 0

    def fill(self, batch: Batch, shape: Shape) -> Filled:
        """Write a batch that lies in host memory into the next host set.

        Raises:
            EngineError: every set holds a step that was not sent yet.
        """
        index = self._next
        if self._waiting[index]:
            raise EngineError(f"more than {len(self._host)} steps are open at a time")
        copied = self._copied[index]
        if copied is not None:
            copied.synchronize()
        self._next = (index + 1) % len(self._host)
        self._waiting[index] = True
        views = {
            name: self._host[index][name][: _size(dims)].view(dims).numpy() for name, _, dims in _fields(shape)
        }
        _write(views, batch, shape, self.layout)
        holes = batch.holes
        moved = None if holes is None else (upload(holes[0], self.device), upload(holes[1], self.device))
        return Filled(index, shape, len(batch.samples), moved)

    def send(self, filled: Filled) -> Inputs:
        """Queue the copies to the device, and put in what the step before has sampled."""
        host = self._host[filled.index]
        inputs = self.inputs(filled.shape)
        for name, _, dims in _fields(filled.shape):
            size = _size(dims)
            self._device[name][:size].copy_(host[name][:size], non_blocking=True)
        if self._event is not None:
            self._copied[filled.index] = self._event()
        self._waiting[filled.index] = False
        if filled.holes is not None and filled.carried is not None:
            places, rows = filled.holes
            inputs.ids[places] = filled.carried[rows]
        return inputs

    def blank(self, shape: Shape) -> Inputs:
        """An input of this shape that may be computed and means nothing: one row that reads the trash block."""
        for tensor in self._device.values():
            tensor.zero_()
        inputs = self.inputs(shape)
        for counts, ends in zip(inputs.key_counts, inputs.key_ends, strict=True):
            counts[:1] = 1
            ends[1:] = 1
        inputs.query_ends[1:] = 1
        return inputs

    def inputs(self, shape: Shape) -> Inputs:
        """The device tensors in a shape; their addresses depend on nothing."""
        at = {name: self._device[name][: _size(dims)].view(dims) for name, _, dims in _fields(shape)}
        groups = range(len(shape.widths))
        return Inputs(
            layout=self.layout,
            shape=shape,
            ids=at["ids"],
            positions=at["positions"],
            slots=[at[f"slots{g}"] for g in groups],
            samples=at["samples"],
            query_ends=at["query_ends"],
            key_ends=[at[f"key_ends{g}"] for g in groups],
            key_counts=[at[f"key_counts{g}"] for g in groups],
            tables=[at[f"tables{g}"] for g in groups],
        )


def _write(at: dict[str, np.ndarray], batch: Batch, shape: Shape, layout: CacheLayout) -> None:
    """A batch into the arrays of a host set. What it does not use is padding; see ``Inputs``."""
    tokens, rows, samples = len(batch.ids), len(batch.lengths), len(batch.samples)
    for name, values in (("ids", batch.ids), ("positions", batch.positions)):
        at[name][:tokens], at[name][tokens:] = values.numpy(), 0
    at["samples"][:samples], at["samples"][samples:] = batch.samples.numpy(), 0
    _write_ends(at["query_ends"], batch.lengths)
    for index, group in enumerate(layout.groups):
        slots = at[f"slots{index}"]
        slots[:tokens], slots[tokens:] = batch.slots[index].numpy(), 0
        first = first_pages(batch.starts, group.window, layout.page_size)
        keys = batch.starts + batch.lengths - first * layout.page_size
        counts = at[f"key_counts{index}"]
        counts[:rows], counts[rows:] = keys, 0
        _write_ends(at[f"key_ends{index}"], keys)
        _write_table(at[f"tables{index}"], batch.tables[index], first)


def _write_ends(ends: np.ndarray, counts: np.ndarray) -> None:
    used = len(counts) + 1
    ends[0] = 0
    np.cumsum(counts, out=ends[1:used])
    ends[used:] = ends[used - 1]


def _write_table(out: np.ndarray, table: np.ndarray, first: np.ndarray) -> None:
    """Each row of ``table`` [slices, pages] from its column ``first`` on."""
    out.fill(0)
    rows, pages = table.shape
    if not first.any():
        width = min(pages, out.shape[1])
        out[:rows, :width] = table[:, :width]
        return
    columns = first[:, None] + np.arange(out.shape[1])
    found = np.take_along_axis(table, np.minimum(columns, pages - 1), 1)
    out[:rows] = np.where(columns < pages, found, 0)


def _size(dims: tuple[int, ...]) -> int:
    size = 1
    for dim in dims:
        size *= dim
    return size

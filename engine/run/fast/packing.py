"""Weights in the order the kernels read them."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from engine.run.fast.borrowed import Borrowed
from engine.run.fast.team import Team

_WORTH_SHARING = 1 << 23
"""Elements from which on threads share a copy. Each of the many smaller ones would wait for the last of its threads,
which on a busy machine is not running: there the waits were ten times the work."""

_SLAB = 64 << 20
"""Bytes reserved at a time. Weights lie side by side in slabs because most of them are smaller than a large page: each
alone would lie on small ones, and looking those up costs a tenth of the time of a step with one row (measured)."""
_ALIGN = 64

PLAIN = -1  # the `part` of an ordinary weight; a gated pair has parts 0 and 1


@dataclass(slots=True)
class PackedWeight:
    """One packed weight, made of the rows of several linear layers under each other (or alternating, when gated).

    Attributes:
        data: flat tensor in the layout of ``kernels/linear.h``.
        bias: float32 in the order of the packed rows, zero where a layer has none; None when none has.
        n, k: outputs (padding of a gated pair included) and inputs.
    """

    data: Tensor
    bias: Tensor | None
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the rows of one layer lie in a packed weight: rows first …, or one half of a gated pair."""

    packed: Tensor
    rows: int
    columns: int
    first: int
    part: int


class Packer:
    """Moves weights into packed form, emptying the modules they come from.

    Peak memory is the model plus its largest weight.
    """

    def __init__(self, library: ctypes.CDLL, borrowed: Borrowed, team: Team) -> None:
        self._library, self._borrowed, self._team = library, borrowed, team
        self._columns = int(library.block_columns())
        self._slab = torch.empty(0, dtype=torch.uint8)

    def pack(self, linears: Sequence[nn.Linear], *, gated: bool = False) -> PackedWeight:
        """Packs linear layers with the same input into one weight and empties theirs.

        Args:
            linears: layers whose outputs follow each other; with ``gated``, exactly two of the same size whose
                outputs alternate by half a column block (gate first).
        """
        k = linears[0].in_features
        half = self._columns // 2
        if gated:
            n = 2 * _round_up(linears[0].out_features, half)
        else:
            n = sum(linear.out_features for linear in linears)
        dtype = linears[0].weight.dtype
        data = self._room(_round_up(n, self._columns) * _round_up(k, 4 // dtype.itemsize) * dtype.itemsize).view(dtype)
        data.zero_()
        bias = None if all(linear.bias is None for linear in linears) else torch.zeros(_round_up(n, self._columns))
        first = 0
        for part, linear in enumerate(linears):
            rows = linear.out_features
            place = _Place(data, rows, k, 0 if gated else first, part if gated else PLAIN)
            self._copy(place, linear.weight.data, to_packed=True)
            self._borrowed.take(linear.weight, partial(self._plain, place))
            if bias is not None and linear.bias is not None:
                bias[self._positions(place)] = linear.bias.detach().float()
            first += rows
        return PackedWeight(data, bias, n, k)

    def _room(self, size: int) -> Tensor:
        """The next ``size`` bytes of a slab, uint8 [size]. Only what is written is committed."""
        size = _round_up(size, _ALIGN)
        if size > len(self._slab):
            self._slab = torch.empty(max(size, _SLAB), dtype=torch.uint8)
            self._library.use_large_pages(ctypes.c_void_p(self._slab.data_ptr()), ctypes.c_int64(self._slab.nbytes))
        room, self._slab = self._slab[:size], self._slab[size:]
        return room

    def _positions(self, place: _Place) -> Tensor:
        n = torch.arange(place.rows) + place.first
        if place.part == PLAIN:
            return n
        half = self._columns // 2
        return n // half * self._columns + place.part * half + n % half

    def _plain(self, place: _Place) -> Tensor:
        plain = torch.empty(place.rows, place.columns, dtype=place.packed.dtype)
        self._copy(place, plain, to_packed=False)
        return plain

    def _copy(self, place: _Place, plain: Tensor, *, to_packed: bool) -> None:
        self._library.pack(
            ctypes.c_void_p(place.packed.data_ptr()),
            ctypes.c_void_p(plain.data_ptr()),
            place.rows,
            place.columns,
            place.first,
            place.part,
            int(to_packed),
            self._team.handle() if plain.numel() >= _WORTH_SHARING else None,
        )


def _round_up(n: int, multiple: int) -> int:
    return (n + multiple - 1) // multiple * multiple

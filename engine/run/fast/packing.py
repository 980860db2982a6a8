"""Weights in the order the kernels read them."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from engine.run.fast.borrowed import Borrowed

_WORTH_SHARING = 1 << 23
"""Elements from which on threads share a copy. Each of the many smaller ones would wait for the last of its threads,
which on a busy machine is not running: there the waits were ten times the work."""

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

    def __init__(self, library: ctypes.CDLL, borrowed: Borrowed) -> None:
        self._library, self._borrowed = library, borrowed
        self._columns = int(library.block_columns())

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
        data = torch.empty(_round_up(n, self._columns) * _round_up(k, 4 // dtype.itemsize), dtype=dtype)
        self._library.use_large_pages(ctypes.c_void_p(data.data_ptr()), ctypes.c_int64(data.nbytes))
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
            torch.get_num_threads() if plain.numel() >= _WORTH_SHARING else 1,
        )


def _round_up(n: int, multiple: int) -> int:
    return (n + multiple - 1) // multiple * multiple

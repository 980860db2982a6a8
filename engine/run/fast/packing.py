"""Weights in the kernels' own order, one copy in memory: packed from the modules, given back when restored."""

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

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


@dataclass(slots=True)
class _Origin:
    """Where a module's weight went: rows first … of a packed weight."""

    weight: nn.Parameter
    packed: Tensor
    rows: int
    columns: int
    first: int
    part: int


@dataclass(slots=True)
class _Ledger:
    """What must be given back. Separate from the packer, so that a finalizer can hold it."""

    library: ctypes.CDLL
    origins: list[_Origin] = field(default_factory=list)

    def restore(self) -> None:
        while self.origins:
            origin = self.origins.pop()
            plain = torch.empty(origin.rows, origin.columns, dtype=origin.packed.dtype)
            _copy(self.library, origin, plain, to_packed=False)
            origin.weight.data = plain


class Packer:
    """Moves the weights of a model into packed form. While they are there, the modules' own weights are empty.

    Peak memory is the model plus its largest weight. ``restore`` rebuilds every weight bit by bit, in the same
    ``Parameter`` objects; it also runs when the packer is dropped without it.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._columns = int(library.block_columns())
        self._ledger = _Ledger(library)
        self._finalizer = weakref.finalize(self, self._ledger.restore)

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
            origin = _Origin(linear.weight, data, rows, k, 0 if gated else first, part if gated else PLAIN)
            _copy(self._library, origin, linear.weight.data, to_packed=True)
            self._ledger.origins.append(origin)
            linear.weight.data = torch.empty(0, dtype=dtype)
            if bias is not None and linear.bias is not None:
                bias[self._places(rows, origin)] = linear.bias.detach().float()
            first += rows
        return PackedWeight(data, bias, n, k)

    def _places(self, rows: int, origin: _Origin) -> Tensor:
        n = torch.arange(rows) + origin.first
        if origin.part == PLAIN:
            return n
        half = self._columns // 2
        return n // half * self._columns + origin.part * half + n % half

    def restore(self) -> None:
        """Gives every weight back to its module. The packed weights must not be used any more."""
        self._ledger.restore()


def _copy(library: ctypes.CDLL, origin: _Origin, plain: Tensor, *, to_packed: bool) -> None:
    library.pack(
        ctypes.c_void_p(origin.packed.data_ptr()),
        ctypes.c_void_p(plain.data_ptr()),
        origin.rows,
        origin.columns,
        origin.first,
        origin.part,
        int(to_packed),
        torch.get_num_threads(),
    )


def _round_up(n: int, multiple: int) -> int:
    return (n + multiple - 1) // multiple * multiple

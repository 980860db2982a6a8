"""A batch as the kernels take it: arrays at addresses that stay."""

import ctypes
from ctypes import POINTER, c_int32, c_void_p
from typing import Any

import numpy as np
from torch import Tensor

from engine.run.batch import Batch


class _Batch(ctypes.Structure):
    """``Batch`` of ``kernels/step.h``, field by field."""

    _fields_ = [
        *((name, c_void_p) for name in ("tokens", "starts", "lengths")),
        ("tables", POINTER(c_void_p)),
        ("rotary", POINTER(c_void_p)),
        *((name, c_void_p) for name in ("samples", "logits", "best")),
        *((name, c_int32) for name in ("rows", "slices", "num_samples", "page_size", "table_width")),
    ]


class Inputs:
    """Copies of the newest batch. To copy some numbers costs less than to ask as many new arrays for their addresses.

    Args:
        groups: layer groups.
        page_size: tokens of a block.
    """

    def __init__(self, groups: int, page_size: int) -> None:
        self._batch = _Batch(page_size=page_size)
        self._address = ctypes.byref(self._batch)
        self._rotary: list[Tensor] = []
        self._tokens = np.empty(0, np.int64)
        self._slices = np.empty((3, 0), np.int64)  # starts, lengths, rows that are sampled
        self._tables = np.empty((groups, 0, 0), np.int32)

    def of(self, batch: Batch, rotary: list[Tensor], logits: int, best: int) -> Any:
        """What ``forward`` of the kernels takes; it holds until the next call.

        Args:
            rotary: tables, see ``kernels/step.h``.
            logits, best: addresses of what is written.
        """
        tokens, slices, samples = len(batch.host_ids), len(batch.starts), batch.num_samples
        width = batch.tables[0].shape[1]
        self._make_room(tokens, slices, width)
        if rotary is not self._rotary:
            self._rotary = rotary
            self._batch.rotary = (c_void_p * len(rotary))(*(table.data_ptr() for table in rotary))
        self._tokens[:tokens] = batch.host_ids
        starts, lengths, sampled = self._slices
        starts[:slices], lengths[:slices], sampled[:samples] = batch.starts, batch.lengths, batch.host_samples
        for mine, table in zip(self._tables, batch.tables, strict=True):
            mine[:slices, :width] = table
        to = self._batch
        to.logits, to.best, to.rows, to.slices, to.num_samples = logits, best, tokens, slices, samples
        return self._address

    def _make_room(self, tokens: int, slices: int, width: int) -> None:
        """Larger arrays where these are too small; sizes double."""
        groups, rows, columns = self._tables.shape
        if tokens > len(self._tokens):
            self._tokens = np.empty(_double(tokens), np.int64)
            self._batch.tokens = self._tokens.ctypes.data
        if slices > self._slices.shape[1]:
            self._slices = np.empty((3, _double(slices)), np.int64)
            to = self._batch
            to.starts, to.lengths, to.samples = (row.ctypes.data for row in self._slices)
        if slices > rows or width > columns:
            self._tables = np.empty((groups, _double(max(rows, slices)), _double(max(columns, width))), np.int32)
            self._batch.tables = (c_void_p * groups)(*(table.ctypes.data for table in self._tables))
            self._batch.table_width = self._tables.shape[2]


def _double(size: int) -> int:
    return 1 << (size - 1).bit_length()

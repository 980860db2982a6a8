"""Drawing tokens with the kernels: what ``engine.run.sampler.draw`` does, in a fraction of its time."""

import ctypes
import math
from ctypes import c_int32, c_int64, c_void_p

import numpy as np
import torch
from torch import Tensor

from engine.core.request import SamplingParams
from engine.run.fast.team import Team

_DRAW = np.dtype(
    [
        *((name, "i4") for name in ("row", "top_k")),
        *((name, "u4") for name in ("low", "high")),
        *((name, "f4") for name in ("temperature", "top_p", "least")),
    ]
)
"""``Draw`` of ``kernels/draw.h``, field by field."""


class Drawing:
    """Draws rows of float32 logits on the CPU, several rows at once."""

    def __init__(self, library: ctypes.CDLL, team: Team) -> None:
        self._library, self._team = library, team

    def __call__(
        self, logits: Tensor, rows: list[int], params: list[SamplingParams], keys: list[tuple[int, int]]
    ) -> Tensor:
        """One token for each of some rows; see ``engine.run.sampler.Draw``.

        Raises:
            MemoryError: none is left to work in.
        """
        wishes = [
            (row, p.top_k, *key, p.temperature, p.top_p, math.log(p.min_p) if p.min_p > 0 else -math.inf)
            for row, p, key in zip(rows, params, keys, strict=True)
        ]
        draws, tokens = np.array(wishes, _DRAW), torch.empty(len(rows), dtype=torch.int64)
        failed = self._library.draw(
            c_void_p(logits.data_ptr()),
            c_int64(logits.stride(0)),
            c_int32(logits.shape[1]),
            c_void_p(draws.ctypes.data),
            c_int32(len(rows)),
            c_void_p(tokens.data_ptr()),
            self._team.handle(),
        )
        if failed:
            raise MemoryError(f"no memory to draw {len(rows)} tokens; lower max_requests_per_batch")
        return tokens

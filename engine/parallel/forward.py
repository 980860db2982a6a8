"""The model over one batch, with the ranks in step: all have the same step and the same ids, or none goes on."""

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.core.counters import RankWait
from engine.parallel.ranks import RankError, Ranks
from engine.run.batch import Batch

_MICRO = 1_000_000


@dataclass(slots=True)
class Clockwork:
    """What a rank measures about itself, in seconds.

    Attributes:
        plan: since it was ready for the step, until the step could begin on all ranks.
        tensors: in the forward pass, not computing: until the other ranks' parts arrived. -1 where it is not known.
    """

    plan: float = 0.0
    tensors: float = 0.0
    _ready: float = field(default_factory=time.perf_counter)

    def ready(self) -> None:
        """The waiting begins."""
        self._ready = time.perf_counter()

    def began(self) -> None:
        """The step begins."""
        self.plan = time.perf_counter() - self._ready


class SharedForward:
    """Wraps a forward pass. Everything else about it is the wrapped one's.

    Args:
        forward: runs this rank's part of the model.
        ranks: all of them.
        check: compare a digest of the index tensors before each pass.

    Attributes:
        step: number of the step to run, set by whoever calls.
        waits: what each rank waited for: for the plan of the last step, and for tensors in the pass before.
    """

    def __init__(self, forward: Any, ranks: Ranks, *, check: bool = False) -> None:
        self._inner, self._ranks, self._check = forward, ranks, check
        self.clockwork = Clockwork()
        self.step = 0
        self.waits: tuple[RankWait, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def line_up(self, batch: Batch | None, trouble: str | None = None) -> None:
        """Wait until all ranks are ready for this step, and check that it is the same one.

        Raises:
            RankError: a rank failed while it got ready, or prepared something else.
        """
        digest = digest_of(batch) if self._check and batch is not None else 0
        clock = self.clockwork
        told = [trouble is None, self.step, digest, int(clock.plan * _MICRO), int(clock.tensors * _MICRO)]
        if trouble is not None:
            self._ranks.note(trouble)
        everybody = self._ranks.everybody(told)
        clock.began()
        for rank, (fine, step, other, _, _) in enumerate(everybody):
            if not fine:
                raise RankError(self._ranks.noted() or f"rank {rank} failed in step {self.step}")
            if step != self.step:
                raise RankError(f"rank {rank} is in step {step}, rank {self._ranks.rank} in step {self.step}")
            if other != everybody[0][2]:
                raise RankError(f"the index tensors of step {self.step} differ between rank 0 and rank {rank}")
        self.waits = tuple(
            RankWait(rank, plan / _MICRO, tensors / _MICRO if tensors >= 0 else -1.0)
            for rank, (_, _, _, plan, tensors) in enumerate(everybody)
        )

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Rank 0's part of the pass. Logits are the same on all ranks."""
        self.clockwork.ready()
        self.line_up(batch)
        return self.run(batch)

    def run(self, batch: Batch) -> torch.Tensor:
        """The pass itself, once all ranks are ready."""
        if batch.holes is not None:
            where = batch.holes[0]
            ids = batch.ids[where]
            self._ranks.share(ids)
            batch.ids[where] = ids
        began, busy = time.perf_counter(), time.thread_time()
        logits = self._inner(batch)
        wall, worked = time.perf_counter() - began, time.thread_time() - busy
        # A device works on its own; what its ranks wait for each other cannot be seen from the host.
        self.clockwork.tensors = max(0.0, wall - worked) if batch.device.type == "cpu" else -1.0
        return logits


def digest_of(batch: Batch) -> int:
    """63 bits of all index tensors, of which ids in flight are left out."""
    state = hashlib.blake2b(digest_size=8)
    ids = batch.ids.clone()
    if batch.holes is not None:
        ids[batch.holes[0]] = 0
    for tensor in (ids, batch.positions, batch.samples, *batch.slots):
        state.update(tensor.cpu().numpy().tobytes())
    for array in (batch.starts, batch.lengths, *batch.tables):
        state.update(array.tobytes())
    return int.from_bytes(state.digest(), "little") >> 1

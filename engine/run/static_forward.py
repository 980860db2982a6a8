"""The model's modules over inputs in static buffers: for kernels that read block tables, and for graphs."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from engine.core.layout import CacheLayout
from engine.run.attention.context import Context
from engine.run.batch import Batch
from engine.run.buffers import Filled, Inputs, StepBuffers
from engine.run.forward import ModulesForward, Progress
from engine.run.graphs import Graphs
from engine.run.kv_store import KVStore
from engine.run.shapes import Shapes


class StaticForward(ModulesForward):
    """Each step goes through buffers that stay, padded to a shape on paths that are recorded or compiled.

    Args:
        kernels: handed to the attention backend.
        shapes: sizes of the steps.
        graphs: recordings; ``graphed`` says on which paths they are used.
        sets: host buffers, as many as steps may be open at a time.
        event: see ``StepBuffers``.
    """

    def __init__(
        self,
        model: Any,
        layout: CacheLayout,
        store: KVStore,
        backend: str,
        *,
        kernels: Any,
        shapes: Shapes,
        graphs: Graphs | None = None,
        graphed: frozenset[str] = frozenset(),
        compiled: Mapping[str, Callable[..., Any]] | None = None,
        sets: int = 2,
        event: Callable[[], torch.cuda.Event] | None = None,
    ) -> None:
        self._graphs, self._graphed = graphs, graphed
        self._kernels, self._sizes = kernels, shapes
        self._logits: torch.Tensor | None = None
        super().__init__(model, layout, store, backend, compiled=compiled)
        self.buffers = StepBuffers(layout, self.batch_device, shapes, sets=sets, event=event)
        self.batch_device = torch.device("cpu")

    def take(self) -> None:
        """Others may have given the model other weights meanwhile, at other addresses."""
        super().take()
        if self._graphs is not None:
            self._graphs.clear()

    def stage(self, batch: Batch) -> Filled:
        """Choose the shape and write the batch into a host buffer."""
        shape = self._sizes.of(batch.starts, batch.lengths, len(batch.samples))
        return self.buffers.fill(batch, shape)

    def __call__(self, staged: Filled) -> torch.Tensor:
        return self._compute(self.buffers.send(staged))[: staged.samples]

    def warmup(self, progress: Progress) -> None:
        """Compile and record the shapes known in advance, largest first; nothing may be in flight."""
        shapes = list(self._sizes.warmup())
        for done, shape in enumerate(shapes):
            progress(done, len(shapes))
            self._compute(self.buffers.blank(shape))
            if done == 0:
                self._compute(self.buffers.blank(shape))  # the first pass of all was not recorded
        progress(len(shapes), len(shapes))

    def _compute(self, inputs: Inputs) -> torch.Tensor:
        """Logits [samples, vocabulary], padding included."""
        shape = inputs.shape
        if self._graphs is None or shape.path not in self._graphed:
            return self._modules(inputs)
        if self._logits is None:
            # The first pass shows what logits look like; from then on there is a place for them.
            logits = self._modules(inputs)
            rows = max(self._sizes.max_rows, len(logits))
            self._logits = torch.empty(rows, logits.shape[1], dtype=logits.dtype, device=logits.device)
            return logits
        out = self._logits[: shape.samples]

        def work() -> None:
            out.copy_(self._modules(inputs))

        self._graphs.run(shape, work)
        return out

    def _modules(self, inputs: Inputs) -> torch.Tensor:
        context = Context(inputs, self._store, self._places, self._kernels)
        return self._pass(inputs, context, inputs.shape.path)

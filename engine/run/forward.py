"""The model over one step: the seam between the runner and whatever computes logits."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

import numpy as np
import torch

from engine.core.layout import CacheLayout
from engine.run.attention import AttentionSwitch
from engine.run.attention.context import Context
from engine.run.attention.exchange import no_mask
from engine.run.batch import Batch
from engine.run.buffers import Inputs
from engine.run.facts import layer_places
from engine.run.kv_store import KVStore
from engine.run.sampler import Draw
from engine.run.shapes import DECODE, VARLEN, Shapes

Progress = Callable[[int, int], None]
"""Called with (done, total)."""


class Forward(Protocol):
    """The model over one batch: writes keys and values, returns logits [sampling rows, vocabulary].

    A forward pass holds the model from its construction on; ``close`` gives it back as it was found, ``take`` takes it
    again. One that finds the largest logits on its way leaves them in ``greedy``, and one that can draw tokens from its
    logits better than PyTorch has ``draw``, see ``Sampler.sample``. Logits and ``greedy`` hold until the next call.

    Attributes:
        batch_device: where batches are to be built.
        mode: what a step is to run in; PyTorch's inference mode where PyTorch computes.
    """

    batch_device: torch.device
    mode: Callable[[], AbstractContextManager[Any]]

    @property
    def greedy(self) -> torch.Tensor | None: ...

    @property
    def draw(self) -> Draw | None: ...

    def stage(self, batch: Batch, /) -> Any:
        """The host's preparations. What is returned has ``fill``, as a batch has, and is then given to the call."""
        ...

    def __call__(self, staged: Any, /) -> torch.Tensor: ...

    def warmup(self, progress: Progress, /) -> None: ...

    def take(self) -> None: ...

    def close(self) -> None: ...


class ModulesForward:
    """The model's own modules, with their attention exchanged for one over the paged cache during each pass.

    Between passes nothing about the model is changed. Subclasses put what they change for longer on ``_undo``.

    Args:
        backend: name of the attention backend.
        compiled: path ("varlen", "decode") -> the compiled model, called like the model, on paths that are compiled.
        shapes: sizes that steps of padded paths are rounded up to; None rounds nothing.
    """

    def __init__(
        self,
        model: Any,
        layout: CacheLayout,
        store: KVStore,
        backend: str,
        *,
        compiled: Mapping[str, Callable[..., Any]] | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        self.greedy: torch.Tensor | None = None
        self.draw: Draw | None = None
        self.mode: Callable[[], AbstractContextManager[Any]] = torch.inference_mode
        self.batch_device = store.keys[0].device
        self._model, self._store = model, store
        self._layout, self._shapes = layout, shapes
        self._compiled = compiled or {}
        self._places = layer_places(layout.groups)
        self._paged = AttentionSwitch(model, backend, apart=bool(compiled))
        self._no_mask = no_mask(self.batch_device)
        self._undo = ExitStack()
        self.take()

    def take(self) -> None:
        """Make lasting changes to the model."""

    def stage(self, batch: Batch) -> Any:
        """Pad the batch where its path is padded."""
        if self._shapes is not None:
            shape = self._shapes.of(batch.starts, batch.lengths, batch.num_samples)
            if shape.path in self._shapes.padded:
                batch.pad(shape.tokens, shape.samples)
        return batch

    def __call__(self, staged: Any) -> torch.Tensor:
        path = DECODE if (staged.lengths == 1).all() else VARLEN
        logits = self._pass(staged, Context(staged, self._store, self._places), path)
        return logits[: staged.num_samples]

    def _pass(self, step: Batch | Inputs, context: Context, path: str) -> torch.Tensor:
        """Logits [samples, vocabulary] of a step, from the model as it is or as it was compiled for ``path``."""
        model = self._compiled.get(path, self._model)
        with self._paged(), _evaluating(self._model):
            output = model(
                input_ids=step.ids.unsqueeze(0),
                attention_mask=self._no_mask,
                position_ids=step.positions.unsqueeze(0),
                use_cache=False,
                logits_to_keep=step.samples,
                paged=context,
            )
        context.check_complete()
        logits = output.logits[0]
        # A model that does not know logits_to_keep gives those of every token.
        return logits if len(logits) == len(step.samples) else logits[step.samples]

    def warmup(self, progress: Progress) -> None:
        """Compile what is compiled, by steps that mean nothing; nothing may be in flight."""
        steps = [step for path in self._compiled for step in self._warmup_steps(path)]
        for done, lengths in enumerate(steps):
            progress(done, len(steps))
            self(self.stage(self._blank(lengths)))
        progress(len(steps) or 1, len(steps) or 1)

    def _warmup_steps(self, path: str) -> list[list[int]]:
        """Query tokens of each slice in steps of a compiled path.

        Compiled for any size, two sizes are enough to learn which numbers vary, and one slice is a case of its own.
        """
        if self._shapes is not None and path in self._shapes.padded:
            found = [shape for shape in self._shapes.warmup() if shape.path == path]
            return [[1] * s.rows if path == DECODE else [s.tokens] for s in found]
        return [[1], [1] * 3, [1] * 4] if path == DECODE else [[16], [16, 1], [20, 9, 1]]

    def _blank(self, lengths: list[int]) -> Batch:
        """A batch that reads and writes the trash block only."""
        size, count = np.array(lengths), len(lengths)
        pages = -(-max(lengths) // self._layout.page_size)
        tables = [np.zeros((count, pages), np.int32) for _ in self._layout.groups]
        ids = np.zeros(sum(lengths), np.int64)
        return Batch(self._layout, self.batch_device, ids, 0 * size, size, tables, np.ones(count, bool))

    def close(self) -> None:
        """Undo the lasting changes."""
        self._undo.close()


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode inside (no dropout), and training mode afterwards for every module that was in it."""
    training = [module for module in model.modules() if module.training] if model.training else []
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True

"""Runs plans on a model: ``launch`` starts a step, ``collect`` brings its result."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from engine.core.layout import CacheLayout
from engine.core.plan import Slice, StepPlan, StepResult
from engine.run.attention import paged_attention
from engine.run.attention.context import Context
from engine.run.batch import Batch, BatchBuilder
from engine.run.facts import ModelFacts, layer_places
from engine.run.kv_store import KVStore
from engine.run.sampler import Sampled, SampleJob, Sampler


class Forward(Protocol):
    """The model over one batch: writes keys and values, returns logits [sampling rows, vocabulary].

    A forward pass holds the model from its construction on; ``close`` gives it back as it was found, ``take`` takes it
    again. One that finds the largest logits on its way leaves them in ``greedy``, see ``Sampler.sample``.
    """

    def __call__(self, batch: Batch) -> torch.Tensor: ...

    def take(self) -> None: ...

    def close(self) -> None: ...


class ModulesForward:
    """The model's own modules, with their attention exchanged for one over the paged cache."""

    def __init__(self, model: Any, layout: CacheLayout, store: KVStore, backend: str) -> None:
        self._model, self._store = model, store
        self._places, self._backend = layer_places(layout.groups), backend
        # Four dimensions mean "made already", so that no mask is built; the paged attention has its own.
        self._no_mask = torch.zeros((1, 1, 1, 1), dtype=torch.bool, device=store.keys[0].device)
        self._undo = ExitStack()
        self.take()

    def take(self) -> None:
        """Exchange the model's attention and set it to evaluation mode."""
        self._undo.enter_context(paged_attention(self._model, self._backend))
        self._undo.callback(self._model.train, self._model.training)
        self._model.eval()

    def __call__(self, batch: Batch) -> torch.Tensor:
        output = self._model(
            input_ids=batch.ids.unsqueeze(0),
            attention_mask=self._no_mask,
            position_ids=batch.positions.unsqueeze(0),
            use_cache=False,
            logits_to_keep=batch.samples,
            paged=Context(batch, self._store, self._places),
        )
        return output.logits[0]

    def close(self) -> None:
        """Give the model its own attention and mode back."""
        self._undo.close()


@dataclass(slots=True)
class Ticket:
    """A launched step. ``sampled`` is None where nothing samples or the step failed."""

    slices: list[Slice]
    job: SampleJob | None
    sampled: Sampled | None
    error: BaseException | None = None


class ModelRunner:
    """The only object that touches the model. ``launch`` and ``collect`` are called by one thread, in plan order.

    A step may be launched before the one before it is collected: the ids it sampled stay on the device, and slices with
    ``carry`` read them there.
    """

    def __init__(
        self,
        model: Any,
        layout: CacheLayout,
        facts: ModelFacts,
        *,
        backend: str = "sdpa",
        max_batch_tokens: int = 8192,
        max_requests_per_batch: int = 1024,
        seed: int = 0,
        forward: Forward | None = None,
        store: KVStore | None = None,
    ) -> None:
        """Reserve the cache and take over the model's attention until ``close``.

        Args:
            model: a decoder-only transformers model.
            layout: groups, page size, pool sizes.
            facts: from ``inspect_model``.
            backend: "eager" or "sdpa".
            max_batch_tokens, max_requests_per_batch: sizes of the largest step.
            seed: noise of requests that bring no seed.
            forward: runs the model instead of its own modules; ``store`` is then the one it writes to.

        Raises:
            ConfigError: unknown backend. MemoryError: the cache does not fit.
        """
        self.store = store or KVStore(layout, facts)
        self._forward = forward or ModulesForward(model, layout, self.store, backend)
        self._builder = BatchBuilder(layout, facts.device, max_requests_per_batch)
        self._sampler = Sampler(seed)
        self._carried = torch.zeros(max_requests_per_batch + 1, dtype=torch.int64, device=facts.device)

    def launch(self, plan: StepPlan) -> Ticket:
        """Queue copies, forward pass and sampling. An exception becomes the step's error; ``collect`` reports it."""
        slices = [piece for piece in plan.slices if piece.samples]
        try:
            with torch.inference_mode():
                self.store.run_copies(plan.copies)
                if not plan.slices:
                    return Ticket(slices, None, None)
                logits = self._forward(self._builder.build(plan, self._carried))
                if not slices:
                    return Ticket(slices, None, None)
                job = self._sampler.prepare(slices)
                sampled = self._sampler.sample(logits, job, getattr(self._forward, "greedy", None))
                self._carry(slices, sampled.tokens)
                return Ticket(slices, job, sampled)
        except Exception as error:  # whatever the model raises must reach the requests of this step
            return Ticket(slices, None, None, error)

    def _carry(self, slices: list[Slice], tokens: torch.Tensor) -> None:
        rows = [piece.seq.row for piece in slices]
        if max(rows) >= len(self._carried):
            self._carried = torch.nn.functional.pad(self._carried, (0, max(rows) + 1 - len(self._carried)))
        self._carried[torch.tensor(rows, device=tokens.device)] = tokens

    def collect(self, ticket: Ticket) -> StepResult:
        """Wait for a launched step and read its tokens."""
        if ticket.error is not None:
            return StepResult(error=ticket.error)
        sampled = ticket.sampled
        if sampled is None or ticket.job is None:
            return StepResult()
        tokens, sound = sampled.tokens.tolist(), sampled.sound.tolist()
        failures = {row: "non-finite logits" for row, fine in enumerate(sound) if not fine}
        for row in failures:
            tokens[row] = -1
        return StepResult(
            tokens=tokens,
            logprobs=None if sampled.logprobs is None else sampled.logprobs.tolist(),
            top_logprobs=_top(ticket.job, sampled),
            failures=failures,
        )

    @contextmanager
    def lend(self) -> Iterator[None]:
        """The model as it was found, for others to use while no step is in flight."""
        self._forward.close()
        try:
            yield
        finally:
            self._forward.take()

    def close(self) -> None:
        """Give the model back as it was found. The cache goes with the runner."""
        self._forward.close()


def _top(job: SampleJob, sampled: Sampled) -> list[tuple[tuple[int, float], ...]] | None:
    if not sampled.top:
        return None
    out: list[tuple[tuple[int, float], ...]] = [()] * job.count
    for row, (values, ids) in sampled.top.items():
        out[row] = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return out

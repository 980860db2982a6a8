"""Runs plans on a model: ``launch`` starts a step, ``collect`` brings its result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from engine.core.layout import CacheLayout
from engine.core.plan import Copies, Slice, StepPlan, StepResult
from engine.run.batch import BatchBuilder
from engine.run.facts import ModelFacts
from engine.run.forward import Forward, ModulesForward
from engine.run.kv_store import KVStore
from engine.run.sampler import NOT_FINITE, REASONS, Sampled, SampleJob, Sampler
from engine.run.upload import recorded_event, upload


@dataclass(slots=True)
class Prepared:
    """All a step needs from its plan; the sequences may change afterwards.

    Attributes:
        staged: what the forward pass gets, from its ``stage``; None when nothing is computed.
        carries: some of its ids are those that the step before samples.
        job: None when nothing is sampled; ``rows`` are then empty, else the sequence row of each sampling slice.
    """

    copies: Copies
    staged: Any = None
    carries: bool = False
    job: SampleJob | None = None
    rows: tuple[int, ...] = ()


@dataclass(slots=True)
class Ticket:
    """A launched step: what was sampled (None where nothing samples or the step failed), on its way to the host."""

    job: SampleJob | None = None
    sampled: Sampled | None = None
    ready: torch.cuda.Event | None = None
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
        max_requests_per_batch: int = 1024,
        seed: int = 0,
        forward: Forward | None = None,
        store: KVStore | None = None,
    ) -> None:
        """Reserve the cache and make the model ready; ``close`` gives it back.

        Args:
            model: a decoder-only transformers model.
            layout: groups, page size, pool sizes.
            facts: from ``inspect_model``.
            backend: "eager" or "sdpa".
            max_requests_per_batch: rows of the largest step.
            seed: noise of requests that bring no seed.
            forward: runs the model instead of its own modules; ``store`` is then the one it writes to.

        Raises:
            ConfigError: unknown backend. MemoryError: the cache does not fit.
        """
        self.store = store or KVStore(layout, facts)
        self._forward = forward or ModulesForward(model, layout, self.store, backend)
        self._builder = BatchBuilder(layout, self._forward.batch_device, max_requests_per_batch)
        self._sampler = Sampler(seed)
        self._carried = torch.zeros(max_requests_per_batch + 1, dtype=torch.int64, device=facts.device)
        self._newest: tuple[tuple[int, ...], torch.Tensor] = ((), self._carried[:0])

    def launch(self, plan: StepPlan) -> Ticket:
        """Queue copies, forward pass and sampling. An exception becomes the step's error; ``collect`` reports it."""
        try:
            with self._forward.mode():
                return self.execute(self.prepare(plan))
        except Exception as error:  # whatever the model raises must reach the requests of this step
            return Ticket(error=error)

    def prepare(self, plan: StepPlan) -> Prepared:
        """The host's half of a launch: read the plan and its sequences. Needs no result of an earlier step."""
        if not plan.slices:
            return Prepared(plan.copies)
        batch = self._builder.build(plan)
        carries, staged = batch.holes is not None, self._forward.stage(batch)
        slices = [piece for piece in plan.slices if piece.samples]
        if not slices:
            return Prepared(plan.copies, staged, carries)
        return Prepared(plan.copies, staged, carries, self._sampler.prepare(slices), self._rows(slices))

    def execute(self, step: Prepared) -> Ticket:
        """The device's half: only queued on devices that work on their own, done on return on others."""
        self.store.run_copies(step.copies)
        if step.staged is None:
            return Ticket()
        if step.carries:
            rows, tokens = self._newest
            self._carried[upload(rows, self._carried.device)] = tokens
        step.staged.fill(self._carried)
        logits = self._forward(step.staged)
        if step.job is None:
            return Ticket()
        sampled = self._sampler.sample(logits, step.job, self._forward.greedy, self._forward.draw)
        self._newest = step.rows, sampled.tokens
        return Ticket(step.job, *_to_host(sampled))

    def _rows(self, slices: list[Slice]) -> tuple[int, ...]:
        rows = tuple(piece.seq.row for piece in slices)
        if max(rows) >= len(self._carried):
            self._carried = torch.nn.functional.pad(self._carried, (0, max(rows) + 1 - len(self._carried)))
        return rows

    def collect(self, ticket: Ticket) -> StepResult:
        """Wait for a launched step and read its tokens."""
        if ticket.error is not None:
            return StepResult(error=ticket.error)
        sampled, job = ticket.sampled, ticket.job
        if sampled is None or job is None:
            return StepResult()
        if ticket.ready is not None:
            ticket.ready.synchronize()
        tokens = sampled.tokens.tolist()
        if sampled.faults is None:
            failures = {row: REASONS[NOT_FINITE] for row, token in enumerate(tokens) if token < 0}
        else:
            failures = {row: REASONS[fault] for row, fault in enumerate(sampled.faults.tolist()) if fault}
        for row in failures:
            tokens[row] = -1
        result = StepResult(tokens, failures=failures)
        if sampled.logprobs is not None:
            values = dict(zip(job.wanted, sampled.logprobs.tolist(), strict=True))
            result.logprobs = [values.get(row) for row in range(job.count)]
        if sampled.top:
            top = {row: zip(ids.tolist(), values.tolist(), strict=True) for row, (values, ids) in sampled.top.items()}
            result.top_logprobs = [tuple(top.get(row, ())) for row in range(job.count)]
        return result

    def warmup(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Let the forward pass prepare what it can; ``progress(done, total)`` is called along the way."""
        with torch.inference_mode():
            self._forward.warmup(progress or (lambda done, total: None))

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


def _to_host(sampled: Sampled) -> tuple[Sampled, torch.cuda.Event | None]:
    """The outcome in host memory once the event has passed, so that a later step on the device need not be waited for.

    On devices without such events ``collect`` reads the tensors where they are.
    """
    if not sampled.tokens.is_cuda:
        return sampled, None

    def fetch(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)

    host = Sampled(
        fetch(sampled.tokens),
        None if sampled.faults is None else fetch(sampled.faults),
        None if sampled.logprobs is None else fetch(sampled.logprobs),
        {row: (fetch(values), fetch(ids)) for row, (values, ids) in sampled.top.items()},
    )
    return host, recorded_event(sampled.tokens.device)

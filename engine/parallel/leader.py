"""The runner of rank 0: every step goes to the other ranks before it runs here."""

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from engine.core.counters import RankWait
from engine.core.layout import CacheLayout
from engine.core.plan import StepPlan, StepResult
from engine.core.sizing import Facts
from engine.parallel.frames import Kind
from engine.parallel.ranks import RankError, Ranks
from engine.parallel.wire import PlanEncoder
from engine.run.model_runner import Ticket


@dataclass(frozen=True, slots=True)
class Opening:
    """What the other ranks have to know before the first step."""

    page_size: int
    num_blocks: int
    host_blocks: int
    max_requests: int
    backend: str
    check: bool
    reuse: bool

    def encode(self) -> bytes:
        fields = (self.page_size, self.num_blocks, self.host_blocks, self.max_requests, self.backend, self.check)
        return json.dumps([*fields, self.reuse]).encode()

    @classmethod
    def decode(cls, body: bytes) -> "Opening":
        return cls(*json.loads(body))


def smallest(facts: Facts, ranks: Ranks) -> Facts:
    """The same facts on all ranks: the memory of the rank that has least, shared where ranks share a machine."""
    sharers = ranks.on_this_machine()
    share = sharers if facts.device == "cpu" else 1
    free, total, host, weights = ranks.least(
        [facts.free_bytes // share, facts.total_bytes, facts.host_free_bytes // sharers, -facts.weight_bytes]
    )
    return replace(facts, free_bytes=free, total_bytes=total, host_free_bytes=host, weight_bytes=-weights)


class LeadingRunner:
    """Wraps the runner of rank 0's part.

    Args:
        opening: what the others are to build.
        make: builds the runner; called once the others have been told.
        shared: its forward pass.

    Attributes:
        store: the cache of this rank.
        plan_bytes: size of the last plan as it was sent.
        waits: see ``SharedForward``.
    """

    def __init__(self, ranks: Ranks, layout: CacheLayout, opening: Opening, make: Any) -> None:
        self._ranks = ranks
        self._encoder = PlanEncoder(layout)
        self.plan_bytes = 0
        with ranks.conversation():
            ranks.send(Kind.OPEN, opening.encode())
            try:
                self._runner, self._shared = make()
            except Exception as error:
                with contextlib.suppress(RankError):
                    ranks.agree(str(error))
                raise
            try:
                ranks.agree(None)
            except RankError:
                self._runner.close()
                raise
        self.store = self._runner.store

    @property
    def waits(self) -> tuple[RankWait, ...]:
        return self._shared.waits

    def launch(self, plan: StepPlan) -> Ticket:
        """As ``ModelRunner.launch``; the other ranks begin it too."""
        try:
            self._shared.step = plan.step
            data = self._encoder.encode(plan)
            with self._ranks.conversation():
                self._ranks.send(Kind.STEP, data)
                self.plan_bytes = len(data)
                return self._runner.launch(plan)
        except Exception as error:
            return Ticket(error=error)

    def collect(self, ticket: Ticket) -> StepResult:
        """As ``ModelRunner.collect``. A failed step parts the ranks: nobody knows how far each of them came."""
        result = self._runner.collect(ticket)
        if result.error is not None:
            result.error = self._ranks.as_loss(result.error)
            own = not isinstance(result.error, RankError)
            self._ranks.leave(str(result.error) or type(result.error).__name__, own=own)
        return result

    @contextmanager
    def lend(self) -> Iterator[None]:
        """The model as it was found, on all ranks; each of them must ask for it."""
        with self._runner.lend():
            with self._ranks.conversation():
                self._ranks.send(Kind.LEND)
                self._ranks.agree(None)
            try:
                yield
            finally:
                with self._ranks.conversation():
                    self._ranks.send(Kind.RESUME)
                    self._ranks.agree(None)

    def warmup(self, progress: Any = None) -> None:
        """Nothing is prepared in advance."""
        if progress is not None:
            progress(1, 1)

    def close(self) -> None:
        """Give the model back on all ranks."""
        self._runner.close()
        if self._ranks.gone is None:
            self._ranks.send(Kind.CLOSE)

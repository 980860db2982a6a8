"""A device that is behind: a step is computed only when somebody waits for it, after the next one was launched."""

from collections import deque
from typing import Any

import torch

from engine.core.plan import StepPlan, StepResult
from engine.run.model_runner import ModelRunner, Prepared, Ticket


class LateRunner:
    """Runs plans as a GPU does: ``launch`` only reads them, the work is done later and in order.

    Attributes:
        most: how many steps were open at a time.
    """

    def __init__(self, inner: ModelRunner) -> None:
        self.inner, self.most = inner, 0
        self._queue: deque[tuple[dict[str, Any], Prepared]] = deque()

    def launch(self, plan: StepPlan) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with torch.inference_mode():
            self._queue.append((found, self.inner.prepare(plan)))
        self.most = max(self.most, len(self._queue))
        return found

    def collect(self, found: dict[str, Any]) -> StepResult:
        while "ticket" not in found:
            place, step = self._queue.popleft()
            try:
                with torch.inference_mode():
                    place["ticket"] = self.inner.execute(step)
            except Exception as error:
                place["ticket"] = Ticket(error=error)
        return self.inner.collect(found["ticket"])

    @property
    def store(self) -> Any:
        return self.inner.store

    def close(self) -> None:
        self._queue.clear()
        self.inner.close()

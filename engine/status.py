"""How a manager says where it stands, and why it refuses."""

import queue
from dataclasses import dataclass

from engine.core.config import ResolvedConfig
from engine.core.errors import RequestError


class QueueFullError(RequestError, queue.Full):
    """As many requests wait as ``max_queue_size`` allows, and none of them started in time."""


@dataclass(frozen=True, slots=True)
class ManagerStatus:
    """Where the manager stands; replaced as a whole, so one read is consistent.

    Attributes:
        state: "new", "running", "held", "draining", "stopped" or "failed".
        step: number of the last step.
        error: why it failed, else None.
        step_started: when the step in progress began, on the engine's clock; None between steps.
        config: the configuration that runs.
    """

    state: str
    step: int
    error: str | None
    step_started: float | None
    config: ResolvedConfig


def cause_of(error: BaseException) -> str:
    """An error in one line: its type and what it says."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

"""Where the engine of a session stands, in the words the screen uses. Reads only."""

from collections.abc import Callable
from typing import Any

from cbtui.configuration import config_fields
from cbtui.view.chrome import ConfigField

LONG_STEP = 1.0
"""Seconds after which a step is said to be running, and a command to have been heard that waits for its end."""
PATIENCE = 5.0
"""Seconds a step may go on after a hard stop before the engine can be given up."""


class EngineState:
    """What can be said of an engine that may not be there yet, or no more.

    Args:
        clock: the clock step times are compared with, the engine's own.

    Attributes:
        phase: "new", "loading", "failed" or "ready".
        error: why loading failed, one sentence and what to try.
        manager: the engine's manager, None while there is none.
        stopping: a stop was asked for.
        detached: the engine was given up.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.phase = "new"
        self.error: str | None = None
        self.manager: Any = None
        self.stopping = self.detached = False
        self._fields: tuple[Any, tuple[ConfigField, ...]] = (None, ())

    @property
    def status(self) -> Any:
        """The manager's status object, None when there is no manager."""
        return None if self.manager is None else self.manager.status

    @property
    def engine(self) -> str:
        """State of the engine in one word, see ``keys.Situation``."""
        if self.detached:
            return "detached"
        return "new" if self.manager is None else self.manager.status.state

    @property
    def shown_engine(self) -> str:
        """The same in the words the frame knows."""
        if self.phase == "failed" or self.detached:
            return "failed"
        return self.engine

    @property
    def shown_error(self) -> str | None:
        """Why nothing runs, None when all is well."""
        if self.phase == "failed":
            return self.error
        if self.detached:
            return "The engine was given up while a step was in progress. S starts a new one."
        return None if self.manager is None else self.manager.status.error

    @property
    def step_seconds(self) -> float:
        """How long the step in progress has been running, 0 when none is."""
        status = self.status
        if status is None or status.step_started is None:
            return 0.0
        return max(0.0, self.clock() - status.step_started)

    @property
    def last_step_seconds(self) -> float:
        """How long the last step took that left a record, 0 when none did."""
        latest = None if self.manager is None else self.manager.tap.latest
        return 0.0 if latest is None else latest.spans.total

    @property
    def hung(self) -> float:
        """Seconds a step has been going on although a stop was asked for, once patience is at its end; else 0."""
        return self.step_seconds if self.stopping and self.step_seconds > PATIENCE else 0.0

    @property
    def config_fields(self) -> tuple[ConfigField, ...]:
        """The configuration that runs, field by field."""
        config = None if self.status is None else self.status.config
        if config is not self._fields[0]:  # a configuration is replaced, never changed, and this is asked every tick
            self._fields = (config, () if config is None else config_fields(config))
        return self._fields[1]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block, 0 when unknown."""
        config = None if self.status is None else self.status.config
        return 0 if config is None else config.block_bytes.value

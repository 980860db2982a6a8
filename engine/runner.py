"""What computes an engine's plans, and how it comes and goes with the engine."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from engine.blueprint import Blueprint
from engine.core.plan import StepPlan, StepResult


class Runner(Protocol):
    """What computes a plan. ``launch`` must not block on a device, ``collect`` waits for the result."""

    def launch(self, plan: StepPlan) -> Any: ...

    def collect(self, ticket: Any) -> StepResult: ...

    def close(self) -> None: ...


class RunnerSlot:
    """The runner of an engine: built when it is needed, and again after it was taken out.

    Args:
        blueprint: what it is built from.
        given: a runner, or a function from ``Blueprint`` to one; None runs the model.

    Attributes:
        runner: the one that is there, if any.
    """

    def __init__(self, blueprint: Blueprint, given: Any) -> None:
        self.runner: Runner | None = None
        self._blueprint, self._given = blueprint, given
        self._store: Any = None

    def open(self) -> Runner:
        """The runner. Raises what building it raises when the model or the memory is not right."""
        if self.runner is None:
            given = self._given
            if given is None:
                self.runner = self._blueprint.make_runner(self._store)
                self._store = None
            else:
                self.runner = given if hasattr(given, "launch") else given(self._blueprint)
        return self.runner

    def take_out(self, *, keep_cache: bool) -> Runner | None:
        """The runner, for its closing; what its cache holds is kept for the next one if asked."""
        runner, self.runner = self.runner, None
        self._store = getattr(runner, "store", None) if keep_cache else None
        return runner

    def lent_model(self) -> AbstractContextManager[None]:
        """The model with its own attention, for others to use."""
        lend = getattr(self.runner, "lend", None)
        return contextlib.nullcontext() if lend is None else lend()

    def warmup(self, progress: Callable[[int, int], None] | None) -> None:
        """Let the runner prepare what it can in advance; ``progress(done, total)`` is called along the way."""
        prepare = getattr(self.open(), "warmup", None)
        if prepare is not None:
            prepare(progress)
        elif progress is not None:
            progress(1, 1)

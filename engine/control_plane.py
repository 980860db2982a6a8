"""The control plane of a manager: its pace, its configuration, and questions about its state, from any thread."""

from typing import Any

from engine.control import RunUntil
from engine.core.config import ResolvedConfig
from engine.core.errors import RequestError
from engine.core.observe import Keyframe, PlanPreview
from engine.core.tap import Tap
from engine.follow import Follower
from engine.status import ManagerStatus


class ControlPlane:
    """What a person or a monitor does with an engine that runs; of requests and their results it knows nothing.

    Commands take effect between two steps and are acknowledged in the record of the step that follows. While none
    follows they get a record, and a step number, of their own; those about the pace alone (``hold``, ``resume``,
    ``step_once``, ``set_rate``, ``run_until``) wait for the next record, so that a pause changes no numbers. A rate
    lets them through at once, and everything else with the next step.

    Args:
        worker: the engine's thread, see ``engine.worker.Worker``; on ranks that follow another, what stands in for it.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def hold(self) -> None:
        """Begin no further step. Commands still take effect."""
        engine = self._worker.engine
        self._worker.post("pause", "", engine.pace.hold)

    def resume(self) -> None:
        """Go on freely."""
        engine = self._worker.engine
        self._worker.post("resume", "", engine.pace.resume)

    def step_once(self, n: int = 1) -> None:
        """Hold, after ``n`` more steps."""
        if not isinstance(n, int) or n < 1:
            raise RequestError(f"step_once needs at least 1 step but got {n!r}")
        engine = self._worker.engine
        self._worker.post("step", str(n), lambda: engine.pace.allow(n))

    def set_rate(self, steps_per_second: float | None) -> None:
        """Begin at most so many steps per second; None lifts the limit. Commands do not wait for a step far off."""
        if steps_per_second is not None and not steps_per_second > 0:
            raise RequestError(f"a rate of {steps_per_second!r} steps per second is not possible; use > 0 or None")
        engine = self._worker.engine
        self._worker.post("rate", str(steps_per_second), lambda: engine.pace.set_rate(steps_per_second))

    def run_until(self, condition: RunUntil) -> None:
        """Go on until ``condition`` is met, then hold."""
        engine = self._worker.engine
        self._worker.post("resume", condition.kind, lambda: engine.pace.run_until(condition))

    def follow(self, follower: Follower | None) -> None:
        """Have a follower go along on the engine's thread, see ``engine.follow``; None ends it."""
        engine = self._worker.engine
        self._worker.post("follow", "", lambda: engine.follow_now(follower))

    def set_config(self, **fields: Any) -> int:
        """Change configuration fields while the engine runs. Returns the ticket of the command.

        Raises:
            ConfigError: unknown, out of range, or built into the engine: then it says which fields can change.
        """
        return self._worker.configure(**fields)

    def clear_prefix_cache(self) -> None:
        """Forget all cached prefixes at the next step."""
        engine = self._worker.engine
        self._worker.post("clear_prefix_cache", "", engine.clear_cache)

    @property
    def tap(self) -> Tap:
        """Step records for readers; another object after a failure that cost the engine its state."""
        return self._worker.engine.tap

    def want_preview(self, records: int = 1) -> None:
        """The next records, as many as given, will each say what the step after them would do."""
        self._worker.engine.want_preview(records)

    def preview(self, timeout: float | None = 30.0) -> PlanPreview | None:
        """What the next step would do as things are now, a dry run; None when there is nothing to do.

        Raises:
            TimeoutError: a step takes longer than ``timeout`` seconds.
        """
        scheduler = self._worker.engine.scheduler
        return self._worker.ask(lambda: scheduler.preview() if scheduler.has_work else None, timeout)

    def snapshot(self, timeout: float | None = 30.0) -> Keyframe:
        """The full visible state as of the last record; also when stopped or failed.

        Raises:
            TimeoutError: a step takes longer than ``timeout`` seconds.
        """
        return self._worker.ask(lambda: self._worker.engine.keyframe(), timeout)

    def explain(self, request_id: str, timeout: float | None = 30.0) -> Any:
        """Why a request is where it is: the scheduler's checks with their numbers, and what would change it.

        Raises:
            RequestError: there is no live request of that id.
            TimeoutError: a step takes longer than ``timeout`` seconds.
        """
        from engine.core.forecast import explain
        from engine.foresight import numbered

        def answer() -> Any:
            sequences = self._worker.engine.scheduler.sequences_of(request_id)
            if not sequences:
                raise RequestError(f"there is no live request {request_id!r}")
            return numbered(self._worker.engine, explain(self._worker.engine.scheduler, sequences[0].key))

        return self._worker.ask(answer, timeout)

    def forecast(
        self, input_ids: Any, request_id: str | None = None, *, timeout: float | None = 30.0, **wanted: Any
    ) -> Any:
        """When a request would start if it were added now, and the blocks it would take. Nothing is queued.

        Args:
            input_ids, wanted: as for ``add_request``. request_id: has no influence.

        Returns:
            An ``engine.core.rehearsal.Forecast``.

        Raises:
            TypeError, RequestError: it would be refused.
            TimeoutError: a step takes longer than ``timeout`` seconds.
        """
        from engine.foresight import foresee_request

        return foresee_request(self._worker, input_ids, timeout, wanted)

    def rehearse(self, *, timeout: float | None = 30.0, **fields: Any) -> Any:
        """What changed configuration fields would make of the next step: a dry run on a copy, nothing is changed.

        Fields that need a new engine are tried on an empty one of that shape, to which all requests come again.

        Returns:
            An ``engine.core.rehearsal.Rehearsal``.

        Raises:
            ConfigError: unknown, out of range, or more than fits.
            TimeoutError: a step takes longer than ``timeout`` seconds.
        """
        from engine.foresight import foresee_config

        return foresee_config(self._worker, timeout, fields)

    def plan_restart(self, **fields: Any) -> ResolvedConfig:
        """The configuration a new engine in place of this one would have, with some fields changed. Nothing is built.

        Raises:
            ConfigError: unknown, out of range, or more than fits into the memory that would be free then.
        """
        from engine.foresight import plan_restart

        return plan_restart(self._worker.engine, fields)

    @property
    def config(self) -> ResolvedConfig:
        """The configuration that runs."""
        return self._worker.engine.config

    @property
    def status(self) -> ManagerStatus:
        """State, step, error and configuration in one consistent object."""
        return self._worker.status

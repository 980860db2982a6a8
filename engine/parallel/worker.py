"""What stands behind a manager on ranks that follow: the surface of ``engine.worker.Worker``, without requests.

A program under ``torchrun`` is the same on all ranks. On rank 0 its manager works as ever. On the others ``start``,
``stop``, ``destroy`` and ``pause`` wait for rank 0 to do the same, and everything about requests does nothing.
"""

import atexit
import threading
import warnings
from collections.abc import Callable
from typing import Any

from engine.blueprint import Blueprint, WorkloadHints, draw
from engine.control import Pace
from engine.core.errors import EngineError
from engine.core.options import ContinuousBatchingConfig
from engine.core.request import Request
from engine.core.sizing import Facts
from engine.core.tap import Tap
from engine.parallel.attach import follower, part_of
from engine.parallel.frames import Kind
from engine.parallel.ranks import RankError, ranks_of
from engine.run.facts import text_config
from engine.status import ManagerStatus, cause_of


class Absent:
    """Stands where a manager looks for its engine. What is asked of it has no effect."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.config = blueprint.config
        self.pace = Pace()
        self.tap = Tap(1, 1)

    def cancel_now(self, request_id: str) -> str:
        return ""

    def clear_cache(self) -> str:
        return ""

    def want_preview(self, records: int = 1) -> None: ...

    def warmup(self, progress: Callable[[int, int], None] | None = None) -> None:
        if progress is not None:
            progress(1, 1)


class FollowingWorker:
    """Follows rank 0 on a daemon thread.

    Args:
        model: split; this is not its rank 0. Other arguments are those of the manager, equal on all ranks.

    Raises:
        ConfigError: as on rank 0.
        EngineError: rank 0 makes no manager within ``cpu_group_timeout``.
    """

    def __init__(
        self, model: Any, tokenizer: Any, generation_config: Any, config: Any, hints: WorkloadHints | None
    ) -> None:
        wanted = ContinuousBatchingConfig() if config is None else ContinuousBatchingConfig.from_any(config)
        part_of(model)
        ranks = ranks_of(model, wanted.cpu_group_timeout)
        assert ranks is not None
        self._ranks = ranks
        self._changed = threading.Condition()
        self._own = threading.local()
        self._measured: Facts | None = None
        self._opened = self._started = 0
        self._refused: str | None = None
        self._in_session = self._begun = self._lent = False
        self._visits = self._visitors = self._visited = 0
        self.accepting = False
        self.error: BaseException | None = None
        self._timeout = wanted.cpu_group_timeout
        self._follower = follower(model, ranks, self)
        self._thread = threading.Thread(target=self._run, name="following", daemon=True)
        self._thread.start()
        atexit.register(self._exit)
        facts = self._wait(lambda: self._measured, "make a manager")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rank 0 gives the same warnings
            eos = getattr(text_config(model), "eos_token_id", None)
            self.engine = Absent(
                draw(model, tokenizer, generation_config, wanted, hints=hints, facts=facts, model_eos=eos)
            )

    # -- the surface of a worker --------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._begun and self._in_session

    @property
    def pausing_here(self) -> bool:
        return getattr(self._own, "depth", 0) > 0

    @property
    def status(self) -> ManagerStatus:
        if self.error is not None:
            state = "failed"
        else:
            state = "running" if self.alive else "stopped" if self._begun else "new"
        error = None if self.error is None else cause_of(self.error)
        return ManagerStatus(state, self._follower.steps, error, None, self.engine.config)

    def start(self) -> None:
        """Wait until rank 0 has started. Raises EngineError when it cannot, or does not."""
        with self._changed:
            self._started += 1
        self._wait(lambda: self._opened >= self._started, "start")
        if self._refused is not None:
            raise EngineError(self._refused)
        self._begun = True

    def end(self, *, hard: bool, keep: bool) -> None:
        """Rank 0 decides when a session ends."""

    def join(self, timeout: float | None) -> bool:
        """Wait until rank 0 has ended the session; False when it has not."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._in_session, timeout)

    def give_up(self) -> None:
        """Leave the others: they notice, and end."""
        self._ranks.leave("this rank was stopped hard and did not wait for rank 0")

    def retire(self) -> None:
        """Wait until rank 0 has destroyed its manager."""
        self._thread.join(self._timeout)
        if self._thread.is_alive():
            self.give_up()
        atexit.unregister(self._exit)

    def post(self, kind: str, target: str, act: Callable[[], str | None]) -> int:
        return 0

    def configure(self, **fields: object) -> int:
        return 0

    def enqueue(self, request: Request, limit: int) -> bool:
        return False

    def may_accept(self) -> bool:
        return False

    def ask(self, question: Callable[[], Any], timeout: float | None) -> Any:
        """Raises EngineError: only rank 0 knows."""
        raise EngineError(f"rank {self._ranks.rank} follows and knows no requests; ask rank 0")

    def park(self) -> None:
        """Wait until rank 0 pauses too. Raises EngineError when it does not."""
        if not self.alive:
            raise EngineError("pause needs a running engine; call start() first")
        self._wait(lambda: self._lent and (self._visited != self._visits or self._visitors > 0), "enter pause()")
        with self._changed:
            self._visited, self._visitors = self._visits, self._visitors + 1
            self._changed.notify_all()
        self._own.depth = getattr(self._own, "depth", 0) + 1

    def unpark(self) -> None:
        self._own.depth -= 1
        with self._changed:
            self._visitors -= 1
            self._changed.notify_all()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._follower.serve(until=Kind.DESTROY)
        except BaseException as error:
            self.error = error
        with self._changed:
            self._in_session = self._lent = False
            self._changed.notify_all()

    def _exit(self) -> None:
        """A thread must not wait for rank 0 while the interpreter goes down."""
        self._ranks.leave("this rank's program ended")
        self._thread.join(1.0)

    def measured(self, facts: Facts) -> None:
        with self._changed:
            self._measured = facts
            self._changed.notify_all()

    def opened(self, trouble: str | None) -> None:
        with self._changed:
            self._refused, self._in_session = trouble, trouble is None
            self._opened += 1
            self._changed.notify_all()

    def closed(self) -> None:
        with self._changed:
            self._in_session = False
            self._changed.notify_all()

    def lend(self) -> None:
        with self._changed:
            self._visits += 1
            self._lent = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._visited == self._visits, self._timeout):
                raise RankError(f"rank {self._ranks.rank} did not enter pause() within {self._timeout:g} s")

    def resume(self) -> None:
        with self._changed:
            self._lent = False
            if not self._changed.wait_for(lambda: self._visitors == 0, self._timeout):
                raise RankError(f"rank {self._ranks.rank} did not leave pause() within {self._timeout:g} s")

    def _wait(self, condition: Callable[[], Any], what: str) -> Any:
        """The true value of ``condition``. Raises EngineError when the thread ends first, or the time is over."""
        with self._changed:
            found = self._changed.wait_for(lambda: condition() or not self._thread.is_alive(), self._timeout)
            value = condition()
        if not value:
            if self.error is not None:
                raise EngineError(cause_of(self.error)) from self.error
            late = f" within {self._timeout:g} s" if not found else "; it is gone"
            raise EngineError(f"rank 0 did not {what}{late}")
        return value

"""What the engine's thread does: it steps, waits, parks, and ends."""

import logging
import threading

from engine.core.invariants import check
from engine.core.request import FinishReason
from engine.delivery import Router
from engine.loop import Engine
from engine.outputs import never_started
from engine.status import ManagerStatus, cause_of

logger = logging.getLogger(__name__)
SOON = 0.25
"""Seconds: a command comes with a step that may begin within them, and gets a round of its own before a later one."""


class EngineThread:
    """The loop of an engine's thread, and what it shares with other threads, guarded by one condition.

    Args:
        engine: what it steps; another may take its place while no thread runs.
        results: where its outputs go.

    Attributes:
        engine: the current one.
        error: what it died of, None otherwise.
        accepting: whether requests are taken.
        status: see ``ManagerStatus``.
    """

    def __init__(self, engine: Engine, results: Router) -> None:
        self._results = results
        self._changed = threading.Condition()
        self._alive = self._started = False
        self._draining = self._hard = self._keep = False
        self._lost = self._asked = False
        self._pauses = 0
        self._parked = False
        self._room_seekers = 0
        self.engine = engine
        self.error: BaseException | None = None
        self.accepting = True
        self.status = self._status(None)

    def _run(self, engine: Engine) -> None:
        try:
            while self._round(engine):
                pass
        except BaseException as error:
            if engine.abandoned:
                engine.close()
                return
            self._die(engine, error)
        else:
            self._leave(engine)

    def _round(self, engine: Engine) -> bool:
        """One thing to do. False when the thread is to end."""
        with self._changed:
            todo = self._wait_for_work(engine)
            self._asked &= todo in ("attend", "park")  # the others carry out whatever is queued, or end it
        if todo == "end":
            return False
        if todo == "hard":
            engine.fail(FinishReason.STOPPED, "RuntimeError: hard stop before this request was complete", closes=True)
            return False
        if todo == "park":
            engine.settle()
            with engine.lent_model(), self._changed:
                self._parked = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._parked)
            return True
        if todo in ("attend", "commands"):
            (engine.attend if todo == "attend" else engine.take_commands)()
            self.status = self._status(None)
            return True
        self.status = self._status(engine.clock())
        engine.step()
        self.status = self._status(None)
        if self._room_seekers:
            with self._changed:
                self._changed.notify_all()
        return True

    def _wait_for_work(self, engine: Engine) -> str:
        """Blocks until there is something to do; what it is. Called with the lock held."""
        while True:
            if self._hard:
                return "hard"
            if self._pauses:
                return "park"
            if engine.begins_step:
                delay = engine.pace.delay(engine.clock())
                if delay <= 0:
                    return "step"
                if self._asked and delay > SOON:
                    return "commands"
                if engine.is_urgent:
                    return "attend"
                self._changed.wait(delay)
            elif engine.has_news or engine.may_step:
                return "step"
            elif self._draining and not engine.has_work:
                return "end"
            else:
                self._changed.wait()

    def _leave(self, engine: Engine) -> None:
        """The regular end of the thread."""
        hard = self._hard
        try:
            engine.close(keep_cache=self._keep)
        except Exception as error:
            logger.exception("the runner could not be closed")
            self.error = error
            self._lost = True
        text = "RuntimeError: hard stop before this request was complete" if hard else "the engine was stopped"
        self._close_results(FinishReason.STOPPED, text)

    def _die(self, engine: Engine, error: BaseException) -> None:
        """The end by an error: everything accepted fails with the cause."""
        text = f"step {engine.scheduler.step} failed: {cause_of(error)}"
        logger.error("the engine died in step %d: %s", engine.scheduler.step, cause_of(error), exc_info=error)
        with self._changed:
            self.error, self.accepting = error, False
        try:
            engine.fail(FinishReason.FAILED, text, closes=True)
            engine.close()
            self._lost = bool(check(engine.scheduler))
        except Exception:
            logger.exception("the engine's state was lost with it")
            self._lost = True
        self._close_results(FinishReason.FAILED, text)

    def _close_results(self, reason: FinishReason, text: str) -> None:
        """Nothing more comes: whoever is still owed an output gets it now, and all who wait are woken."""
        now = self.engine.clock()
        for output_id, request in self._results.live.items():
            self._results.deliver([never_started(request, output_id, reason, text, now)])
        with self._changed:
            self._alive = self._parked = False
            self.status = self._status(None)
            self._results.set_open(False)
            self._changed.notify_all()

    def _status(self, step_started: float | None) -> ManagerStatus:
        engine = self.engine
        if self.error is not None:
            state = "failed"
        elif not self._alive:
            state = "stopped" if self._started else "new"
        elif self._draining:
            state = "draining"
        else:
            state = "held" if engine.pace.held and not engine.pace.permits else "running"
        error = None if self.error is None else cause_of(self.error)
        return ManagerStatus(state, engine.scheduler.step, error, step_started, engine.config)

"""How other threads reach the engine's: they start and end it, queue, ask, and park it."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from engine.commands import PACING
from engine.core.errors import EngineError
from engine.core.request import FinishReason, Request
from engine.delivery import Router
from engine.loop import Engine
from engine.status import QueueFullError, cause_of
from engine.thread import EngineThread

logger = logging.getLogger(__name__)
T = TypeVar("T")
QUEUE_PATIENCE = 10.0
"""Seconds an add waits for room when as many requests wait as may wait."""


class Worker(EngineThread):
    """An engine on a daemon thread, and the ways to it from any other thread.

    Args:
        make_engine: builds an engine; called again when one was lost.
        results: where its outputs go.
    """

    def __init__(self, make_engine: Callable[[], Engine], results: Router) -> None:
        super().__init__(make_engine(), results)
        self._make_engine = make_engine
        self._own = threading.local()
        self._thread: threading.Thread | None = None
        self._retired = False

    @property
    def alive(self) -> bool:
        return self._alive

    @property
    def pausing_here(self) -> bool:
        """Whether the calling thread is inside a pause of its own."""
        return getattr(self._own, "depth", 0) > 0

    def start(self) -> None:
        """Start the thread, with a new engine if the old one was lost. Raises what building the runner raises."""
        if self._lost:
            self.engine, self._lost = self._make_engine(), False
        self.engine.open()
        with self._changed:
            self.accepting, self.error = True, None
            self._draining = self._hard = self._keep = False
            self._alive = self._started = True
            self._results.set_open(True)
            thread = threading.Thread(target=self._run, args=(self.engine,), name="continuous-batching", daemon=True)
            self._thread = thread
            self.engine.attend()  # what was said about the pace holds before the first step
            self.status = self._status(None)
            thread.start()

    def end(self, *, hard: bool, keep: bool) -> None:
        """Ask the thread to end: after all accepted work, or after the step in progress when ``hard``."""
        with self._changed:
            self.accepting = False
            self._draining, self._keep = True, keep and not hard
            self._hard = self._hard or hard
            engine = self.engine
            engine.post("hard_stop" if hard else "stop", "", engine.finish)
            self._asked = True
            self.status = self._status(self.status.step_started)
            self._changed.notify_all()

    def join(self, timeout: float | None) -> bool:
        """Wait for the thread; False when it still runs."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        return not self._alive

    def give_up(self) -> None:
        """Leave a thread whose step does not come back: its requests end now, and the next start builds an engine."""
        with self._changed:
            if not self._alive:
                return
            engine = self.engine
            step = engine.scheduler.step
            engine.abandoned = self._lost = True
            self.error = EngineError(f"step {step} did not come back and was given up")
            self._alive = self._parked = False
        self._results.deliver(engine.salvage(FinishReason.STOPPED, f"RuntimeError: {self.error}"))
        self._close_results(FinishReason.STOPPED, f"RuntimeError: {self.error}")

    def retire(self) -> None:
        """The end for good of a worker whose thread does not run: what was queued and never begun ends now."""
        self.accepting, self._retired = False, True
        if self._alive:
            return
        self.engine.fail(FinishReason.STOPPED, "the manager was destroyed before this request began", closes=True)
        self.engine.close()
        self._close_results(FinishReason.STOPPED, "the manager was destroyed")

    def post(self, kind: str, target: str, act: Callable[[], str | None]) -> int:
        """Queue a command and wake the thread.

        It does not wait for a step that is far off. What a follower posts on the engine's own thread does: its
        commands belong to the next step, however long that takes to come.
        """
        with self._changed:
            ticket = self.engine.post(kind, target, act)
            self._asked |= kind not in PACING
            self._changed.notify_all()
        return ticket

    def configure(self, **fields: object) -> int:
        """Queue a change of configuration fields. Raises ConfigError when it is not possible."""
        with self._changed:
            ticket = self.engine.configure(**fields)
            self._asked = True
            self._changed.notify_all()
        return ticket

    def enqueue(self, request: Request, limit: int) -> bool:
        """Queue a checked request; waits for room while ``limit`` (0: none) requests wait. False when not accepting.

        Raises:
            QueueFullError: no room in time. RequestError: the id is live. EngineError: the engine died.
        """
        with self._changed:
            self._room_seekers += 1
            try:
                room = limit == 0 or self._changed.wait_for(
                    lambda: not self.accepting or self.engine.waiting < limit, QUEUE_PATIENCE
                )
            finally:
                self._room_seekers -= 1
            if not self.may_accept():
                return False
            if not room:
                raise QueueFullError(
                    f"{limit} requests wait already (max_queue_size) and none started within {QUEUE_PATIENCE:g} s; "
                    "try again later or raise the limit"
                )
            self.engine.enqueue(request)
            self._asked = True
            self._changed.notify_all()
        return True

    def may_accept(self) -> bool:
        """Whether requests are taken; False, with a warning, after a stop.

        Raises:
            EngineError: the engine died.
        """
        remedy = "make a new manager" if self._retired else "start() begins anew"
        if self.error is not None:
            raise EngineError(
                f"the engine died and takes no requests ({cause_of(self.error)}); {remedy}"
            ) from self.error
        if not self.accepting:
            state = "destroyed" if self._retired else "stopped"
            logger.warning("the manager was %s and takes no requests; %s", state, remedy)
        return self.accepting

    def ask(self, question: Callable[[], T], timeout: float | None) -> T:
        """The answer to a question about the engine's state, asked between two records.

        Raises:
            TimeoutError: a step takes longer than ``timeout`` seconds. And whatever ``question`` raises.
        """
        answers: list[T] = []
        failures: list[BaseException] = []

        def answer() -> None:
            try:
                answers.append(question())
            except Exception as error:
                failures.append(error)
            with self._changed:
                self._changed.notify_all()

        with self._changed:
            if self._alive and not self._parked:
                self.engine.ask(answer)
                self._changed.notify_all()
                done = self._changed.wait_for(lambda: answers or failures or not self._alive or self._parked, timeout)
                if not done:
                    raise TimeoutError(f"step {self.engine.scheduler.step} has not come back within {timeout:g} s")
            if not answers and not failures:
                answer()
        if failures:
            raise failures[0]
        return answers[0]

    def park(self) -> None:
        """Wait until the thread is parked between two steps with nothing in flight. ``unpark`` must follow.

        Raises:
            EngineError: it is not running, or ended before it parked.
        """
        with self._changed:
            if not self._alive:
                raise EngineError("pause needs a running engine; call start() first")
            self._pauses += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._parked or not self._alive)
            if not self._parked:
                self._pauses -= 1
                raise EngineError("the engine ended before it could pause") from self.error
        self._own.depth = getattr(self._own, "depth", 0) + 1

    def unpark(self) -> None:
        """Let the thread go on, once all who parked it have said so."""
        self._own.depth -= 1
        with self._changed:
            self._pauses -= 1
            if self._pauses == 0:
                # Whoever pauses from now on waits until the thread has left this pause and parks anew.
                self._parked = False
            self._changed.notify_all()


def add_all(worker: Worker, requests: Sequence[Request], limit: int) -> bool:
    """Queue all of ``requests`` in order, or none: what was queued before one is refused is cancelled again."""
    queued: list[Request] = []
    try:
        for request in requests:
            if not worker.enqueue(request, limit):
                break
            queued.append(request)
    finally:
        if len(queued) < len(requests):
            for request in queued:
                engine, name = worker.engine, request.request_id
                worker.post("cancel", name, lambda engine=engine, name=name: engine.cancel_now(name))  # type: ignore[misc]
    return len(queued) == len(requests)

"""Small background threads for whatever may block, so that the event loop never waits for the engine."""

import queue
import threading
from collections.abc import Callable
from typing import Protocol

Job = Callable[[], None]


class Worker(Protocol):
    """Runs jobs one after another, off the caller's thread."""

    def submit(self, job: Job) -> None: ...

    def close(self) -> None: ...

    def join(self, seconds: float) -> None: ...


def words_of(error: BaseException) -> str:
    """What a job's error says, its name where it says nothing."""
    return str(error) or type(error).__name__


class ThreadWorker:
    """One daemon thread, started by the first job.

    ``close`` lets it end after the job in hand, without waiting; ``join`` waits for that, at most so many seconds.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Job) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class InlineWorker:
    """Runs each job at once, in the caller's thread: for tests and for frames without a terminal."""

    def submit(self, job: Job) -> None:
        job()

    def close(self) -> None:
        """There is nothing to end."""

    def join(self, seconds: float) -> None:
        """There is nothing to wait for."""

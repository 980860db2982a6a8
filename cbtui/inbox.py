"""What comes back from workers, and what is to be told to the person: taken in by the event loop, once per beat."""

import queue
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from cbtui.work import Worker, words_of


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell the person once: ``kind`` is "info" or "error"; ``unless`` is an engine state that ends it.

    With ``again`` it is told once more when the engine is there: while it loads, few look.
    """

    text: str
    kind: str = "info"
    unless: str = ""
    again: bool = False


class Inbox:
    """``post`` may be called from any thread, everything else belongs to the event loop's thread.

    Args:
        worker: answers the questions of ``ask``, one after another.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._messages: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._notices: list[Notice] = []

    def post(self, message: Callable[[], None]) -> None:
        """Has ``message`` called at the next ``take``."""
        self._messages.put(message)

    def take(self) -> bool:
        """Calls everything that was posted. True when there was something, or there is something to tell."""
        news = bool(self._notices)
        while True:
            try:
                message = self._messages.get_nowait()
            except queue.Empty:
                return news
            message()
            news = True

    def ask(
        self, question: Callable[[], Any], answer: Callable[[Any], None], failed: Callable[[], None] | None = None
    ) -> None:
        """Puts a question on the worker; ``answer`` runs at a later ``take``, a failure becomes a notice."""

        def job() -> None:
            try:
                result = question()
            except Exception as error:
                self.post(partial(self._unanswered, words_of(error), failed))
            else:
                self.post(partial(answer, result))

        self._worker.submit(job)

    def _unanswered(self, text: str, failed: Callable[[], None] | None) -> None:
        self.say(text, "error")
        if failed is not None:
            failed()

    def say(self, text: str, kind: str = "info", unless: str = "", again: bool = False) -> None:
        """Leaves a notice for the screen."""
        self._notices.append(Notice(text, kind, unless, again))

    def take_notices(self) -> list[Notice]:
        """Notices since the last call, oldest first."""
        notices, self._notices = self._notices, []
        return notices

    def close(self) -> None:
        """No further questions."""
        self._worker.close()

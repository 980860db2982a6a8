"""The beat of the monitor: how often it looks whether anything is new."""

import asyncio
from collections.abc import Callable

SETTLED = 16
"""Quiet beats in a row after which it slows down."""
SLOWER = 2
"""How many times longer a beat is then."""


class Beat:
    """Calls ``tick`` again and again on the running event loop.

    A timer of Textual wakes the event loop twice for each beat, once for the time and once for the task that waited;
    most beats find nothing, and then that was most of their cost.

    Args:
        per_second: beats. tick: says whether it found anything new. failed: is told of what it raises.
    """

    def __init__(self, per_second: float, tick: Callable[[], bool], failed: Callable[[Exception], None]) -> None:
        self._seconds, self._tick, self._failed = 1 / per_second, tick, failed
        self._loop = asyncio.get_running_loop()
        self._quiet = 0
        self._next = self._loop.call_later(self._seconds, self._strike)

    def _strike(self) -> None:
        began = self._loop.time()
        try:
            news = self._tick()
        except Exception as error:
            self._failed(error)
            return
        self._quiet = 0 if news else self._quiet + 1
        seconds = self._seconds * (SLOWER if self._quiet > SETTLED else 1)
        self._next = self._loop.call_at(began + seconds, self._strike)

    def stop(self) -> None:
        """No further beat comes."""
        self._next.cancel()

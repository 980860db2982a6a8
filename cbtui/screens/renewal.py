"""When a dialog asks again about an engine that goes on behind it."""

from collections.abc import Callable

LONGEST = 16
"""Ticks after which an answer is asked for anew at the latest."""
READABLE = 3
"""Ticks a step must have been the last one for its number to be read: then what follows it is asked about at once, and
agrees with what stands behind the dialog. Among faster steps nobody could compare them, and answers cost dry runs."""


class Renewal:
    """Counts ticks and watches steps.

    Args:
        step: number of the last step shown.
    """

    def __init__(self, step: Callable[[], int]) -> None:
        self._step, self._seen = step, step()
        self._ticks = self._moved = 0
        self._due = False

    def is_due(self, *, busy: bool) -> bool:
        """Called at each tick: whether to ask now. While ``busy`` with a question, what is due waits."""
        self._ticks += 1
        step = self._step()
        if step != self._seen:
            self._due |= self._ticks - self._moved >= READABLE
            self._seen, self._moved = step, self._ticks
        self._due |= self._ticks % LONGEST == 0
        due = self._due and not busy
        self._due &= busy
        return due

"""How loading tells what it is doing, and how it is stopped."""

import operator
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self


class LoadCancelled(Exception):
    """Raised by a progress callback to stop a load; it comes out of ``load`` unchanged and nothing half made stays."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """One report.

    Attributes:
        phase: "looking", "downloading", "converting", "reading", "moving", "compiling" or "ready".
        detail: what exactly, for a person: a file, a size, a device.
        seconds: since the load began.
        phase_seconds: since this phase began.
        fraction: share of the phase that is done, in [0, 1]; None when it cannot be known.
    """

    phase: str
    detail: str
    seconds: float
    phase_seconds: float
    fraction: float | None = None


class Reporter:
    """Counts the seconds of a load and calls the callback, which may raise ``LoadCancelled``.

    Attributes:
        beside: what goes on at the same time, told with every detail; "" for nothing.
    """

    def __init__(
        self, callback: Callable[[LoadProgress], None] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._callback = callback
        self._clock = clock
        self._began = self._phase_began = clock()
        self._phase = ""
        self._last: LoadProgress | None = None
        self.beside = ""

    @property
    def seconds(self) -> float:
        """Seconds since the load began."""
        return self._clock() - self._began

    def report(self, phase: str, detail: str = "", fraction: float | None = None) -> None:
        """Tells the callback; a new phase name starts that phase's clock."""
        now = self._clock()
        if phase != self._phase:
            self._phase, self._phase_began = phase, now
        if self.beside:
            detail = f"{detail}, {self.beside}"
        if self._callback is not None:
            self._last = LoadProgress(phase, detail, now - self._began, now - self._phase_began, fraction)
            self._callback(self._last)

    def repeat(self) -> None:
        """From any thread: tells the last report once more, with the seconds of now: the callback may stop the load."""
        last, now = self._last, self._clock()
        if self._callback is not None and last is not None:
            passed = now - self._began - last.seconds
            seconds, phase_seconds = last.seconds + passed, last.phase_seconds + passed
            self._callback(replace(last, seconds=seconds, phase_seconds=phase_seconds))


class ReportingBar:
    """Takes the place of a ``tqdm`` bar inside a library: draws nothing, hands the share that is done to a callback.

    The callback may raise ``LoadCancelled``, which stops the library in the middle of its loop.
    """

    def __init__(
        self, report: Callable[[float | None], None], iterable: Iterable[Any] | None = None, total: float | None = None
    ) -> None:
        self._report = report
        self._iterable = iterable
        if total is None and iterable is not None:
            total = operator.length_hint(iterable) or None
        self.total = total
        self.n = 0.0

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable or ():
            yield item
            self.update()

    def update(self, n: float | None = 1) -> None:
        self.n += n or 0
        self._report(min(1.0, self.n / self.total) if self.total else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing is held open."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Any other method of a bar (description, postfix, refresh, close): nothing to draw, nothing to do."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

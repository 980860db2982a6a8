"""How often a new step is drawn: as often as a share of a processor core allows."""

import time
from collections.abc import Callable

LONGEST = 1.0
"""Seconds after which a step is drawn whatever it costs."""
ROOMY, TIGHT = 0.10, 0.02
"""Shares of a core for drawing: where a core is free for the screen, and where the model computes on all of them.

The threads of a model wait for each other, so that what the screen takes from one of them is lost to all. The second
share leaves about one percent of a core to the beats, the records that are taken in without being drawn, and the dry
runs the engine is asked for: watching is to cost three percent altogether.
"""
WINDOW = 0.2
"""Seconds over which is measured what the rest of the process takes."""
A_CORE = 0.75
"""As much of a core must be free."""


class Room:
    """The share of a core that suits what the rest of the process does now: a paced engine leaves room.

    Args:
        cores: that the process may use.
        clock: seconds. whole: processor seconds of the process. own: those of the thread that draws.
    """

    def __init__(
        self,
        cores: int,
        clock: Callable[[], float] = time.monotonic,
        whole: Callable[[], float] = time.process_time,
        own: Callable[[], float] = time.thread_time,
    ) -> None:
        self._cores, self._clock, self._whole, self._own = cores, clock, whole, own
        self._since, self._others = clock(), whole() - own()
        self._share = ROOMY

    def __call__(self) -> float:
        now = self._clock()
        passed = now - self._since
        if passed >= WINDOW:
            others = self._whole() - self._own()
            free = self._cores - (others - self._others) / passed
            self._share = ROOMY if free >= A_CORE else TIGHT
            self._since, self._others = now, others
        return self._share


class Pace:
    """Says whether the next step may be drawn.

    What a drawing costs is the processor time from ``begin`` to the next ``settle``: composing and painting, and keys
    pressed meanwhile.

    Args:
        share: says how much of a core drawing may take while only steps are new.
        clock: seconds. effort: processor seconds of the thread that draws.
    """

    def __init__(
        self,
        share: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        effort: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._clock, self._effort = share, clock, effort
        self._began, self._mark, self._cost = 0.0, 0.0, 0.0
        self._open = False

    def settle(self) -> None:
        """What comes now has nothing to do with drawing."""
        if self._open:
            self._cost, self._open = self._effort() - self._mark, False

    @property
    def ready(self) -> bool:
        """Whether the last drawing is paid off."""
        passed = self._clock() - self._began
        return passed >= LONGEST or self._cost <= self._share() * passed

    def begin(self) -> None:
        """A drawing begins, or nothing that is new is found."""
        self._began, self._mark, self._open = self._clock(), self._effort(), True

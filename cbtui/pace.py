"""How often a new step is drawn: as often as a share of a processor core allows, all the monitor does included."""

import time
from collections.abc import Callable

from cbtui.cores import idle_seconds

LONGEST = 1.0
"""Seconds after which a step is drawn whatever it costs."""
ROOMY, TIGHT = 0.10, 0.015
"""Shares of a core for the monitor: where a core is free for the screen, and where the model computes on all of them.

The threads of a model wait for each other, so that what the screen takes from one of them is lost to all. The second
share leaves as much to the records and dry runs that the engine makes for a watcher, and to what its threads lose while
they wait for the interpreter: watching is to cost three percent altogether.
"""
MOMENT, WINDOW = 0.1, 0.2
"""Seconds over which is measured what the rest of the process takes: before a core is found taken, and before it is
found free again. The first frames of a burst of work would cost it most.
"""
A_CORE = 0.75
"""As much of a core must be free."""
EAGER = 0.5
"""Cores that the rest of the process takes where it would take more if it got more, or may: then what it does not take
must be idle and not another program's. A paced engine takes less and loses nothing.
"""


class Room:
    """The share of a core that suits what the rest of the process does now: a paced engine leaves room.

    Args:
        cores: that the process may use.
        clock: seconds. whole: processor seconds of the process. own: those of the thread that draws.
        idle: seconds for which the machine's processors had nothing to do, all of them together.
    """

    def __init__(
        self,
        cores: int,
        clock: Callable[[], float] = time.monotonic,
        whole: Callable[[], float] = time.process_time,
        own: Callable[[], float] = time.thread_time,
        idle: Callable[[], float] = idle_seconds,
    ) -> None:
        self._cores, self._clock, self._whole, self._own, self._idle = cores, clock, whole, own, idle
        self._since, self._others, self._idled = clock(), whole() - own(), idle()
        self._share = ROOMY

    def __call__(self) -> float:
        now = self._clock()
        passed = now - self._since
        if passed >= MOMENT:
            others, idled = self._whole() - self._own(), self._idle()
            taken, idle = (others - self._others) / passed, (idled - self._idled) / passed
            free = min(self._cores - taken, idle) if taken > EAGER else self._cores - taken
            share = ROOMY if free >= A_CORE else TIGHT
            if share <= self._share or passed >= WINDOW:
                self._share, self._since, self._others, self._idled = share, now, others, idled
        return self._share


class Pace:
    """Says whether the next step may be drawn.

    Each drawing is paid off by the time after it, and with it all else that the thread does until the next: painting,
    keys, records that are taken in, beats that find nothing.

    Args:
        share: says how much of a core the thread may take while only steps are new.
        clock: seconds. effort: processor seconds of the thread that draws.
    """

    def __init__(
        self,
        share: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        effort: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._clock, self._effort = share, clock, effort
        self._began = self._mark = 0.0

    @property
    def ready(self) -> bool:
        """Whether the last drawing is paid off."""
        return self.soon(0.0)

    def soon(self, seconds: float) -> bool:
        """Whether the last drawing will be paid off in so many seconds, when nothing else is done meanwhile."""
        passed = self._clock() - self._began + seconds
        return passed >= LONGEST or self._effort() - self._mark <= self._share() * passed

    def begin(self) -> None:
        """A drawing begins, or nothing that is new is found."""
        self._began, self._mark = self._clock(), self._effort()

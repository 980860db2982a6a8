"""How often a new step is drawn: as often as a share of a processor core allows."""

import os
import time
from collections.abc import Callable

import psutil

LONGEST = 1.0
"""Seconds after which a step is drawn whatever it costs."""
ROOMY, TIGHT = 0.10, 0.02
"""Shares of a core for drawing: where the model leaves one to the screen, and where both must share.

The second leaves about one percent of a core to the beats, the records that are taken in without being drawn, and the
dry runs the engine is asked for: watching is to cost three percent altogether.
"""


def usual_share() -> float:
    """The share of a core that suits this machine.

    With up to two cores the model computes on all of them, and its threads wait for each other: what the screen takes
    from one of them is lost to all.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ROOMY if min(psutil.cpu_count(logical=False) or usable, usable) > 2 else TIGHT


class Pace:
    """Says whether the next step may be drawn.

    What a drawing costs is the processor time from ``begin`` to the next ``settle``: composing and painting, and keys
    pressed meanwhile.

    Args:
        share: of a core that drawing may take while only steps are new.
        clock: seconds. effort: processor seconds of the thread that draws.
    """

    def __init__(
        self,
        share: float,
        clock: Callable[[], float] = time.monotonic,
        effort: Callable[[], float] = time.thread_time,
    ) -> None:
        self.share, self._clock, self._effort = share, clock, effort
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
        return passed >= LONGEST or self._cost <= self.share * passed

    def begin(self) -> None:
        """A drawing begins, or nothing that is new is found."""
        self._began, self._mark, self._open = self._clock(), self._effort(), True

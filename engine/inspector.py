"""When the engine's invariants are checked, and what was found: the lamp of a monitor."""

from collections.abc import Callable

from engine.core.invariants import check
from engine.core.scheduler import Scheduler

SAMPLED_STEPS = 64
"""Steps from one sampled check to the next, at least."""
SAMPLED_SHARE = 100
"""A sampled check comes when the engine has spent so many times the seconds of the last one on other things."""


class Inspector:
    """Decides after which steps everything is counted anew, see ``engine.core.invariants``.

    ``mode`` is "off", "sampled" (while somebody watches: every 64th step, and never more than a hundredth of the time)
    or "every" (each step, watched or not). A check decides nothing and changes nothing.

    Args:
        mode: see above; may be replaced between two steps.
        clock: seconds, monotonic.
    """

    def __init__(self, mode: str, clock: Callable[[], float]) -> None:
        self.mode = mode
        self._clock = clock
        self._next_step = 0
        self._next_time = 0.0

    def after_step(self, scheduler: Scheduler, *, watched: bool, wanted: bool = False) -> tuple[str, ...] | None:
        """One sentence for everything that is broken, empty when all is well, None when it was not looked at.

        Args:
            scheduler: between two steps.
            watched: somebody reads the records.
            wanted: look in any case.
        """
        if not (wanted or self.mode == "every" or (self.mode == "sampled" and watched and self._is_due(scheduler))):
            return None
        began = self._clock()
        broken = tuple(check(scheduler))
        ended = self._clock()
        self._next_step = scheduler.step + SAMPLED_STEPS
        self._next_time = ended + SAMPLED_SHARE * (ended - began)
        return broken

    def _is_due(self, scheduler: Scheduler) -> bool:
        return scheduler.step >= self._next_step and self._clock() >= self._next_time

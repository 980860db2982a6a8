"""The lamp of the engine's invariants over time: after which steps they were checked, and what was broken."""

from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from cbtui.text import clean
from engine.core.observe import StepRecord


class Lamp(NamedTuple):
    """The last check of the engine's invariants: after which step, and a sentence for each that was broken."""

    step: int
    broken: tuple[str, ...]


class Checks:
    """Checks of kept steps, oldest first."""

    def __init__(self) -> None:
        self._steps = array("q")
        self._broken: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def take(self, record: StepRecord) -> tuple[str, ...]:
        """Looks at the next record. Returns what is broken after it, empty when all is well or nobody looked."""
        if record.invariants is None:
            return ()
        self._steps.append(record.step)
        if record.invariants:
            self._broken[record.step] = tuple(map(clean, record.invariants))
        return self._broken.get(record.step, ())

    def lamp(self, step: int) -> Lamp | None:
        """The last check up to a step, None when there was none that is still kept."""
        place = bisect_right(self._steps, step)
        if not place:
            return None
        return Lamp(self._steps[place - 1], self._broken.get(self._steps[place - 1], ()))

    def forget(self, oldest: int) -> None:
        """Drop what belongs to steps before ``oldest``, but for the last check before it."""
        del self._steps[: max(0, bisect_left(self._steps, oldest) - 1)]
        for step in [step for step in self._broken if not self._steps or step < self._steps[0]]:
            del self._broken[step]

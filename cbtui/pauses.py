"""The time a person held the engine: no request can be faster than somebody lets it be, so latencies leave it out.

And when the pace was changed: what came before does not count for what the engine does now.
"""

import math
from bisect import bisect_left, bisect_right

from engine.core.observe import StepRecord

HOLDS = {"pause": True, "step": True, "resume": False, "stop": False, "hard_stop": False}
"""Command -> whether the engine is held after it."""


class Pauses:
    """Stretches of engine time between two records in which the engine was held; seconds on the engine's clock.

    Attributes:
        held: whether it is held after the last record.
    """

    def __init__(self) -> None:
        self.held = False
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._sums: list[float] = [0.0]
        self._last: float | None = None
        self._changes: list[float] = []

    def take(self, record: StepRecord) -> None:
        """Looks at the next record.

        Not every hold is a command: a follower holds the engine too, and only the record after it tells.
        """
        if (self.held or record.was_held) and self._last is not None and record.time > self._last:
            self._starts.append(self._last)
            self._ends.append(record.time)
            self._sums.append(self._sums[-1] + record.time - self._last)
        self._last = record.time + record.spans.total
        for ack in record.commands:
            if ack.accepted:
                self.held = HOLDS.get(ack.kind, self.held)
                if ack.kind == "rate":
                    self._changes.append(record.time)

    def begin(self, time: float) -> None:
        """Records begin anew at a time: what happened before it is not known."""
        self._last = time

    def last_end(self, time: float) -> float:
        """When the last pause before a time, or at it, was over; minus infinity when there was none."""
        place = bisect_right(self._ends, time)
        return self._ends[place - 1] if place else -math.inf

    def last_change(self, time: float = math.inf) -> float:
        """When steps went another pace for the last time before a time, or at it; minus infinity when they did not."""
        place = bisect_right(self._changes, time)
        return self._changes[place - 1] if place else -math.inf

    def between(self, start: float, end: float) -> float:
        """Seconds of ``start`` … ``end`` in which the engine was held."""
        if end <= start or not self._starts:
            return 0.0
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first >= last:
            return 0.0
        total = self._sums[last] - self._sums[first]
        return total - max(0.0, start - self._starts[first]) - max(0.0, self._ends[last - 1] - end)

"""Numbers per kept step, for graphs and rates."""

import math
import sys
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PAUSE = 30.0
"""Seconds between two steps that are a pause and not a pace."""

ENOUGH = 0.5
"""Seconds that are worth a rate. Over fewer of them, and few steps, it is a matter of chance."""
ENOUGH_STEPS = 16
"""Steps that are worth a rate in whatever time."""

SERIES = ("tokens", "budget", "used", "cached", "host", "queue", "running", "prefill", "output", "out", "back")


class Stretch(NamedTuple):
    """The steps ``first`` … ``last`` with the seconds they took and the output tokens they gave.

    ``steps`` counts those that computed something: commands alone have a number too.
    """

    first: int
    last: int
    seconds: float
    tokens: int
    steps: int


@dataclass(slots=True)
class Series:
    """Numbers per step, column by column; -1 where a step was missed. ``first`` is the step of index 0."""

    first: int = 0
    time: array = field(default_factory=lambda: array("d"))
    columns: dict[str, array] = field(default_factory=lambda: {name: array("i") for name in SERIES})

    def __len__(self) -> int:
        return len(self.time)

    @property
    def last(self) -> int:
        return self.first + len(self.time) - 1

    @property
    def size(self) -> int:
        """Bytes it takes, with what it grew in advance."""
        return sum(map(sys.getsizeof, (self.time, *self.columns.values())))

    def append(self, step: int, time: float, values: dict[str, int]) -> None:
        if not self.time:
            self.first = step
        gap = min(step - self.first - len(self.time), 100_000)
        if gap > 0:
            self.time.extend([time] * gap)
            for column in self.columns.values():
                column.extend([-1] * gap)
            self.first = step - len(self.time)
        self.time.append(time)
        for name, column in self.columns.items():
            column.append(values.get(name, -1))

    def extend(self, times: Sequence[float], values: Mapping[str, int | Sequence[int]]) -> None:
        """The steps right after the last one.

        Args:
            times: of each step. values: by name, of each step or the same for all; 0 where a name is missing.
        """
        count = len(times)
        self.time.extend(times)
        for name, column in self.columns.items():
            value = values.get(name, 0)
            column.extend([value] * count if isinstance(value, int) else value)

    def trim(self, first: int) -> None:
        """Forget everything before step ``first``."""
        count = min(first - self.first, len(self.time))
        if count > 0:
            del self.time[:count]
            for column in self.columns.values():
                del column[:count]
            self.first += count

    def __getitem__(self, name: str) -> array:
        return self.columns[name]

    def at(self, name: str, step: int) -> int:
        """The value at a step, -1 when there is none."""
        index = step - self.first
        return self.columns[name][index] if 0 <= index < len(self.time) else -1

    def stretch(self, step: int | None, window: float, since: float = -math.inf) -> Stretch | None:
        """What happened in the ``window`` seconds up to the start of a step, at least in one step.

        What began before ``since`` (seconds) is left out.

        None where too little is known, or the step came after a pause.
        """
        last = len(self.time) - 1 if step is None else min(len(self.time) - 1, step - self.first)
        if last < 1:
            return None
        earliest, first, end = bisect_left(self.time, since), last - 1, self.time[last]
        while first > earliest and end - self.time[first - 1] <= window:
            first -= 1
        seconds = end - self.time[first]
        few = seconds < ENOUGH and last - first < ENOUGH_STEPS
        if first < earliest or seconds <= 0 or few or end - self.time[last - 1] >= PAUSE:
            return None
        made = self.columns["output"][first:last]
        tokens = sum(made) + made.count(-1)  # steps that were missed stand for nothing
        steps = last - first - self.columns["tokens"][first:last].count(0)
        return Stretch(self.first + first, self.first + last - 1, seconds, tokens, steps)

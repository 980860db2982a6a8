"""The line of sequences that hold no row: fresh ones, dropped ones to compute again, and those parked on the host."""

import heapq
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from engine.core.request import Sequence


def _key(seq: Sequence) -> int:
    return seq.key


class WaitingLine:
    """All sequences without a row in order of arrival, whatever brought them here.

    Fresh ones only ever join at the end. Preempted ones are few and take their old place by key. Joining, leaving and
    reading the head cost the same with ten waiting as with ten thousand.

    Attributes:
        fresh: never admitted.
        dropped: admitted once, cache dropped; sorted by key.
        parked: blocks in the host pool; sorted by key.
        version: grows with every change.
    """

    def __init__(self) -> None:
        self.fresh: OrderedDict[int, Sequence] = OrderedDict()
        self.dropped: list[Sequence] = []
        self.parked: list[Sequence] = []
        self.version = 0

    def __len__(self) -> int:
        return len(self.fresh) + len(self.dropped) + len(self.parked)

    def __iter__(self) -> Iterator[Sequence]:
        if not self.dropped and not self.parked:
            return iter(self.fresh.values())
        return heapq.merge(self.fresh.values(), self.dropped, self.parked, key=_key)

    def __contains__(self, seq: object) -> bool:
        if not isinstance(seq, Sequence):
            return False
        return seq.key in self.fresh or seq in self.dropped or seq in self.parked

    def waiting(self) -> Iterator[Sequence]:
        """Those that wait for blocks and a row with nothing on the host, in order."""
        if not self.dropped:
            return iter(self.fresh.values())
        return heapq.merge(self.fresh.values(), self.dropped, key=_key)

    def head(self, count: int) -> list[Sequence]:
        """The first ``count`` in order, or all if there are fewer."""
        return list(islice(self, count))

    def join(self, seq: Sequence) -> None:
        """A fresh sequence goes to the end."""
        self.version += 1
        self.fresh[seq.key] = seq

    def put_back(self, seq: Sequence) -> None:
        """A preempted sequence takes its place by arrival."""
        self.version += 1
        insort(self.parked if seq.host else self.dropped, seq, key=_key)

    def leave(self, seq: Sequence) -> None:
        """A sequence that is in the line leaves it, wherever it stands."""
        self.version += 1
        if self.fresh.pop(seq.key, None) is not None:
            return
        for part in (self.dropped, self.parked):
            place = bisect_left(part, seq.key, key=_key)
            if place < len(part) and part[place] is seq:
                del part[place]
                return
        raise KeyError(seq.key)

    def unpark(self, seq: Sequence) -> None:
        """A parked sequence lost its host slots and will be computed again; its place stays."""
        self.leave(seq)
        self.put_back(seq)

"""A ring of the last records: one writer, many readers, nobody waits for anybody."""

from itertools import islice

from engine.core.observe import StepRecord


class Tap:
    """Keeps the last ``capacity`` records for readers that come and pull.

    The writer fills a slot of ``_ring`` and then moves the one number ``_written``; a reader copies and looks again. So
    it works between two threads without a lock, and a reader can neither delay nor fail the writer.

    Args:
        capacity: records kept, at least 1.
        max_bytes: rough limit on the memory of the records kept; the oldest are given up first. None is no limit.
    """

    def __init__(self, capacity: int = 4096, max_bytes: int | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; the least is 1")
        self.capacity = capacity
        self.max_bytes = max_bytes
        self._ring: list[StepRecord | None] = [None] * capacity
        self._sizes = [0] * capacity
        self._bytes = 0
        self._written = 0
        self._oldest = 0
        self._readers = 0
        self.latest: StepRecord | None = None

    @property
    def watched(self) -> bool:
        """Whether any reader is attached: whether it is worth making records at all."""
        return self._readers > 0

    @property
    def published(self) -> int:
        """Records published since the start."""
        return self._written

    @property
    def dropped(self) -> int:
        """Records that are not kept any more."""
        return self._oldest

    def __len__(self) -> int:
        return self._written - self._oldest

    def attach(self) -> None:
        """A reader begins. Each ``attach`` needs its own ``detach``."""
        self._readers += 1

    def detach(self) -> None:
        """A reader ends."""
        self._readers = max(0, self._readers - 1)

    def publish(self, record: StepRecord) -> None:
        """Add the record of the step just done. Steps only go up. Called by the writer alone."""
        place = self._written % self.capacity
        if self._written - self._oldest == self.capacity:
            self._give_up_oldest()
        if self.max_bytes is not None:
            size = rough_size(record)
            while self._bytes + size > self.max_bytes and self._oldest < self._written:
                self._give_up_oldest()
            self._sizes[place] = size
            self._bytes += size
        self._ring[place] = record
        self._written += 1
        self.latest = record

    def read(self, after_step: int) -> tuple[tuple[StepRecord, ...], bool]:
        """Records of the steps after ``after_step``, oldest first.

        Returns:
            The records, and whether steps are missing, before the first of them or in between: because they are not
            kept any more, or because nobody watched. Then start again from a keyframe.
        """
        written, oldest = self._written, self._oldest
        copied = [self._ring[i % self.capacity] for i in range(self._first(after_step, oldest, written), written)]
        # While this was copied the writer may have put newer records over the first ones: going back from the last,
        # what does not continue downwards is none of what was asked for.
        kept: list[StepRecord] = []
        for record in reversed(copied):
            if record is None or (kept and record.step >= kept[-1].step) or record.step <= after_step:
                break
            kept.append(record)
        kept.reverse()
        expected = max(after_step, 0) + 1
        missed = len(kept) < len(copied) or bool(kept and kept[-1].step - expected + 1 != len(kept))
        return tuple(kept), missed

    def last(self, count: int) -> tuple[StepRecord, ...]:
        """The last ``count`` records kept, oldest first."""
        records, _ = self.read(-1)
        return tuple(islice(records, max(0, len(records) - count), None))

    def _first(self, after_step: int, oldest: int, written: int) -> int:
        """Number of the first record after ``after_step``; they are sorted by step, so this halves its way there."""
        low, high = oldest, written
        while low < high:
            middle = (low + high) // 2
            record = self._ring[middle % self.capacity]
            if record is not None and record.step > after_step:
                high = middle
            else:
                low = middle + 1
        return low

    def _give_up_oldest(self) -> None:
        place = self._oldest % self.capacity
        self._bytes -= self._sizes[place]
        self._sizes[place] = 0
        self._oldest += 1
        self._ring[place] = None


def rough_size(record: StepRecord) -> int:
    """Bytes a record takes, by the number of its parts. Within a factor of two; meant for limits only."""
    prompts = sum([len(info.prompt_ids) for info in record.requests])
    return (
        1000
        + 80 * (len(record.slices) + len(record.decisions) + len(record.outputs))
        + 100 * len(record.deltas)
        + 160 * len(record.changes)
        + 8 * len(record.waiting)
        + 400 * len(record.requests)
        + 36 * prompts
    )

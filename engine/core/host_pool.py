"""Slots of the host (CPU) memory that offloaded blocks wait in."""

Owner = tuple[int, int, int]
"""(sequence key, layer group, table index)."""


class HostPool:
    """Slots 0 … ``num_slots - 1``.

    A slot read back by a step may not be written before that step is applied, because one step makes its copies to the
    host before its copies from it. Such slots *drain*: they belong to nobody and cannot be taken yet.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.free = list(range(num_slots - 1, -1, -1))
        self.owners: list[Owner | None] = [None] * num_slots
        self.draining: list[tuple[int, int]] = []

    @property
    def used(self) -> int:
        """Slots that hold a block of somebody."""
        return self.num_slots - len(self.free) - len(self.draining)

    def take(self, owner: Owner) -> int:
        slot = self.free.pop()
        self.owners[slot] = owner
        return slot

    def give_back(self, slot: int) -> None:
        """The contents are not wanted any more."""
        self.owners[slot] = None
        self.free.append(slot)

    def drain(self, slot: int, step: int) -> None:
        """The contents are read back by ``step``; the slot is free once that step is applied."""
        self.owners[slot] = None
        self.draining.append((step, slot))

    def settle(self, step: int) -> None:
        """Steps up to ``step`` are applied."""
        if self.draining:
            self.free.extend(slot for at, slot in self.draining if at <= step)
            self.draining = [entry for entry in self.draining if entry[0] > step]

    def copy(self) -> "HostPool":
        twin = HostPool(0)
        twin.num_slots = self.num_slots
        twin.free, twin.owners, twin.draining = self.free[:], self.owners[:], self.draining[:]
        return twin

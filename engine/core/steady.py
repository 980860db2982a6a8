"""Steps that only go on: the same sequences decode as in the step before."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from engine.core.observe import Decision, SequenceChange, SliceRecord, Verdict
from engine.core.packed import Grown, Packed
from engine.core.plan import StepPlan

DECODE = Verdict.DECODE
_BLOCKS = [f.name for f in fields(Decision)].index("b")
"""Where a decode says how many blocks it took."""


class Steady:
    """What the first of such steps recorded, and how many steps went on from there.

    In each of them every sequence got one token and nobody came, ended, waited or lost anything, so that what is
    recorded of sequences grows by one from step to step. Blocks may be taken, published and given back.

    Attributes:
        by: steps since the first.
    """

    def __init__(
        self, slices: Packed[SliceRecord], decisions: Packed[Decision], changes: Packed[SequenceChange]
    ) -> None:
        self._slices, self._decisions, self._changes = slices, decisions, changes
        self._starts = [(key, past) for key, _, _, past in slices.rows]
        self._keys = [key for key, _ in self._starts]
        self.by = 0

    @classmethod
    def begin(
        cls, slices: Packed[SliceRecord], decisions: Packed[Decision], changes: Packed[SequenceChange],
        outputs: Iterable[tuple[int, Any, Any]],
    ) -> "Steady | None":  # fmt: skip
        """The first such step, None when this is none. See ``goes_on``."""
        keys = [row[0] for row in slices.rows]
        if keys != [row[0] for row in outputs] or keys != [row[0] for row in changes.rows]:
            return None
        if any(verdict is not DECODE or block for _, verdict, _, block in decisions.rows):
            return None
        return cls(slices, decisions, changes)

    def goes_on(self, plan: StepPlan, touched: Iterable[int], outputs: Iterable[tuple[int, Any, Any]]) -> bool:
        """Whether a step goes on from the last one, which it then is.

        Args:
            plan: of the step: decodes of all who were visited, nothing else.
            touched: keys of the sequences whose values changed. outputs: rows of ``TokenOutput``.
        """
        by, keys = self.by + 1, self._keys
        if [(s.seq.key, s.start - by) for s in plan.slices] != self._starts or list(touched) != keys:
            return False
        if [key for key, _, _ in outputs] != keys:
            return False
        self.by = by
        return True

    @property
    def slices(self) -> Packed[SliceRecord]:
        return Grown(self._slices, self.by)

    def decisions(self, made: Sequence[Decision]) -> Packed[Decision]:
        """Those of the step, ``made`` is what they are: they differ in the blocks that were taken, if any."""
        taken = tuple([decision.b for decision in made])
        return Grown(self._decisions, self.by, (_BLOCKS, taken) if any(taken) else ())

    @property
    def changes(self) -> Packed[SequenceChange]:
        return Grown(self._changes, self.by)

"""The plan while it is being made."""

from engine.core.layout import SchedulerSettings
from engine.core.observe import Decision, Verdict
from engine.core.plan import Copies, Slice, StepPlan
from engine.core.request import Sequence

PLANNED = frozenset((Verdict.DECODE, Verdict.CHUNK, Verdict.ADMIT, Verdict.RESTORE))
"""Verdicts that come with a slice."""


class Walk:
    """What one walk over the candidates has decided so far.

    Attributes:
        left: query tokens left in this step.
        decisions: key -> decision, in the order first visited. A victim's decision replaces the one it had.
        disturbed: somebody not visited yet has a decision already: it was preempted, or is held for that.
        pinned: sequences whose blocks are read by a copy of this step, so they may not be preempted in it.
        prompt_tokens: planned tokens that are not decode steps.
        limit: what left the first candidate out.
    """

    def __init__(self, step: int, settings: SchedulerSettings) -> None:
        self.step = step
        self.left = settings.max_batch_tokens
        self.rows = settings.max_requests_per_batch
        self.slices: list[Slice] = []
        self.decisions: dict[int, Decision] = {}
        self.offload: list[tuple[int, int]] = []
        self.restore: list[tuple[int, int]] = []
        self.fork: list[tuple[int, int]] = []
        self.disturbed = False
        self.pinned: set[int] = set()
        self.prompt_tokens = 0
        self.limit = ""

    def wait(self, seq: Sequence, verdict: Verdict, a: int, b: int, limit: str = "") -> None:
        """A candidate is left out of this step."""
        self.decisions[seq.key] = Decision(seq.key, verdict, a, b)
        self.limit = self.limit or limit

    def is_planned(self, seq: Sequence) -> bool:
        decision = self.decisions.get(seq.key)
        return decision is not None and decision.verdict in PLANNED

    def finish(self) -> StepPlan:
        copies = Copies(tuple(self.offload), tuple(self.restore), tuple(self.fork))
        return StepPlan(self.step, tuple(self.slices), copies, tuple(self.decisions.values()), self.limit)

"""A stand-in for the machine that runs the model: the ghost cache, the fake model, and faults on demand."""

from dataclasses import dataclass, field

from engine.core.layout import CacheLayout
from engine.core.observe import Keyframe, Verdict
from engine.core.plan import Slice, StepPlan, StepResult
from tests.core.fake_model import draw, logprob
from tests.core.ghost import GhostKV


@dataclass
class Faults:
    """What goes wrong with the next launch.

    Attributes:
        rows: numbers of sampling slices whose logits are not finite.
        step: "" for no fault, or when the whole step fails: "before copies", "after copies", or "offload": the next
            step that copies to the host fails before it does.
    """

    rows: set[int] = field(default_factory=set)
    step: str = ""


@dataclass
class Launched:
    """A step that ran but whose result the scheduler has not seen. ``needs``: blocks each of its sequences touches."""

    plan: StepPlan
    result: StepResult
    needs: dict[int, set[int]]


class Device:
    """Runs plans in order, at once; the result is what the scheduler gets to see later.

    Attributes:
        doomed: keys of sequences that failed here, which the scheduler may not know yet. Steps planned in between read
            rubbish for them, and nobody will look at what they give.
    """

    def __init__(self, layout: CacheLayout) -> None:
        self.ghost = GhostKV(layout)
        self.doomed: set[int] = set()
        self.faults = Faults()

    def run(self, plan: StepPlan, frame: Keyframe, owners: dict[int, int]) -> StepResult:
        """Args: ``frame`` is the scheduler's state after the plan; ``owners`` counts table entries per block."""
        self._note_lost(plan)
        waits = self.faults.step == "offload" and not plan.copies.offload
        if self.faults.step and not waits:
            result = self._fail(plan)
        else:
            free = [b for b, v in enumerate(frame.blocks) if b and v.state == "free"]
            sealed = {b for b, v in enumerate(frame.blocks) if v.published}
            self.ghost.run(plan, free, sealed, owners, self.doomed)
            result = StepResult(logprobs=[])
        self._sample(plan, result)
        self.faults.rows = set()
        self.faults.step = self.faults.step if waits else ""
        return result

    def _fail(self, plan: StepPlan) -> StepResult:
        """The step dies before or after its copies. What it should have read back from the host is lost either way."""
        if self.faults.step == "after copies":
            self.ghost.run_copies(plan.copies)
        else:
            self.ghost.lost |= {slot for _, slot in plan.copies.offload}
        for slot, _ in plan.copies.restore:
            self.ghost.host.pop(slot, None)
        for s in plan.slices:
            self._doom(plan, s)
        return StepResult(error=RuntimeError("the device failed"))

    def _note_lost(self, plan: StepPlan) -> None:
        """Who reads back what a failed step did not write is doomed, until it starts anew."""
        self.doomed -= {d.seq for d in plan.decisions if d.verdict is Verdict.ADMIT}
        rubbish = {block for slot, block in plan.copies.restore if slot in self.ghost.lost}
        self.doomed |= {s.seq.key for s in plan.slices if any(rubbish & set(table) for table in s.seq.tables)}

    def _sample(self, plan: StepPlan, result: StepResult) -> None:
        for row, s in enumerate(s for s in plan.slices if s.samples):
            token = draw(s.seq.request, s.seq.child, s.position, self.ghost.query_token(s))
            if result.error is not None or s.seq.key in self.doomed:
                token = -1
            if row in self.faults.rows and result.error is None:
                result.failures[row] = "non-finite logits"
                self._doom(plan, s)
                token = -1
            self.ghost.sampled[s.seq.key] = token
            if result.error is None:
                result.tokens.append(token)
                assert result.logprobs is not None
                result.logprobs.append(logprob(token, s.position))

    def _doom(self, plan: StepPlan, s: Slice) -> None:
        self.ghost.spoil(plan, s.seq)
        self.doomed.add(s.seq.key)


def touched(layout: CacheLayout, s: Slice) -> set[int]:
    """Blocks a slice reads or writes."""
    blocks: set[int] = set()
    for group in layout.groups:
        first = 0 if group.window is None else max(0, s.start - group.window + 1)
        last = (s.start + s.length - 1) // layout.page_size
        blocks |= set(s.seq.tables[group.index][first // layout.page_size : last + 1])
    return blocks

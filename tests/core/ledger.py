"""What all steps so far add up to, counted from plans alone, and the promises that span several steps."""

from collections import Counter

from engine.core.counters import Counters
from engine.core.layout import CacheLayout
from engine.core.observe import BlockDelta, BlockOp, Decision, Verdict
from engine.core.plan import Slice, StepPlan, StepResult
from tests.core.plan_oracle import RUNS, Before, PoolReplay, slots_free


def is_decode(s: Slice) -> bool:
    """One generated token that gives the next one."""
    return s.samples and s.length == 1 and s.start >= s.seq.num_prompt


class Ledger:
    """Counts along. ``plan`` is called after every plan, ``applied`` after every apply; both return broken promises."""

    def __init__(self, layout: CacheLayout) -> None:
        self.layout = layout
        self.totals: Counter[str] = Counter()
        self.reached: dict[int, int] = {}
        self.recomputed: Counter[int] = Counter()
        self.held: Counter[int] = Counter()
        self.overtaken: tuple[int, int] = (-1, 0)

    def plan(self, plan: StepPlan, before: Before, deltas: tuple[BlockDelta, ...] | None, line: list[int]) -> list[str]:
        """Args: ``line`` has the keys that stood in the line before the plan, in order."""
        self._count(plan, before)
        broken = self._order(plan, before, line)
        broken += self._held(plan)
        for d in plan.decisions:
            if d.verdict is Verdict.RECOMPUTE and deltas is not None:
                broken += self._no_room(d, plan, before, deltas)
        if deltas is not None:
            broken += self._margin(plan, before, deltas)
        return broken

    def applied(self, plan: StepPlan, result: StepResult) -> None:
        if result.error is None:
            self.totals["prompt_tokens"] += sum(s.length for s in plan.slices if not is_decode(s))

    def check(self, now: Counters, recomputed: dict[int, int]) -> list[str]:
        """The scheduler's totals against the sums of its plans."""
        wrong = [
            f"counter {name} is {getattr(now, name)}, the plans say {self.totals[name]}"
            for name in (
                "prompt_tokens", "lookups", "offloads", "restores", "offloaded_blocks", "restored_blocks"
            )
            if getattr(now, name) != self.totals[name]
        ]  # fmt: skip
        if now.preemptions < self.totals["preemptions"]:
            wrong.append(f"counter preemptions is {now.preemptions}, the plans say {self.totals['preemptions']}")
        return wrong + [
            f"sequence {key} computed {self.recomputed[key]} tokens again, it says {told}"
            for key, told in recomputed.items()
            if told != self.recomputed[key]
        ]

    def _count(self, plan: StepPlan, before: Before) -> None:
        verdicts = Counter(d.verdict for d in plan.decisions)
        totals = self.totals
        if before.settings.allow_block_sharing:
            totals["lookups"] += verdicts[Verdict.ADMIT]
        totals["offloads"] += verdicts[Verdict.OFFLOAD]
        totals["restores"] += verdicts[Verdict.RESTORE]
        totals["preemptions"] += verdicts[Verdict.RECOMPUTE]
        totals["offloaded_blocks"] += len(plan.copies.offload)
        totals["restored_blocks"] += len(plan.copies.restore)
        for s in plan.slices:
            end = s.start + s.length
            reached = self.reached.get(s.seq.key, 0)
            self.recomputed[s.seq.key] += max(0, min(reached, end) - s.start)
            self.reached[s.seq.key] = max(reached, end)

    def _order(self, plan: StepPlan, before: Before, line: list[int]) -> list[str]:
        """Nobody overtakes the head of the line, or only as often in a row as the settings allow."""
        entered = {d.seq for d in plan.decisions if d.verdict in (Verdict.ADMIT, Verdict.RESTORE)}
        left = [key for key in line if key not in entered]
        if not left or not any(key > left[0] for key in entered):
            self.overtaken = (left[0] if left else -1, 0)
            return []
        head = left[0]
        times = self.overtaken[1] + 1 if self.overtaken[0] == head else 1
        self.overtaken = (head, times)
        limit = before.settings.skip_limit
        return [f"sequence {head} was overtaken {times} times in a row, the limit is {limit}"] if times > limit else []

    def _held(self, plan: StepPlan) -> list[str]:
        """A decode is held back no more often in a row than the cap, and the count it is told is right."""
        broken = []
        for d in plan.decisions:
            if d.verdict is Verdict.WAIT_PREFILL:
                self.held[d.seq] += 1
                if d.a != self.held[d.seq] or d.a > d.b:
                    broken.append(f"{d}: held back {self.held[d.seq]} times in a row")
            elif d.verdict in RUNS or d.verdict in (Verdict.OFFLOAD, Verdict.RECOMPUTE):
                self.held.pop(d.seq, None)
        return broken

    def _no_room(self, d: Decision, plan: StepPlan, before: Before, deltas: tuple[BlockDelta, ...]) -> list[str]:
        """A cache is dropped only when the host has no room for it."""
        earlier = next(i for i, e in enumerate(deltas) if e.op is BlockOp.RELEASE and e.seq == d.seq)
        room = slots_free(before) - sum(1 for e in deltas[:earlier] if e.op is BlockOp.OFFLOAD)
        held = sum(1 for e in deltas if e.op is BlockOp.RELEASE and e.seq == d.seq)
        return [f"{d}: {held} blocks dropped with {room} host slots free"] if held <= room else []

    def _margin(self, plan: StepPlan, before: Before, deltas: tuple[BlockDelta, ...]) -> list[str]:
        """Newcomers leave the margin usable, unless nothing else runs."""
        broken = []
        margin = before.settings.safety_margin * self.layout.num_blocks
        others = "running" in before.place.values() or before.leaving
        for d in plan.decisions:
            if d.verdict is Verdict.ADMIT and others:
                last = max((i for i, e in enumerate(deltas) if e.seq == d.seq), default=-1)
                replay = PoolReplay(before.frame)
                replay.play(deltas[: last + 1])
                if replay.usable[-1] < margin - 1e-6:
                    broken.append(f"{d}: {replay.usable[-1]} blocks usable after it, the margin is {margin}")
            others = others or d.verdict in RUNS
        return broken

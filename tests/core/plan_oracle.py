"""What must hold for one plan: its slices, the block deltas that made room, and every number in its decisions."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from engine.core.layout import TRASH_BLOCK, CacheLayout, SchedulerSettings
from engine.core.observe import BlockDelta, BlockOp, Decision, Keyframe, PlanPreview, Verdict
from engine.core.plan import Slice, StepPlan
from tests.core.oracle import Queues, ceil_div

RUNS = frozenset({Verdict.DECODE, Verdict.CHUNK, Verdict.ADMIT, Verdict.RESTORE})
WAITS = frozenset(v for v in Verdict if v.value.startswith("wait_"))
NOW = 1 << 60
"""Later than any step, for blocks used in the plan being looked at."""
TAKES = frozenset({Verdict.OFFLOAD, Verdict.RECOMPUTE})


class PoolReplay:
    """Replays block deltas on owner counts and refuses steps that no pool could take.

    ``usable`` is the number of free and cached blocks after each delta, starting with the number before the first.
    """

    def __init__(self, frame: Keyframe) -> None:
        self.owners = {b: Counter(v.owners) for b, v in enumerate(frame.blocks)}
        self.used = {b: v.last_use for b, v in enumerate(frame.blocks)}
        self.published = {b for b, v in enumerate(frame.blocks) if v.published}
        self.usable = [sum(1 for v in frame.blocks[1:] if v.state != "owned")]
        self.broken: list[str] = []

    def play(self, deltas: Iterable[BlockDelta]) -> None:
        for delta in deltas:
            self._one(delta)
            self.usable.append(sum(1 for b, own in self.owners.items() if b and not own))

    def _one(self, d: BlockDelta) -> None:
        own = self.owners.get(d.block)
        if own is None:
            self.broken.append(f"{d}: no such block")
            return
        entry = (d.seq, d.index)
        if d.op in (BlockOp.SHARE, BlockOp.RELEASE, BlockOp.RECYCLE):
            self.used[d.block] = NOW
        if d.op is BlockOp.ALLOC:
            self._refuse(bool(own) or d.block in self.published or d.block == TRASH_BLOCK, d, "not free")
            own[entry] += 1
        elif d.op is BlockOp.SHARE:
            self._refuse(not own and d.block not in self.published, d, "neither owned nor cached")
            own[entry] += 1
        elif d.op in (BlockOp.RELEASE, BlockOp.RECYCLE):
            self._refuse(own[entry] != 1, d, "that entry does not point at it")
            own[entry] -= 1
            own += Counter()  # drops entries that fell to zero
            self.owners[d.block] = own
        elif d.op is BlockOp.PUBLISH:
            self._refuse(d.block in self.published, d, "already published")
            self.published.add(d.block)
        elif d.op is BlockOp.EVICT:
            self._refuse(d.block not in self.published, d, "not published")
            free = [b for b, o in self.owners.items() if b and not o and b not in self.published]
            self._refuse(bool(free), d, f"blocks {free} are free")
            older = [b for b in self.published if not self.owners[b] and self.used[b] < self.used[d.block]]
            self._refuse(bool(older), d, f"cached blocks {older} were used before it")
            self.published.discard(d.block)

    def _refuse(self, bad: bool, delta: BlockDelta, why: str) -> None:
        if bad:
            self.broken.append(f"{delta}: {why}")


@dataclass
class Before:
    """What was true before a plan was made."""

    frame: Keyframe
    settings: SchedulerSettings
    computed: dict[int, int]
    pending: dict[int, int]
    place: dict[int, str]
    leaving: bool
    emptied: frozenset[int]


def slots_free(before: Before) -> int:
    """Host slots that could be filled: held by nobody, and no restore in flight reads them."""
    return sum(1 for slot, owner in enumerate(before.frame.host) if owner is None and slot not in before.emptied)


def check_slices(plan: StepPlan, before: Before) -> list[str]:
    """Chunks are contiguous, within budget, sample exactly when they reach the end, and never past the limit."""
    broken: list[str] = []
    if plan.num_tokens > before.settings.max_batch_tokens:
        broken.append(f"{plan.num_tokens} tokens planned, budget {before.settings.max_batch_tokens}")
    if len(plan.slices) > before.settings.max_requests_per_batch:
        broken.append(f"{len(plan.slices)} slices, {before.settings.max_requests_per_batch} rows")
    if len({s.seq.key for s in plan.slices}) != len(plan.slices):
        broken.append("a sequence has two slices")
    for s in plan.slices:
        who = f"slice of {s.seq.output_id} [{s.start}, {s.start + s.length})"
        end = s.start + s.length
        known = len(s.seq.tokens) + int(s.carry)
        if before.place.get(s.seq.key) in ("running", "offloaded") and s.start != before.computed[s.seq.key]:
            broken.append(f"{who}: computed was {before.computed[s.seq.key]}")
        if s.length < 1 or s.start < 0 or end > known:
            broken.append(f"{who}: {known} tokens are known")
        if s.carry != bool(before.pending.get(s.seq.key, 0)):
            broken.append(f"{who}: carry {s.carry}, a token was {'' if not s.carry else 'not '}on its way")
        if s.samples != (end == known):
            broken.append(f"{who}: samples is {s.samples} with {known} tokens known")
        if s.samples and s.position != end - s.seq.num_prompt:
            broken.append(f"{who}: noise position {s.position}")
        if s.samples and s.position >= s.seq.request.max_new_tokens:
            broken.append(f"{who}: would draw token {s.position + 1} of {s.seq.request.max_new_tokens}")
        if s.seq.computed != end or s.seq.in_flight < s.length or s.seq.pending != int(s.samples):
            broken.append(
                f"{who}: left computed {s.seq.computed}, in flight {s.seq.in_flight}, pending {s.seq.pending}"
            )
        if s.seq.row < 0:
            broken.append(f"{who}: holds no row")
    return broken


def check_window_bound(layout: CacheLayout, s: Slice) -> list[str]:
    """A sliding group holds no more blocks than its window and the unsettled tokens can touch."""
    broken = []
    for group in layout.groups:
        if group.window is not None:
            held = sum(1 for b in s.seq.tables[group.index] if b != TRASH_BLOCK)
            most = ceil_div(group.window - 1 + s.seq.in_flight, layout.page_size) + 1
            if held > most:
                broken.append(f"{s.seq.output_id} holds {held} blocks of group {group.index}, window bound {most}")
    return broken


def check_decisions(
    plan: StepPlan, before: Before, replay: PoolReplay | None, deltas: tuple[BlockDelta, ...], queues: Queues
) -> list[str]:
    """One decision per visited candidate, and every number in it recomputed.

    ``replay`` has played exactly this plan's ``deltas``; None when nobody recorded them.
    """
    broken: list[str] = []
    counts = Counter(d.seq for d in plan.decisions)
    broken += [f"sequence {key} has {n} decisions" for key, n in counts.items() if n > 1]
    running = {key for key, place in before.place.items() if place == "running"}
    if not running <= set(counts):
        broken.append(f"running sequences {sorted(running - set(counts))} got no decision")
    head = min((key for key, place in before.place.items() if place != "running"), default=None)
    if head is not None and head not in counts:
        broken.append(f"the head of the line, sequence {head}, got no decision")
    slices = {s.seq.key: s for s in plan.slices}
    runs = {d.seq for d in plan.decisions if d.verdict in RUNS}
    if not set(slices) <= runs:
        broken.append(f"sequences {sorted(set(slices) - runs)} have a slice but no decision to run")
    used = 0
    for d in plan.decisions:
        s = slices.get(d.seq)
        wrong = _check_numbers(d, s, plan, before, used, deltas, replay)
        broken += [f"{d}: {w}" for w in wrong]
        used += s.length if s is not None else 0
    line = sorted(seq.key for seq in [*queues.waiting, *queues.offloaded])
    broken += [
        f"{d}: its place in the line {line} is wrong"
        for d in plan.decisions
        if d.verdict is Verdict.WAIT_ORDER and line.index(d.seq) + 1 != d.b
    ]
    live = {seq.key for members in (queues.running, queues.waiting, queues.offloaded) for seq in members}
    broken += [f"{d}: not a live sequence" for d in plan.decisions if d.seq not in live]
    return broken


def _check_numbers(
    d: Decision,
    s: Slice | None,
    plan: StepPlan,
    before: Before,
    used: int,
    deltas: tuple[BlockDelta, ...],
    replay: PoolReplay | None,
) -> list[str]:
    settings = before.settings
    wrong: list[str] = []

    def must(condition: bool, message: str) -> None:
        if not condition:
            wrong.append(message)

    verdicts = {e.seq: e.verdict for e in plan.decisions}
    taken = sum(1 for e in deltas if e.op is BlockOp.ALLOC and e.seq == d.seq)
    if d.verdict in RUNS and d.verdict is not Verdict.RESTORE:
        must(s is not None, "no slice follows")
        if s is None:
            return wrong
    if d.verdict is Verdict.DECODE and s is not None:
        must(d.a == s.start, f"its cache held {s.start} tokens")
        must(s.length == 1 and s.samples, f"a decode of {s.length} tokens")
        must(replay is None or d.b == taken, f"it took {taken} blocks")
    elif d.verdict is Verdict.CHUNK and s is not None:
        must(d.a == s.length, f"the slice has {s.length} tokens")
        must(d.b == len(s.seq.tokens) - s.start - s.length, "tokens left are wrong")
    elif d.verdict is Verdict.ADMIT and s is not None:
        must(d.a == s.start, f"the slice starts at {s.start}")
        must(replay is None or d.b == taken, f"it took {taken} blocks")
        must(before.place.get(d.seq) == "waiting", f"it was {before.place.get(d.seq)}")
    elif d.verdict is Verdict.RESTORE:
        back = {e.other for e in deltas if e.op is BlockOp.RESTORE and e.seq == d.seq}
        must(replay is None or d.a == len(back), f"{len(back)} blocks came back")
        must(before.place.get(d.seq) == "offloaded", f"it was {before.place.get(d.seq)}")
    elif d.verdict is Verdict.WAIT_TOKENS:
        must(d.a > d.b, "that would fit")
        must(d.b == settings.max_batch_tokens - used, f"{settings.max_batch_tokens - used} tokens were left")
    elif d.verdict is Verdict.WAIT_ROWS:
        must(d.a >= d.b, "a row is there")
        must(d.b == settings.max_requests_per_batch, f"there are {settings.max_requests_per_batch} rows")
    elif d.verdict is Verdict.WAIT_BLOCKS:
        must(d.a > d.b, "that would fit")
        must(replay is None or d.b in replay.usable, f"usable blocks went {replay.usable if replay else []}")
    elif d.verdict is Verdict.WAIT_MARGIN:
        exact = settings.safety_margin * (len(before.frame.blocks) - 1)
        must(d.a < d.b, "the margin holds")
        must(abs(d.b - exact) < 1, f"the margin is {exact} blocks")
        runs = any(v in RUNS for v in verdicts.values()) or "running" in before.place.values()
        must(runs or before.leaving, "nothing else runs")
    elif d.verdict is Verdict.WAIT_ORDER:
        must(d.a in verdicts and d.a != d.seq, "it waits behind somebody who was not visited")
        must(d.b >= 1, "places count from 1")
    elif d.verdict is Verdict.WAIT_IN_FLIGHT:
        must(0 < d.a < plan.step, f"this is step {plan.step}")
        must(before.pending.get(d.seq, 0) == 1 or before.computed.get(d.seq, 0) > 0, "nothing of it is in flight")
    elif d.verdict is Verdict.WAIT_PREFILL:
        must(settings.policy == "prefill_first", f"the policy is {settings.policy}")
        must(d.a < d.b or d.a <= d.b == settings.max_steps_without_decode, "the cap is passed")
        must(d.b == settings.max_steps_without_decode, f"the cap is {settings.max_steps_without_decode}")
    elif d.verdict in TAKES:
        must(d.a in verdicts and d.a != d.seq, "for somebody who was not visited")
        must(d.b >= 1, "it freed nothing")
        must(s is None, "yet it has a slice")
        must(before.place.get(d.seq) == "running", f"it was {before.place.get(d.seq)}")
        if replay is not None:
            released, recycled = _freed_by(d.seq, deltas, before)
            must(released <= d.b <= released + recycled, f"it freed {released}, and {recycled} behind its window")
    else:
        must(d.verdict in RUNS, "not a verdict of a plan")
    return wrong


def _freed_by(key: int, deltas: tuple[BlockDelta, ...], before: Before) -> tuple[int, int]:
    """Blocks whose last owner was the sequence ``key`` when it let them go, released and recycled."""
    replay = PoolReplay(before.frame)
    freed = {BlockOp.RELEASE: 0, BlockOp.RECYCLE: 0}
    for delta in deltas:
        replay.play([delta])
        if delta.op in freed and delta.seq == key and not replay.owners[delta.block]:
            freed[delta.op] += 1
    return freed[BlockOp.RELEASE], freed[BlockOp.RECYCLE]


def check_plan(
    layout: CacheLayout, plan: StepPlan, before: Before, deltas: tuple[BlockDelta, ...] | None, queues: Queues
) -> list[str]:
    """All of the above for one plan. ``deltas`` are exactly those of this plan; None when nobody recorded them."""
    broken: list[str] = []
    replay = None
    if deltas is not None:
        replay = PoolReplay(before.frame)
        replay.play(deltas)
        broken += replay.broken
    broken += check_slices(plan, before)
    broken += check_decisions(plan, before, replay, deltas or (), queues)
    for s in plan.slices:
        broken += check_window_bound(layout, s)
    early = {slot for _, slot in plan.copies.offload} & before.emptied
    if early:
        broken.append(f"host slots {sorted(early)} filled again before their restore was applied")
    if not before.settings.allow_block_sharing:
        broken += [f"{d} with sharing off" for d in deltas or () if d.op in (BlockOp.SHARE, BlockOp.PUBLISH)]
    return broken


def check_preview(preview: PlanPreview, plan: StepPlan) -> list[str]:
    """The preview promised what was then planned."""
    promised = [(s.seq, s.query, s.past) for s in preview.slices]
    planned = [(s.seq.key, s.length, s.start) for s in plan.slices]
    told = (promised, preview.decisions, preview.num_tokens, preview.limit)
    made = (planned, plan.decisions, plan.num_tokens, plan.limit)
    return [] if told == made else [f"the preview said {told}, the plan is {made}"]

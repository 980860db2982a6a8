"""Drives a ``Scheduler`` the way the engine's loop does, and checks everything after every move.

No threads, no clock, no tensors. ``depth`` is how many launched steps may wait for their ``apply`` while the next one
is planned: 0 is the synchronous loop, 1 the asynchronous one.
"""

from collections import deque
from dataclasses import replace

from engine.core.cache import PagedCache
from engine.core.errors import RequestError
from engine.core.fold import fold
from engine.core.forecast import explain
from engine.core.invariants import check
from engine.core.layout import TRASH_BLOCK, CacheLayout, SchedulerSettings
from engine.core.observe import Counters, Keyframe, StepRecord, Verdict
from engine.core.plan import StepPlan
from engine.core.request import FinishReason, Request, RequestStatus, Sequence
from engine.core.scheduler import Scheduler
from tests.core import oracle, plan_oracle
from tests.core.device import Device, Launched, touched
from tests.core.fake_model import text_of
from tests.core.ledger import Ledger
from tests.core.outcomes import check_counters, check_delivery, check_output
from tests.core.records import differences, digest

ENDS = frozenset({Verdict.FINISHED, Verdict.CANCELLED, Verdict.FAILED})


class Violation(AssertionError):
    """Something that must hold did not."""


class Harness:
    """A scheduler, its ghost cache, and what they owe to whom.

    Attributes:
        live: accepted sequences without a terminal outcome; ended: key -> reason of those that have one.
        digests: one text per plan, equal in two runs exactly when the plans are.
        steps: plans made so far.
    """

    def __init__(
        self,
        layout: CacheLayout,
        settings: SchedulerSettings | None = None,
        *,
        depth: int = 0,
        watched: bool = False,
        cache: PagedCache | None = None,
    ) -> None:
        self.layout = layout
        self.settings = settings or SchedulerSettings()
        self.depth = depth
        self.scheduler = Scheduler(layout, self.settings, text_of=text_of, cache=cache)
        self.device = Device(layout)
        self.faults = self.device.faults
        self.ledger = Ledger(layout)
        self.launched: deque[Launched] = deque()
        self.live: dict[int, Sequence] = {}
        self.ended: dict[int, FinishReason] = {}
        self.sequences: list[Sequence] = []
        self.leaving: set[int] = set()
        self.unsafe: set[int] = set()
        self.digests: list[str] = []
        self.records: list[StepRecord] = []
        self.view: Keyframe | None = None
        self.base: Keyframe = self.scheduler.keyframe(0, 0.0)
        self.unfolded: list[StepRecord] = []
        self.told: set[int] = set()
        self.by_key: dict[int, Sequence] = {}
        self.now = 0.0
        self.steps = 0
        self.rows_cap = self.settings.max_requests_per_batch
        self.last_counters = Counters()
        self.idle_steps = 0
        self._frame: Keyframe | None = None
        if watched:
            self.attach()

    # ---- moves -------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> list[Sequence]:
        """Adds a request; an empty list when it was refused, which must be justified."""
        before = self._seen()
        self._moved()
        try:
            added = self.scheduler.add(request)
        except RequestError as error:
            self._refused(request, error, before)
            return []
        self._must(len(added) == request.num_return_sequences, f"{len(added)} sequences for {request}")
        for child, seq in enumerate(added):
            self._must(seq.child == child and seq.request is request, f"sequence {seq.key} is not child {child}")
            self._must(seq.key not in self.live and seq.key not in self.ended, f"key {seq.key} was given out before")
            self.live[seq.key] = seq
            self.sequences.append(seq)
            self.by_key[seq.key] = seq
        self.check()
        return added

    def cancel(self, request_id: str) -> None:
        targets = [seq for seq in self.live.values() if seq.request.request_id == request_id]
        in_flight = {s.seq.key for step in self.launched for s in step.plan.slices}
        returned = self.scheduler.cancel(request_id, self.now)
        self._moved()
        self._must(set(returned) <= set(targets), f"cancel of {request_id} returned {[s.key for s in returned]}")
        self._end([seq for seq in returned if seq.status >= RequestStatus.FINISHED])
        for seq in targets:
            if seq.key in self.live:
                self._must(seq.key in in_flight, f"sequence {seq.key} is not in flight, yet its cancel waits")
                self.leaving.add(seq.key)
        self.check()

    def configure(self, **changes: object) -> None:
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        self.scheduler.configure(self.settings)
        self._moved()
        self.rows_cap = max(self.rows_cap, self.settings.max_requests_per_batch)
        self.check()

    def clear_cache(self) -> None:
        cached = sum(1 for v in self._seen().blocks if v.published)
        cleared = self.scheduler.clear_prefix_cache()
        self._moved()
        self._must(0 <= cleared <= cached, f"{cleared} blocks cleared of {cached} published")
        frame = self._seen()
        self._must(not any(v.published for v in frame.blocks), "a block is still published after clearing")
        self.check()

    def fail_all(self) -> None:
        """The engine dies: what was launched will never be applied."""
        self.launched.clear()
        ended = self.scheduler.fail_all(FinishReason.FAILED, "the device is gone", self.now)
        self._moved()
        self._end(ended)
        self._must(not self.live, f"sequences {sorted(self.live)} got no outcome when the engine failed")
        self.check()

    def attach(self) -> None:
        """Start to watch. A keyframe fits the records after it only when no half-told step lies between."""
        if self.view is not None:
            self._publish(None)
            return
        self.scheduler.observe(True)
        self._moved()
        self.view = self.base = self._seen()
        self.unfolded = []

    def detach(self) -> None:
        self.scheduler.observe(False)
        self._moved()
        self.view = None

    def step(self) -> bool:
        """One turn of the loop. False when there was nothing to do."""
        if not self.scheduler.has_work and not self.launched:
            self._must(not self.live, f"no work, yet {sorted(self.live)} have no outcome")
            return False
        before = self._before()
        line = sorted(key for key, place in before.place.items() if place != "running")
        log = self.scheduler.cache.pool.log
        seen = len(log or ())
        if self.steps % 16 == 5 and self.live:
            explain(self.scheduler, min(self.live))
            self._all_well([f"explain changed it: {text}" for text in differences(before.frame, self.frame())])
        preview = self.scheduler.preview() if self.steps % 3 == 0 else None
        plan = self.scheduler.plan()
        self._moved()
        self.steps += 1
        if preview is not None:
            self._all_well(plan_oracle.check_preview(preview, plan))
        self.digests.append(digest(plan))
        deltas = None if log is None else tuple(log[seen:])
        self._all_well(plan_oracle.check_plan(self.layout, plan, before, deltas, self.queues()))
        self._all_well(self.ledger.plan(plan, before, deltas, line))
        progress = bool(plan.slices) or bool(self.launched)
        if plan.slices or plan.copies:
            self.launched.append(self._launch(plan))
        if self.steps % 4 == 1:
            self.check(theirs=False)
        if len(self.launched) > self.depth or (self.launched and not plan.slices):
            self._apply(self.launched.popleft())
        self._publish(plan.step)
        self.check()
        # A step that only copies is progress too, but two of them in a row with nothing in flight are a standstill.
        self.idle_steps = 0 if progress else self.idle_steps + 1
        self._must(self.idle_steps < 2, f"two steps without a slice; decisions {plan.decisions}")
        return True

    def drain(self, limit: int | None = None) -> int:
        """Steps until idle; fails when that takes more steps than the outstanding work can explain."""
        owed = sum(len(s.tokens) + s.request.max_new_tokens for s in self.live.values())
        limit = limit or 40 + 12 * owed
        for count in range(limit):
            if not self.step():
                self.check_idle()
                return count
        raise Violation(f"not idle after {limit} steps with {owed} tokens owed; live {sorted(self.live)}")

    # ---- one step ----------------------------------------------------------------------------------------------

    def _before(self) -> plan_oracle.Before:
        queues = self.queues()
        place = {seq.key: "running" for seq in queues.running}
        place |= {seq.key: "waiting" for seq in queues.waiting} | {seq.key: "offloaded" for seq in queues.offloaded}
        return plan_oracle.Before(
            frame=self._seen(),
            settings=self.settings,
            computed={k: s.computed for k, s in self.live.items()},
            pending={k: s.pending for k, s in self.live.items()},
            place=place,
            leaving=bool(self.scheduler.leaving),
            emptied=frozenset(slot for step in self.launched for slot, _ in step.plan.copies.restore),
        )

    def _launch(self, plan: StepPlan) -> Launched:
        result = self.device.run(plan, self._seen(), oracle.owner_counts(self.live.values()))
        return Launched(plan, result, {s.seq.key: touched(self.layout, s) for s in plan.slices})

    def _apply(self, step: Launched) -> None:
        self.now += 1.0
        sampling = [s for s in step.plan.slices if s.samples]
        failing = {sampling[row].seq.key for row in step.result.failures}
        if step.result.error is not None:
            failing = {s.seq.key for s in step.plan.slices}
        failing &= set(self.live)
        cancelled = set(self.leaving)
        holders = {s.key: s for s in (*self.live.values(), *self.scheduler.leaving)}
        alone = {b for b, n in oracle.owner_counts(holders.values()).items() if n == 1}
        for key in failing if step.result.error is None else ():
            self.unsafe |= {b for table in self.live[key].tables for b in table if b != TRASH_BLOCK} & alone
        known = {k: len(s.tokens) for k, s in self.live.items()}
        outcome = self.scheduler.apply(step.plan, step.result, self.now)
        self.ledger.applied(step.plan, step.result)
        self._moved()
        self._end(outcome.ended)
        ended = {seq.key for seq in outcome.ended}
        self._must(failing <= ended, f"sequences {sorted(failing - ended)} survived a step that failed for them")
        for key in failing - cancelled:
            self._must(self.ended[key] is FinishReason.FAILED, f"sequence {key} ended as {self.ended[key]}")
        self._must(self.leaving <= ended | set(self.ended), f"cancelled {sorted(self.leaving)} outlived a step")
        self.leaving -= ended
        quiet = failing | {k for k in ended if self.ended[k] is FinishReason.CANCELLED}
        self._all_well(check_delivery(step.plan, step.result, outcome, known, quiet))

    def flush(self) -> None:
        """A record of commands alone, as an engine makes that idles or is held."""
        if self.view is not None:
            self._publish(None)
            self.check()

    def _publish(self, step: int | None) -> None:
        if self.view is None:
            return
        record = self.scheduler.take_events().record(self.now)
        self._moved()
        self._must(record.step == step if step is not None else record.step > self.view.step, "record step is wrong")
        self.records = [*self.records[-20:], record]
        self.view = fold(self.view, record)
        self._all_well(differences(self.view, self._seen()))
        self.unfolded.append(record)
        if len(self.unfolded) == 8:
            self._must(fold(self.base, *self.unfolded) == self.view, "folding many records at once differs")
            self.base, self.unfolded = self.view, []
        for d in record.decisions:
            if d.verdict in ENDS and d.seq in self.by_key:
                self._must(d.seq not in self.told, f"{d}: its end was told before")
                self._must(d.a == self.by_key[d.seq].num_output, f"{d}: it has {self.by_key[d.seq].num_output} tokens")
                self.told.add(d.seq)

    # ---- checks ------------------------------------------------------------------------------------------------

    def check(self, theirs: bool = True) -> None:
        """All invariants, counted here, and the scheduler's own opinion unless ``theirs`` is off to save time."""
        frame, live, queues = self._seen(), list(self.live.values()), self.queues()
        emptied = {slot for step in self.launched for slot, _ in step.plan.copies.restore}
        # Who left while a step that uses it is in flight keeps row and blocks until that step is applied.
        leaving = list(self.scheduler.leaving)
        holders = [*live, *(s for s in leaving if s.key in self.ended)]
        broken = oracle.check_blocks(self.layout, frame, holders)
        broken += oracle.check_host(self.layout, frame, holders, emptied)
        broken += oracle.check_queues(queues, live, leaving, frame, self.rows_cap)
        broken += [f"sequence {s.key} leaves, but is not in flight" for s in leaving if not self._in_flight(s.key)]
        for seq in live:
            broken += oracle.check_sequence(self.layout, seq, frame)
            broken += check_output(seq, None)
        for step in self.launched:
            for key, blocks in step.needs.items():
                gone = [b for b in blocks if key not in {owner for owner, _ in frame.blocks[b].owners}]
                if gone:
                    broken.append(f"step {step.plan.step} in flight uses blocks {gone}, which sequence {key} let go")
        for block in sorted(self.unsafe):
            if frame.blocks[block].state == "cached":
                broken.append(f"block {block} of a failed sequence is cached")
            if frame.blocks[block].state == "free":
                self.unsafe.discard(block)
        broken += check_counters(self.last_counters, frame.counters, self.sequences, self.ended)
        broken += self.ledger.check(frame.counters, {s.key: s.recomputed for s in live})
        self.last_counters = frame.counters
        if theirs:
            broken += [f"invariants.check: {text}" for text in check(self.scheduler)]
        self._all_well(broken)

    def check_idle(self) -> None:
        """Nothing to do: all blocks are free or cached, the host pool is empty, every request has its outcome."""
        frame = self._seen()
        owned = [b for b, v in enumerate(frame.blocks) if v.state == "owned"]
        self._must(not owned, f"blocks {owned} are owned at idle")
        self._must(not any(frame.host), f"host slots {frame.host} are held at idle")
        self._must(not self.live, f"sequences {sorted(self.live)} have no outcome at idle")
        self._must(self.scheduler.num_in_flight == 0, f"{self.scheduler.num_in_flight} steps in flight at idle")
        self._must(len(self.ended) == len(self.sequences), "an accepted sequence is in no list")
        for seq in self.sequences:
            self._all_well(check_output(seq, self.ended[seq.key]))

    def _refused(self, request: Request, error: RequestError, before: Keyframe) -> None:
        """A refusal has a reason that can be checked, and changes nothing but the count of refusals."""
        alive = any(s.request.request_id == request.request_id for s in self.live.values())
        length = len(request.prompt_ids) + request.max_new_tokens
        needs = oracle.most_blocks(self.layout, length, self.settings.max_batch_tokens)
        cap = self.settings.max_length
        too_long = cap is not None and length > cap
        self._must(
            alive or too_long or needs > self.layout.num_blocks,
            f"{request} refused ({error}), yet {needs} of {self.layout.num_blocks} blocks suffice",
        )
        after = self._seen()
        shown = [{k for k, v in frame.sequences.items() if v.change.place != "done"} for frame in (before, after)]
        self._must(shown[0] == shown[1], "a refused request left a sequence behind")
        self._must(after.blocks == before.blocks and after.waiting == before.waiting, "a refusal changed the pool")
        self.check()

    # ---- small things ------------------------------------------------------------------------------------------

    def frame(self) -> Keyframe:
        """The live keyframe, right now."""
        return self.scheduler.keyframe(self.scheduler.step, self.now)

    def _seen(self) -> Keyframe:
        """The live keyframe, made once between two of the moves above."""
        if self._frame is None:
            self._frame = self.frame()
        return self._frame

    def _moved(self) -> None:
        self._frame = None

    def queues(self) -> oracle.Queues:
        s = self.scheduler
        return oracle.Queues(_members(s.running), _members(s.waiting), _members(s.offloaded))

    def _in_flight(self, key: int) -> bool:
        return any(key in step.needs for step in self.launched)

    def _end(self, sequences: list[Sequence]) -> None:
        for seq in sequences:
            self._must(seq.key in self.live, f"sequence {seq.key} ended twice, or was never accepted")
            self._must(seq.status >= RequestStatus.FINISHED, f"sequence {seq.key} ended with status {seq.status}")
            self._must(seq.finish_reason is not None, f"sequence {seq.key} ended without a reason")
            self._must(seq.status != RequestStatus.FAILED or bool(seq.error), f"sequence {seq.key} failed silently")
            self.ended[seq.key] = seq.finish_reason  # type: ignore[assignment]
            self.leaving.discard(seq.key)
            del self.live[seq.key]

    def _must(self, condition: bool, message: str) -> None:
        if not condition:
            raise Violation(f"after {self.steps} steps: {message}")

    def _all_well(self, broken: list[str]) -> None:
        self._must(not broken, "; ".join(broken))


def _members(view: object) -> list[Sequence]:
    return list(view.values()) if isinstance(view, dict) else list(view)  # type: ignore[call-overload]

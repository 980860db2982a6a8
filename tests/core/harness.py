"""Drives a ``Scheduler`` the way the engine's loop does, and checks everything after every move.

No threads, no clock, no tensors. ``depth`` is how many launched steps may wait for their ``apply`` while the next one
is planned: 0 is the synchronous loop, 1 the asynchronous one.
"""

from dataclasses import replace

from engine.core.errors import RequestError
from engine.core.forecast import explain
from engine.core.layout import TRASH_BLOCK
from engine.core.plan import StepPlan
from engine.core.request import FinishReason, Request, RequestStatus, Sequence
from tests.core import oracle, plan_oracle
from tests.core.device import Launched, touched
from tests.core.outcomes import check_delivery
from tests.core.records import differences, digest
from tests.core.watched import Violation, Watched


class Harness(Watched):
    """The moves; after each of them everything is checked, see ``Watched``."""

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

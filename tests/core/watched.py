"""A scheduler under watch: what is remembered of it, and everything that must hold after each move."""

from collections import deque

from engine.core.cache import PagedCache
from engine.core.counters import Counters
from engine.core.errors import RequestError
from engine.core.fold import fold
from engine.core.invariants import check
from engine.core.layout import CacheLayout, SchedulerSettings
from engine.core.observe import Keyframe, StepRecord, Verdict
from engine.core.request import FinishReason, Request, RequestStatus, Sequence
from engine.core.scheduler import Scheduler
from tests.core import oracle
from tests.core.device import Device, Launched
from tests.core.fake_model import text_of
from tests.core.ledger import Ledger
from tests.core.outcomes import check_counters, check_output
from tests.core.records import differences

ENDS = frozenset({Verdict.FINISHED, Verdict.CANCELLED, Verdict.FAILED})


class Violation(AssertionError):
    """Something that must hold did not."""


class Watched:
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

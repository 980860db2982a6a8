"""The pace of the engine: held or not, how many steps are allowed, how fast, and until when."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.core.counters import Counters
from engine.core.errors import ConfigError
from engine.core.observe import StepRecord
from engine.core.request import RequestStatus
from engine.core.scheduler import Scheduler

LATE = 0.25
"""Share of the time between two steps by which one may be late without shifting those after it."""
CONDITIONS = ("preemption", "offload", "first_token", "end", "free_below", "invariant", "step")


@dataclass(frozen=True, slots=True)
class RunUntil:
    """A moment to run to.

    Attributes:
        kind: "preemption" (a sequence loses its cache), "offload" (one moves to the host pool), "first_token" or "end"
            (of ``request_id``, or of any request), "free_below" (fewer than ``value`` free blocks), "invariant" (the
            bookkeeping is broken), "step" (step number ``value`` is done).
        value: the number ``free_below`` and ``step`` compare with.
        request_id: whose first token or end; None for anybody's.
    """

    kind: str
    value: int | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in CONDITIONS:
            raise ConfigError(f"run until {self.kind!r} is not known; use one of {', '.join(CONDITIONS)}")
        if self.kind in ("free_below", "step") and (not isinstance(self.value, int) or self.value < 1):
            raise ConfigError(f"run until {self.kind} needs a value of at least 1 but has {self.value!r}")

    def reached(self, scheduler: Scheduler, record: StepRecord, before: Counters) -> str | None:
        """What happened in the step just recorded, in words, or None while the moment has not come.

        Args:
            scheduler: after the step.
            record: of the step. What is broken after it is told by ``broken_words``, whatever the engine runs until.
            before: counters as they were before the step.
        """
        after = record.counters
        if self.kind == "preemption" and after.preemptions > before.preemptions:
            return f"a preemption in step {record.step}"
        if self.kind == "offload" and after.offloads > before.offloads:
            return f"an offload in step {record.step}"
        if self.kind == "free_below" and self.value is not None and len(scheduler.cache.pool.free) < self.value:
            return f"{len(scheduler.cache.pool.free)} free blocks after step {record.step}"
        if self.kind == "step" and self.value is not None and record.step >= self.value:
            return f"step {record.step}"
        if self.kind in ("first_token", "end"):
            return self._met_by_a_sequence(scheduler, record)
        return None

    def _met_by_a_sequence(self, scheduler: Scheduler, record: StepRecord) -> str | None:
        ended = {change.seq for change in record.changes if change.status >= RequestStatus.FINISHED}
        if self.kind == "end" and ended and self.request_id is None:
            return f"the end of sequence {min(ended)} in step {record.step}"
        if self.kind == "end" and self.request_id is not None and not scheduler.sequences_of(self.request_id):
            return f"the end of {self.request_id}" if ended else None
        if self.kind == "first_token":
            wanted = None
            if self.request_id is not None:
                wanted = {seq.key for seq in scheduler.sequences_of(self.request_id)}
            for change in record.changes:
                produced = {output.seq for output in record.outputs}
                fresh = change.seq in produced and change.first_token_time >= record.time
                if fresh and (wanted is None or change.seq in wanted):
                    return f"the first token of sequence {change.seq} in step {record.step}"
        return None


def broken_words(step: int, broken: Sequence[str]) -> str:
    """Invariants that do not hold any more after a step, in one sentence."""
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    return f"after step {step} the bookkeeping is broken: {broken[0]}{more}"


class Pace:
    """Whether and when the next step may begin. Only the thread that runs the engine changes it.

    Attributes:
        held: no step begins except those in ``permits``.
        permits: steps allowed while held.
        rate: steps per second at most, None for no limit.
        until: hold when this is reached.
        released: it was told to go on, by whatever command, since somebody looked and set it back.
    """

    def __init__(self) -> None:
        self.held = False
        self.permits = 0
        self.rate: float | None = None
        self.until: RunUntil | None = None
        self.released = False
        self._beat = -math.inf

    def hold(self) -> None:
        self.held, self.permits, self.until = True, 0, None

    def resume(self) -> None:
        self.held, self.permits, self.until, self.released = False, 0, None, True

    def allow(self, steps: int) -> None:
        """Hold, after ``steps`` more steps."""
        self.held, self.until, self.released = True, None, True
        self.permits += steps

    def run_until(self, condition: RunUntil) -> None:
        self.held, self.permits, self.until, self.released = False, 0, condition, True

    def set_rate(self, rate: float | None) -> None:
        """Steps per second from the last step on: a new rate alone lets no step begin before its time."""
        self.rate = rate

    @property
    def open(self) -> bool:
        """Whether a step may begin as far as holding goes."""
        return not self.held or self.permits > 0

    def delay(self, now: float) -> float:
        """Seconds until the next step may begin; 0 for at once."""
        return 0.0 if self.rate is None else max(0.0, self._beat + 1.0 / self.rate - now)

    def began(self, now: float) -> None:
        """A step began."""
        if self.held:
            self.permits -= 1
        # A step that began a little late does not shift the beat, else the rate would never be reached. Any other
        # starts a new one: what was missed is not made up for, and after an early step the next one waits in full.
        period = 0.0 if self.rate is None else 1.0 / self.rate
        late = now - (self._beat + period)
        self._beat = now - late if 0.0 <= late <= LATE * period else now

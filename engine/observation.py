"""What an engine tells of its rounds: the records of the steps, what is broken, and where it was to hold."""

import itertools
import logging
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

from engine.control import Pace, broken_words
from engine.core.counters import Counters, Spans
from engine.core.errors import InvariantError
from engine.core.observe import CommandAck, StepRecord
from engine.core.scheduler import Scheduler
from engine.core.tap import Tap
from engine.inspector import Inspector

logger = logging.getLogger(__name__)


class Observer:
    """Makes a record of each round while somebody watches, and looks at what it says. Used by the stepping thread.

    Args:
        scheduler: the one observed.
        tap: where the records go.
        pace: says whether the engine is to hold at some event, which needs records too.
        inspector: decides when invariants are checked.
    """

    def __init__(self, scheduler: Scheduler, tap: Tap, pace: Pace, inspector: Inspector) -> None:
        self._scheduler = scheduler
        self._tap = tap
        self._pace = pace
        self.inspector = inspector
        self._previews = 0
        self._counters = Counters()

    def want_preview(self, records: int) -> None:
        """The next records, as many as given, will each say what the step after them would do. From any thread."""
        self._previews = max(self._previews, records)

    def watch(self, *, followed: bool) -> None:
        """Have the scheduler note what happens from now on, if somebody reads or follows it; costs nothing else."""
        needed = self._pace.until is not None or followed
        self._scheduler.observe(self._tap.watched or needed)

    def inspect(self, worked: bool) -> tuple[str, ...] | None:
        """What is broken after this round, None when it was not looked at."""
        if not worked:
            return None
        until, watched = self._pace.until, self._tap.watched
        wanted = until is not None and until.kind == "invariant"
        broken = self.inspector.after_step(self._scheduler, watched=watched, wanted=wanted)
        if broken:
            words = broken_words(self._scheduler.step, broken)
            if not (watched or wanted):
                raise InvariantError(words)
            logger.error("%s; the engine holds until it is told to go on", words)
        return broken

    def publish(
        self,
        began: float,
        marks: Seq[float],
        acks: tuple[CommandAck, ...],
        broken: tuple[str, ...] | None,
        runner: Any,
        *,
        was_held: bool,
    ) -> tuple[StepRecord, str | None]:
        """The record of a round, given to the readers of the tap if there are any, and why the engine is to hold now.

        What it ran until, or what is broken, is acknowledged in the record of the step itself.

        Args:
            began: when the round began, in seconds.
            marks: when each of its parts began, in seconds, and when the last one ended.
            acks: of the commands that took effect in it.
            broken: what ``inspect`` found.
            runner: what computed it, None when there is none; one of several ranks tells how long it waited for them.
            was_held: no step could begin before its commands took effect.
        """
        following = None
        if self._previews and self._scheduler.has_work:
            following, self._previews = self._scheduler.preview(), self._previews - 1
        parts = [later - earlier for earlier, later in itertools.pairwise(marks)]
        ranks, plan_bytes = getattr(runner, "waits", ()), getattr(runner, "plan_bytes", 0)
        record = self._scheduler.take_events().record(
            began,
            Spans(*parts),
            acks,
            following,
            invariants=broken,
            ranks=ranks,
            plan_bytes=plan_bytes,
            was_held=was_held,
        )
        reached = self._reached(record)
        if reached is not None:
            record = replace(record, commands=(*record.commands, CommandAck(0, "pause", "", True, reached)))
        if self._tap.watched:
            self._tap.publish(record)
        return record, reached

    def _reached(self, record: StepRecord) -> str | None:
        """Why the engine holds after this record, in words; None when it goes on. To be asked once of each record."""
        before, self._counters = self._counters, record.counters
        if record.invariants:
            return broken_words(record.step, record.invariants)
        if self._pace.until is None:
            return None
        return self._pace.until.reached(self._scheduler, record, before)

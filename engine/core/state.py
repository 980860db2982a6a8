"""Everything the scheduler remembers between two calls, and nothing that decides."""

import heapq
from collections import deque
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from engine.core.cache import PagedCache
from engine.core.counters import Counters
from engine.core.journal import Journal
from engine.core.layout import CacheLayout, SchedulerSettings
from engine.core.observe import Decision
from engine.core.plan import StepPlan
from engine.core.policy import margin_blocks
from engine.core.quick import quick
from engine.core.request import Sequence
from engine.core.stop import StopText
from engine.core.waiting import WaitingLine

make_counters = quick(Counters)
totals_of = attrgetter(*[f.name for f in fields(Counters)])


class Totals:
    """The mutable side of ``Counters``: the same names, starting at 0."""

    __slots__ = tuple(f.name for f in fields(Counters))

    accepted: int
    rejected: int
    finished: int
    failed: int
    cancelled: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    lookups: int
    lookup_tokens: int
    evictions: int
    offloads: int
    restores: int
    preemptions: int
    recomputed_tokens: int
    offloaded_blocks: int
    restored_blocks: int

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    def freeze(self) -> Counters:
        return make_counters(*totals_of(self))

    def copy(self) -> "Totals":
        twin = Totals()
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin


class Rows:
    """Slots of running sequences. The smallest free one is taken; a sequence keeps its row while it runs."""

    def __init__(self) -> None:
        self.free: list[int] = []
        self.made = 0

    def take(self) -> int:
        if self.free:
            return heapq.heappop(self.free)
        self.made += 1
        return self.made - 1

    def give_back(self, row: int) -> None:
        heapq.heappush(self.free, row)

    def copy(self) -> "Rows":
        twin = Rows()
        twin.free, twin.made = self.free[:], self.made
        return twin


@dataclass(slots=True)
class Flight:
    """A planned step that was not applied yet. ``prompt_tokens``: its tokens that are not decode steps."""

    plan: StepPlan
    prompt_tokens: int


class State:
    """The sequences and where each of them is.

    A live sequence is in exactly one of ``line`` (fresh, dropped or parked), ``running`` and ``leaving``.

    Attributes:
        running: hold a row, in order of admission.
        leaving: over, or cancelled, while a step that computes them is in flight; they keep row and blocks until then.
        families: request id -> its living sequences, in order of their ``child``.
        flights: planned and not applied, oldest first.
        rework: key -> tokens a dropped sequence had computed; up to there its work is done again.
        held: key -> consecutive steps in which a decode was held back for a prefill.
        stateful: keys whose next token cannot be planned before the last one is known.
        stops: stop string matcher of each sequence that has one.
        overtaken: key of the head of the line and in how many steps it was overtaken.
        order: the last WAIT_ORDER decisions and the sequences they were made for.
    """

    def __init__(self, layout: CacheLayout, settings: SchedulerSettings, cache: PagedCache) -> None:
        self.layout = layout
        self.settings = settings
        self.cache = cache
        self.margin = margin_blocks(settings, layout.num_blocks)
        self.journal = Journal()
        self.totals = Totals()
        self.step = 0
        self.next_key = 0
        self.line = WaitingLine()
        self.running: dict[int, Sequence] = {}
        self.leaving: dict[int, Sequence] = {}
        self.families: dict[str, list[Sequence]] = {}
        self.rows = Rows()
        self.flights: deque[Flight] = deque()
        self.abandoned = 0
        self.rework: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self.stateful: set[int] = set()
        self.stops: dict[int, StopText] = {}
        self.overtaken: tuple[int, int] = (-1, 0)
        self.order: tuple[int, list[Sequence], dict[int, Decision]] = (-1, [], {})
        self.decisions: dict[int, Decision] = {}

    def configure(self, settings: SchedulerSettings) -> None:
        self.settings = settings
        self.margin = margin_blocks(settings, self.layout.num_blocks)
        self.cache.prefix.sharing = settings.allow_block_sharing

    @property
    def rows_taken(self) -> int:
        return len(self.running) + len(self.leaving)

    def saving_step(self, seq: Sequence) -> int:
        """Number of the step in flight that copies a parked sequence to the host, or 0.

        Until it is applied nobody knows whether the copy is good, so nothing may be built on it.
        """
        slots = {slot for _, _, slot in seq.host}
        for flight in self.flights:
            if any(slot in slots for _, slot in flight.plan.copies.offload):
                return flight.plan.step
        return 0

    def counters(self) -> Counters:
        self.totals.evictions = self.cache.pool.evictions
        return self.totals.freeze()

    def sequences(self) -> list[Sequence]:
        """All sequences that hold anything or wait, by key."""
        return sorted([*self.line, *self.running.values(), *self.leaving.values()], key=lambda seq: seq.key)

    def copy(self, max_waiting: int) -> "State":
        """An independent state for a dry run: requests and pages are shared, all that changes is not.

        Only the first ``max_waiting`` of the line are taken along. Nothing is recorded in the copy.
        """
        twin = State(self.layout, self.settings, self.cache.copy())
        made: dict[int, Sequence] = {}

        def copied(seq: Sequence) -> Sequence:
            if seq.key not in made:
                made[seq.key] = seq.twin()
            return made[seq.key]

        for seq in self.line.head(max_waiting):
            if seq.key in self.line.fresh:
                twin.line.join(copied(seq))
            else:
                twin.line.put_back(copied(seq))
        twin.running = {key: copied(seq) for key, seq in self.running.items()}
        twin.leaving = {key: copied(seq) for key, seq in self.leaving.items()}
        for seq in list(made.values()):
            if seq.key not in twin.leaving:
                twin.families.setdefault(seq.request.request_id, []).append(seq)
        for family in twin.families.values():
            family.sort(key=lambda seq: seq.child)
        twin.rows, twin.totals = self.rows.copy(), self.totals.copy()
        for flight in self.flights:
            slices = tuple(replace(s, seq=copied(s.seq)) for s in flight.plan.slices)
            twin.flights.append(Flight(replace(flight.plan, slices=slices), flight.prompt_tokens))
        twin.step, twin.next_key, twin.abandoned = self.step, self.next_key, self.abandoned
        twin.rework, twin.held, twin.overtaken = dict(self.rework), dict(self.held), self.overtaken
        twin.stateful = set(self.stateful)
        return twin

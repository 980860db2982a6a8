"""A scenario on its way through an engine: what arrives when, and which caption has come.

It hears every record on the engine's own thread and gives its commands before the next plan, so that a scenario goes
the same way at any pace, paused or stepped, whether somebody watches or not.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cbtui.launch import RequestSpec
from cbtui.scenarios.figures import Moment
from cbtui.scenarios.plot import VERDICTS, Command, Scenario, When
from engine.core.observe import BlockOp, StepRecord, Verdict


class Desk(Protocol):
    """Where a script hands in its commands. Each takes effect before the next step is planned."""

    @property
    def has_work(self) -> bool:
        """Whether a request is unfinished or on its way."""
        ...

    def add(self, spec: RequestSpec) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def set(self, fields: Mapping[str, Any]) -> None: ...

    def hold(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Happening:
    """An event in a record: whom it happened to, and its two numbers."""

    event: str
    seq: int = 0
    name: str = ""
    a: int = 0
    b: int = 0


@dataclass(slots=True)
class _Awaited:
    """Something that comes at a moment: how often its event was seen, and the steps left once it was seen enough."""

    when: When
    what: Any
    seen: int = 0
    left: int | None = None
    moment: Moment | None = None


class Script:
    """See the module.

    Args:
        scenario: what is played. specs: its requests by name, prompts as token ids.
        pauses: hold the engine at captions and at commands that say so.

    Attributes:
        moments: captions that have come, oldest first; replaced whole, so that any thread may read it.
        begun: it has taken effect. over: nothing arrives any more and nobody of it is left; replaced likewise.
        steps: how many steps have computed something since the beginning.
    """

    def __init__(self, scenario: Scenario, specs: Mapping[str, RequestSpec], *, pauses: bool = True) -> None:
        self.scenario = scenario
        self.moments: tuple[Moment, ...] = ()
        self.begun = self.over = False
        self.steps = 0
        self._reading = False
        self._pauses = pauses
        self._members = scenario.members
        self._arrivals = [_Awaited(part.when, specs[part.name]) for part in scenario.parts]
        self._commands = [_Awaited(command.when, command) for command in scenario.commands]
        self._captions = [_Awaited(caption.when, number) for number, caption in enumerate(scenario.captions)]
        self._names: dict[int, str] = {}
        self._wrote: set[int] = set()
        self._open: set[str] = {name for part in scenario.parts for name in self._members[part.name]}

    def begin(self, desk: Desk, step: int) -> None:
        """The engine is after ``step``, which is usually 0: everything of the beginning is handed in."""
        self.begun = True
        self._hand_in(desk)
        self._tell(desk, step)

    def heard(self, desk: Desk, record: StepRecord) -> None:
        """A step is over: what it means for the scenario."""
        self.steps += bool(record.slices)
        happenings = list(self._read(record, desk))
        for awaited in (*self._arrivals, *self._commands, *self._captions):
            self._note(awaited, happenings, record)
        if record.slices:
            self._reading = False
        self._go_on(desk, record.step)

    def let_go(self, desk: Desk, step: int) -> None:
        """A person goes on after ``step``. Where nobody is there no step is heard of, so what waited comes now."""
        self._reading = False
        if not desk.has_work:
            self._go_on(desk, step)

    def _go_on(self, desk: Desk, step: int) -> None:
        """The next caption, and whoever is due."""
        if not self._reading:
            self._tell(desk, step)
        if self._reading and not desk.has_work:
            return  # nobody is here: whoever comes next comes when the caption was read
        self._hand_in(desk)
        while self._arrivals and not desk.has_work and self._skip():
            self._hand_in(desk)
        if not desk.has_work:
            self.over = True

    # ---- events

    def _read(self, record: StepRecord, desk: Desk) -> Iterator[Happening]:
        """What happened in a record, in the order of the engine's own parts."""
        for info in record.requests:
            self._names[info.seq] = info.request_id
        for ack in record.commands:
            if ack.kind == "add":
                self._open -= set() if ack.accepted else {ack.target}
                yield Happening("arrives" if ack.accepted else "refused", self._key(ack.target), ack.target)
        if record.settings:
            yield Happening("setting")
        for decision in record.decisions:
            event, name = VERDICTS.get(decision.verdict), self._names.get(decision.seq, "")
            if event is not None:
                yield Happening(event, decision.seq, name, decision.a, decision.b)
            if decision.verdict is Verdict.ADMIT and decision.a:
                yield Happening("prefix_hit", decision.seq, name, decision.a, decision.b)
        for delta in record.deltas:
            if delta.op in (BlockOp.RECYCLE, BlockOp.EVICT):
                event = "recycle" if delta.op is BlockOp.RECYCLE else "evict"
                yield Happening(event, delta.seq, self._names.get(delta.seq, ""), delta.block, delta.index)
        for output in record.outputs:
            if output.seq not in self._wrote:
                self._wrote.add(output.seq)
                yield Happening("first_token", output.seq, self._names.get(output.seq, ""))
        for change in record.changes:
            name = self._names.get(change.seq, "")
            if change.place == "done" and name in self._open:
                self._open.discard(name)
                yield Happening("ends", change.seq, name)
        if record.changes and not desk.has_work:
            yield Happening("all_end")

    def _key(self, name: str) -> int:
        return next((key for key, known in self._names.items() if known == name), 0)

    def _note(self, awaited: _Awaited, happenings: Iterable[Happening], record: StepRecord) -> None:
        """Counts down to a moment."""
        when = awaited.when
        if awaited.left is not None:
            awaited.left -= bool(record.slices)
        elif when.event:
            for happening in happenings:
                if not self._matches(when, happening):
                    continue
                awaited.seen += 1
                if awaited.seen == when.nth:
                    awaited.left = when.after
                    awaited.moment = Moment(0, record.step, happening.seq, happening.a, happening.b)

    def _matches(self, when: When, happening: Happening) -> bool:
        if when.event != happening.event:
            return False
        if not when.of:
            return True
        members = self._members[when.of]
        if happening.name not in members:
            return False
        return when.event != "ends" or not self._open & set(members)

    # ---- what is due

    def _due(self, awaited: _Awaited, ahead: int) -> bool:
        """Whether its moment has come; with ``ahead`` 1 for what must be there when the next step is planned."""
        if awaited.when.event:
            return awaited.left is not None and awaited.left <= 0
        return awaited.when.at - ahead <= self.steps

    def _hand_in(self, desk: Desk) -> None:
        for awaited in [a for a in self._commands if self._due(a, 1)]:
            self._commands.remove(awaited)
            self._give(desk, awaited.what)
        for awaited in [a for a in self._arrivals if self._due(a, 1)]:
            self._arrivals.remove(awaited)
            desk.add(awaited.what)

    def _give(self, desk: Desk, command: Command) -> None:
        if command.kind == "set":
            desk.set(command.fields)
        elif command.kind == "cancel":
            for name in self._members[command.target]:
                if name in self._open:
                    desk.cancel(name)
        elif self._pauses:
            desk.hold()

    def _skip(self) -> bool:
        """Nobody is here, so no step passes by itself: the next arrival comes now. False when none can come."""
        waiting = [a for a in self._arrivals if a.left is not None or not a.when.event]
        if not waiting:
            return False
        nearest = min(waiting, key=lambda a: a.left if a.left is not None else a.when.at - self.steps)
        if nearest.left is not None:
            nearest.left = 0
        else:
            soonest = nearest.when.at
            for awaited in waiting:
                if not awaited.when.event and awaited.when.at == soonest:
                    awaited.when = When(at=0)
        return True

    def _tell(self, desk: Desk, step: int) -> None:
        """At most one caption comes after a step, so that each can be read; the others follow."""
        for awaited in self._captions:
            if not self._due(awaited, 0):
                continue
            self._captions.remove(awaited)
            met = awaited.moment or Moment(0, step)
            now = step if awaited.when.after or not awaited.when.event else met.step
            self.moments = (*self.moments, Moment(awaited.what, now, met.seq, met.a, met.b))
            reads = self._pauses and self.scenario.captions[awaited.what].pause and step > 0
            if reads and (desk.has_work or self._arrivals):
                self._reading = True
                desk.hold()
            return

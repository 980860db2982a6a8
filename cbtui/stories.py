"""What is remembered of one request from its arrival to its end, and after."""

from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from cbtui.pauses import Pauses
from cbtui.text import Wrap, clean
from engine.core.observe import Decision, RequestInfo, SequenceChange
from engine.core.request import FinishReason

OPEN = 1 << 62


class TokenText(Protocol):
    """Turns the tokens of one stream into text, bytes of unfinished characters held back."""

    def push(self, token: int) -> str: ...

    def flush(self) -> str: ...


class TextSource(Protocol):
    """How the monitor reads token ids. Without one, ids are shown as numbers."""

    def decode(self, ids: tuple[int, ...]) -> str: ...

    def stream(self) -> TokenText: ...


class Numbers:
    """Token ids as numbers, where nobody can read them."""

    def push(self, token: int) -> str:
        return f" {token}"

    def flush(self) -> str:
        return ""


@dataclass(slots=True)
class Phase:
    """Steps ``start`` … ``end`` (inclusive, OPEN while it lasts) a request spent in one way, with its start time.

    ``kind``: "queued", "prefill", "decode", "stalled" (held a row, computed nothing), "preempted" (back in the queue
    after losing its cache), "offloaded".
    """

    kind: str
    start: int
    start_time: float
    end: int = OPEN
    end_time: float = -1.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a line: ``kind`` is a Verdict value or "arrived", "first_token", "restored"."""

    step: int
    time: float
    kind: str
    a: int = 0
    b: int = 0
    c: int = 0


@dataclass(slots=True)
class Story:
    """One sequence (or one refused request, with a negative key).

    Latencies leave out the time a person held the engine; ``pauses`` knows it for all stories.

    ``tokens``, ``logprobs``, ``token_steps`` and ``token_times`` run parallel. Steps are -1 and times negative while
    they have not come. ``open_reader`` makes what reads its output tokens.
    """

    key: int
    number: int
    label: str
    hue: int
    request_id: str
    info: RequestInfo | None = None
    change: SequenceChange | None = None
    decision: Decision | None = None
    prompt: str = ""
    tokens: array = field(default_factory=lambda: array("i"))
    logprobs: list[float | None] = field(default_factory=list)
    token_steps: array = field(default_factory=lambda: array("q"))
    token_times: array = field(default_factory=lambda: array("d"))
    phases: list[Phase] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    arrived: int = -1
    arrived_time: float = -1.0
    behind: tuple[int, ...] = ()
    started: int = -1
    ended: int = -1
    ended_time: float = -1.0
    finish_reason: FinishReason | None = None
    error: str | None = None
    refusal: str = ""
    peak_blocks: int = 0
    freed: int = 0
    wraps: dict[int, Wrap] = field(default_factory=dict, repr=False)
    pauses: Pauses = field(default_factory=Pauses, repr=False)
    open_reader: Callable[[], TokenText] = field(default=Numbers, repr=False)
    _reader: TokenText | None = field(default=None, repr=False)
    _pieces: list[str] = field(default_factory=list, repr=False)
    _whole: bool = field(default=False, repr=False)
    _ttft: float | None = field(default=None, repr=False)
    _itl: float | None = field(default=None, repr=False)

    @property
    def pieces(self) -> list[str]:
        """The cleaned text of each output token, read when it is looked at: most streams are not on the screen."""
        read = self._pieces
        if self._whole or (self.ended < 0 and len(read) == len(self.tokens)):
            return read
        reader = self._reader = self._reader or self.open_reader()
        read += [clean(reader.push(token)) for token in self.tokens[len(read) :]]
        if self.ended >= 0:
            self._whole, self._reader = True, None
            tail = clean(reader.flush())
            if tail and read:
                read[-1] += tail
                self.wraps.clear()
        return read

    @property
    def is_refused(self) -> bool:
        return bool(self.refusal)

    @property
    def prompt_tokens(self) -> int | None:
        return len(self.info.prompt_ids) if self.info is not None else None

    @property
    def limit(self) -> int | None:
        """Most output tokens it may make."""
        return self.info.max_new_tokens if self.info is not None else None

    def output_at(self, step: int) -> int:
        """Output tokens known after ``step``."""
        steps = self.token_steps
        return len(steps) if steps and steps[-1] <= step else bisect_right(steps, step)

    def ttft(self, step: int = OPEN) -> float | None:
        """Seconds from creation to the first token without pauses, None while there is none."""
        if self.info is None or not self.tokens or self.token_steps[0] > step:
            return None
        if self._ttft is not None:  # it does not change any more
            return self._ttft
        first = self.change.first_token_time if self.change is not None else -1.0
        created, known = self.info.created_time, first >= 0
        if not known:
            first = self.token_times[0]
        waited = max(0.0, first - created - self.pauses.between(created, first))
        if known:
            self._ttft = waited
        return waited

    def itl(self, step: int = OPEN) -> float | None:
        """Mean seconds between its output tokens without pauses, None with fewer than two."""
        over = 0 <= self.ended <= step
        if over and self._itl is not None:
            return self._itl
        count = self.output_at(step)
        if count < 2:
            return None
        first, last = self.token_times[0], self.token_times[count - 1]
        mean = (last - first - self.pauses.between(first, last)) / (count - 1)
        if over:
            self._itl = mean
        return mean

    def phase_at(self, step: int) -> Phase | None:
        index = bisect_right(self.phases, step, key=lambda phase: phase.start) - 1
        if index < 0 or self.phases[index].end < step:
            return None
        return self.phases[index]

    def seconds(self, kind: str, now: float) -> float:
        """Seconds spent in phases of a kind up to ``now`` (open ones included), pauses left out.

        "paused" is the time of any phase in which a person held the engine, so that all kinds add up to its life.
        """
        total = 0.0
        for phase in self.phases:
            end = min(now if phase.end == OPEN else phase.end_time, now)
            paused = self.pauses.between(phase.start_time, end)
            if kind == "paused":
                total += paused
            elif phase.kind == kind:
                total += max(0.0, end - phase.start_time - paused)
        return total

    def enter(self, kind: str, step: int, time: float) -> None:
        """The request is in this phase from ``step`` on; nothing happens when it already was."""
        if self.phases:
            last = self.phases[-1]
            if last.kind == kind and last.end == OPEN:
                return
            self.close_phase(step - 1, time)
        self.phases.append(Phase(kind, step, time))

    def close_phase(self, step: int, time: float) -> None:
        if not self.phases or self.phases[-1].end != OPEN:
            return
        last = self.phases[-1]
        if step < last.start:  # it lasted for no whole step: it never happened
            self.phases.pop()
            return
        last.end, last.end_time = step, time

    def wrapped(self, width: int, newline: str) -> Wrap:
        """Its output broken into lines of ``width`` cells; only what is new is wrapped."""
        pieces = self.pieces
        wrap = self.wraps.get(width)
        if wrap is None or wrap.newline != newline:
            if len(self.wraps) > 2:
                self.wraps.clear()
            wrap = self.wraps[width] = Wrap(width, newline)
        for token in range(wrap.tokens, len(pieces)):
            wrap.feed(pieces[token], token)
        return wrap

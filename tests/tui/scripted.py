"""A deterministic engine for pictures: the real scheduler, a fake clock, and words of a text for tokens."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cbtui.model import MonitorState
from engine.core.counters import Spans
from engine.core.errors import RequestError
from engine.core.groups import group_layers
from engine.core.invariants import check
from engine.core.layout import CacheLayout, SchedulerSettings
from engine.core.observe import CommandAck, Keyframe, StepRecord
from engine.core.plan import StepPlan, StepResult
from engine.core.request import Request
from engine.core.scheduler import Scheduler

TEXTS = (
    "Nothing is copied. When the room is nearly full the newest visitor is asked to step outside: her trays go down"
    " to the basement, and later they come back in the same order, so she can go on in mid sentence. Trays"
    " that nobody holds are not emptied at once. They stay on the shelf until someone needs the room, because the next"
    " one may well ask for the same book. ",
    "Turn the bicycle upside down and look along the chain. Each link should lie flat; a stiff one jumps when it meets "
    "the rear derailleur. Look at the hanger from behind: the upper pulley should sit exactly under the sprocket that "
    "carries the chain, and if it leans inward the hanger is bent. Last, turn the barrel adjuster a quarter turn at a "
    "time, pedal, and listen. ",
    "Sorting costs O(n log n); the sweep itself is linear,\nbecause every pair is looked at once and extends the "
    "last interval or opens a new one.\nTouching intervals are joined too. ",
    "La lune est à 384 400 km de la Terre en moyenne ; elle s'éloigne de presque quatre centimètres par an. ",
    "月は地球から約三十八万キロ離れています。毎年すこしずつ遠ざかっています。",
)  # fmt: skip
STEP_SECONDS = 0.033
CHECKED_STEPS = 64


class Words:
    """Token ids are places in a list of words; a stream says the words of one text over and over."""

    def __init__(self, texts: tuple[str, ...] = TEXTS) -> None:
        self.words: list[str] = []
        self.starts: list[tuple[int, int]] = []
        for text in texts:
            words = _split(text)
            self.starts.append((len(self.words), len(words)))
            self.words += words

    def token(self, key: int, position: int) -> int:
        start, count = self.starts[key % len(self.starts)]
        return start + (7 * key + position) % count

    def decode(self, ids: tuple[int, ...]) -> str:
        return "".join(self.words[i % len(self.words)] for i in ids)

    def stream(self) -> "WordStream":
        return WordStream(self.words)


@dataclass
class WordStream:
    words: list[str]

    def push(self, token: int) -> str:
        return self.words[token % len(self.words)]

    def flush(self) -> str:
        return ""


def _split(text: str) -> list[str]:
    """Words with their leading blank; long ones in two pieces, so that tokens are not always words."""
    pieces: list[str] = []
    for index, word in enumerate(text.split(" ")):
        word = f" {word}" if index else word
        pieces += [word[:5], word[5:]] if len(word) > 8 else [word]
    return [piece for piece in pieces if piece]


@dataclass
class Rig:
    """A scheduler with everything around it that a record needs."""

    scheduler: Scheduler
    state: MonitorState
    start: Keyframe
    words: Words
    now: float = 100.0
    ticket: int = 0
    records: list[StepRecord] = field(default_factory=list)
    acks: list[CommandAck] = field(default_factory=list)

    def add(self, request_id: str, prompt: tuple[int, ...], new: int, children: int = 1) -> None:
        request = Request(request_id, prompt, max_new_tokens=new, num_return_sequences=children, created_time=self.now)
        self.ticket += 1
        try:
            self.scheduler.check(request)
            self.scheduler.add(request)
        except RequestError as error:
            self.acks.append(CommandAck(self.ticket, "add", request_id, False, str(error)))
        else:
            self.acks.append(CommandAck(self.ticket, "add", request_id, True))

    def cancel(self, request_id: str) -> None:
        self.ticket += 1
        self.scheduler.cancel(request_id, self.now)
        self.acks.append(CommandAck(self.ticket, "cancel", request_id, True))

    def configure(self, **changes: object) -> None:
        self.scheduler.configure(replace(self.scheduler.settings, **changes))  # type: ignore[arg-type]

    def step(self, *, preview: bool = False) -> StepRecord:
        """One step; the fake clock moves on by its cost."""
        began, plan = self.now, None
        if self.scheduler.has_work:
            plan = self.scheduler.plan(now=self.now)
            self.now += STEP_SECONDS + plan.num_tokens * 0.0002
            self.scheduler.apply(plan, self._result(plan), self.now)
        else:
            self.now += STEP_SECONDS
        spans = Spans(plan=0.001, wait=self.now - began - 0.001)
        ahead = self.scheduler.preview() if preview and self.scheduler.has_work else None
        found = tuple(check(self.scheduler)) if self.scheduler.step % CHECKED_STEPS == 0 else None
        record = self.scheduler.take_events().record(began, spans, tuple(self.acks), ahead, invariants=found)
        self.acks.clear()
        self.records.append(record)
        self.state.apply(record)
        return record

    def _result(self, plan: StepPlan) -> StepResult:
        sampled = [part for part in plan.slices if part.samples]
        tokens = [self.words.token(part.seq.key, part.position) for part in sampled]
        return StepResult(tokens=tokens, logprobs=[-0.25] * len(tokens))

    def keyframe(self) -> Keyframe:
        return self.scheduler.keyframe(self.records[-1].step, self.records[-1].time, self.records[-1])


def make_rig(
    *,
    num_blocks: int = 384,
    host_blocks: int = 96,
    page_size: int = 16,
    window: int | None = 128,
    hybrid: bool = True,
    history_bytes: int = 64 << 20,
    **settings: object,
) -> Rig:
    """A rig with two layer groups (full and sliding), or one."""
    windows: list[int | None] = [None, window] if hybrid else [window]
    layout = CacheLayout(page_size, group_layers(windows), num_blocks, host_blocks, 1 << 20)
    given = {"max_batch_tokens": 96, "max_requests_per_batch": 16, "safety_margin": 0.05} | settings
    scheduler = Scheduler(layout, SchedulerSettings(**given))  # type: ignore[arg-type]
    scheduler.observe(True)
    start, words = scheduler.keyframe(0, 100.0), Words()
    return Rig(scheduler, MonitorState(start, text=words, history_bytes=history_bytes), start, words)


def prompt(seed: int, length: int, shared: int = 0) -> tuple[int, ...]:
    """Prompt ids; the first ``shared`` are the same for every seed."""
    common = tuple(range(shared))
    return common + tuple((seed * 31 + i * 7) % 211 for i in range(length - shared))


# step -> (prompt tokens, most new tokens, tokens shared with its neighbours)
ARRIVALS: dict[int, list[tuple[int, int, int]]] = {
    0: [(205, 350, 0)], 24: [(120, 230, 0)], 26: [(160, 350, 0)],
    38: [(190, 310, 0), (150, 190, 0), (60, 60, 0), (90, 125, 0), (236, 350, 0), (130, 400, 0)],
    70: [(64, 110, 0), (110, 61, 0), (100, 120, 0), (205, 386, 0), (52, 400, 0)],
    108: [(52, 320, 0)], 116: [(77, 320, 0)],
    135: [(150, 400, 112), (150, 362, 112), (150, 276, 112)], 143: [(204, 350, 0)],
    160: [(75, 400, 0)], 176: [(64, 310, 0)], 200: [(134, 110, 0)], 219: [(183, 400, 0)],
    330: [(6000, 300, 0)], 334: [(118, 320, 0)],
}  # fmt: skip


def rush_hour(steps: int = 355, *, on_step: Callable[[Rig], None] | None = None) -> Rig:
    """The scene of the pictures: arrivals A … Z, a shared prefix, windows, offloads, a cancel, a refusal."""
    rig = make_rig(num_blocks=304, host_blocks=48, safety_margin=0.0)
    number = 0
    for step in range(steps):
        for length, new, shared in ARRIVALS.get(step, ()):
            rig.add(f"req-{number:02d}", prompt(number, length, shared), new)
            number += 1
        if step == 300:
            rig.configure(safety_margin=0.15)
        if step == 226:
            rig.cancel("req-08")
        rig.step(preview=step >= steps - 1)
        if on_step is not None:
            on_step(rig)
    return rig

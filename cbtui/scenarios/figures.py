"""The figures in a caption: names in braces, each worked out from the engine's records at the caption's step.

``{free}`` is about the whole engine, ``{A.blocks}`` about a request, ``{small.output}`` about a group of requests.
``{A}`` is the letter the monitor shows for a request, ``{key.pause}`` the key of an action. What is not known reads
``--``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from cbtui.model import MonitorState
from cbtui.picture import Live, Picture
from cbtui.stories import Story
from cbtui.text import unnamed
from cbtui.view.scene import margin_blocks

TEXT_CELLS = 28
"""Characters of an output shown in a caption."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a caption came: its number from 0, the step of its event, and what the event says (see ``Decision``)."""

    caption: int
    step: int
    seq: int = 0
    a: int = 0
    b: int = 0


@dataclass(frozen=True, slots=True)
class Sight:
    """What figures are worked out from: the folded records and the moment."""

    state: MonitorState
    picture: Picture
    moment: Moment

    @classmethod
    def at(cls, state: MonitorState, moment: Moment) -> "Sight":
        return cls(state, state.at(moment.step), moment)

    @property
    def slices(self) -> Sequence[Any]:
        return () if self.picture.record is None else self.picture.record.slices

    def stories(self, ids: Sequence[str]) -> list[Story]:
        """What is remembered of requests, in order of arrival."""
        return [story for story in self.state.stories.values() if story.request_id in ids]

    def steps(self, first: int, last: int) -> int:
        """Steps from ``first`` to ``last`` (both counted) that computed something."""
        return sum(self.state.series.at("running", step) > 0 for step in range(first, last + 1))

    def live(self, story: Story) -> Live | None:
        return self.picture.sequences.get(story.key)

    def number(self, name: str) -> float:
        value = self.picture.settings.get(name)
        return float(value) if isinstance(value, int | float) else 0.0

    def milliseconds(self, step: int) -> float | None:
        record = self.state.history.record(step)
        return None if record is None else record.spans.total * 1000


def _who(sight: Sight) -> str:
    return sight.state.label(sight.moment.seq)


def _usual(sight: Sight) -> float | None:
    """Median milliseconds of the steps before this one that only decoded."""
    series, times = sight.state.series, []
    for step in range(max(series.first, sight.moment.step - 40), sight.moment.step):
        if series.at("running", step) > 0 and series.at("prefill", step) == 0:
            spent = sight.milliseconds(step)
            if spent is not None:
                times.append(spent)
    return median(times) if times else None


def _stored(sight: Sight) -> int:
    return sum(live.change.computed for live in sight.picture.running)


def _room(sight: Sight) -> int:
    held = sum(live.held(group) for live in sight.picture.running for group in range(len(live.tables)))
    return held * sight.picture.page_size


def _prefill(sight: Sight) -> int:
    return sum(part.query for part in sight.slices if part.kind == "prefill")


def _record(sight: Sight, name: str) -> int | None:
    return None if sight.picture.record is None else getattr(sight.picture.record, name)


ENGINE: Mapping[str, Callable[[Sight], Any]] = {
    "step": lambda s: s.picture.step,
    "who": _who,
    "a": lambda s: s.moment.a,
    "b": lambda s: s.moment.b,
    "other": lambda s: s.state.label(s.moment.a),
    "blocks": lambda s: s.picture.num_blocks,
    "used": lambda s: s.picture.used,
    "free": lambda s: s.picture.free,
    "cached": lambda s: s.picture.cached,
    "usable": lambda s: s.picture.usable,
    "margin": lambda s: margin_blocks(s.number("safety_margin"), s.picture.num_blocks),
    "page": lambda s: s.picture.page_size,
    "window": lambda s: next((w for w in s.picture.windows if w is not None), None),
    "running": lambda s: len(s.slices),
    "decodes": lambda s: sum(part.kind == "decode" for part in s.slices),
    "batch": lambda s: sum(part.query for part in s.slices),
    "prefill": _prefill,
    "budget": lambda s: _record(s, "budget"),
    "rows": lambda s: _record(s, "rows"),
    "waiting": lambda s: s.picture.queued,
    "offloaded": lambda s: len(s.picture.offloaded),
    "host": lambda s: len(s.picture.host),
    "host_used": lambda s: s.picture.host_used,
    "moved": lambda s: len(s.picture.moves.out_slots),
    "back": lambda s: len(s.picture.moves.back_slots),
    "stored": _stored,
    "room": _room,
    "waste": lambda s: _room(s) - _stored(s),
    "evictions": lambda s: s.picture.counters.evictions,
    "preemptions": lambda s: s.picture.counters.preemptions,
    "recomputed": lambda s: s.picture.counters.recomputed_tokens,
    "offloads": lambda s: s.picture.counters.offloads,
    "hits": lambda s: s.picture.counters.cached_tokens,
    "computed": lambda s: s.picture.counters.prompt_tokens,
    "cancelled": lambda s: s.picture.counters.cancelled,
    "refused": lambda s: sum(r.is_refused and r.arrived <= s.picture.step for r in s.state.stories.values()),
    "finished": lambda s: s.picture.counters.finished,
    "output": lambda s: s.picture.counters.output_tokens,
    "ms": lambda s: s.milliseconds(s.moment.step),
    "usual": _usual,
}
"""Figures of the whole engine. Of an event: who it happened to, its two numbers, ``other`` the request number a is."""


def _of(pick: Callable[[Live], int]) -> Callable[[Sight, Story], Any]:
    """A figure of a request that is there at the step."""

    def figure(sight: Sight, story: Story) -> Any:
        live = sight.live(story)
        return None if live is None else pick(live)

    return figure


def _change(name: str) -> Callable[[Sight, Story], Any]:
    """A value of a request, its last one when it is gone."""

    def figure(sight: Sight, story: Story) -> Any:
        live = sight.live(story)
        change = story.change if live is None else live.change
        return None if change is None else getattr(change, name)

    return figure


def _layers(window: bool) -> Callable[[Sight, Story], Any]:
    """Blocks a request holds in the layer groups that have a window, or have none."""

    def figure(sight: Sight, story: Story) -> Any:
        live = sight.live(story)
        groups = [g for g in range(len(sight.picture.windows)) if sight.picture.is_window(g) == window]
        return None if live is None or not groups else sum(map(live.held, groups))

    return figure


def _ttft(sight: Sight, story: Story) -> int | None:
    """Steps from its arrival to its first token, both counted."""
    if not story.output_at(sight.picture.step):
        return None
    return sight.steps(story.arrived, story.token_steps[0])


def _waited(sight: Sight, story: Story) -> int:
    """Steps it has been waiting for its first row."""
    began = 0 <= story.started <= sight.picture.step
    return sight.steps(story.arrived, story.started - 1 if began else sight.picture.step)


def _gap(sight: Sight, story: Story) -> int | None:
    """The most steps between two of its tokens."""
    steps = story.token_steps[: story.output_at(sight.picture.step)]
    gaps = [sight.steps(a + 1, b) for a, b in pairwise(steps)]
    return max(gaps, default=None)


def _chunks(sight: Sight, story: Story) -> int:
    """Steps that computed a part of its prompt."""
    now = sight.picture.step
    return sum(
        sight.steps(phase.start, min(phase.end, now))
        for phase in story.phases
        if phase.kind == "prefill" and phase.start <= now
    )


def _written(sight: Sight, story: Story) -> str:
    text = " ".join("".join(story.pieces[: story.output_at(sight.picture.step)]).split())
    return f"“{text[:TEXT_CELLS].strip()}…”" if len(text) > TEXT_CELLS else f"“{text}”"


REQUEST: Mapping[str, Callable[[Sight, Story], Any]] = {
    "prompt": lambda s, r: r.prompt_tokens,
    "limit": lambda s, r: r.limit,
    "output": lambda s, r: r.output_at(s.picture.step),
    "text": _written,
    "arrived": lambda s, r: r.arrived,
    "refusal": lambda s, r: unnamed(r.refusal) or None,
    "computed": _change("computed"),
    "cached": _change("cached_tokens"),
    "recomputed": _change("recomputed"),
    "blocks": _of(lambda live: sum(map(live.held, range(len(live.tables))))),
    "full": _layers(False),
    "window": _layers(True),
    "host": _change("host_blocks"),
    "ttft": _ttft,
    "waited": _waited,
    "gap": _gap,
    "chunks": _chunks,
}
"""Figures of one request. Times count steps that computed something."""


def _span(sight: Sight, stories: Sequence[Story]) -> tuple[int, int]:
    """First and last step of a group: from its first arrival to its last end, or to now."""
    now = sight.picture.step
    last = max((story.ended if 0 <= story.ended <= now else now for story in stories), default=now)
    return min((story.arrived for story in stories), default=now), last


def _row_steps(sight: Sight, stories: Sequence[Story]) -> tuple[int, int]:
    """(rows offered, rows used) over all steps of a group."""
    rows, series = _record(sight, "rows") or 0, sight.state.series
    first, last = _span(sight, stories)
    used = [series.at("running", step) for step in range(first, last + 1)]
    used = [count for count in used if count > 0]
    return rows * len(used), sum(used)


def _sum(name: str) -> Callable[[Sight, Sequence[Story]], Any]:
    return lambda s, group: sum(REQUEST[name](s, story) or 0 for story in group)


def _most(name: str) -> Callable[[Sight, Sequence[Story]], Any]:
    return lambda s, group: max((REQUEST[name](s, story) or 0 for story in group), default=None)


def _texts(sight: Sight, stories: Sequence[Story]) -> int:
    """How many different outputs there are."""
    return len({tuple(story.tokens[: story.output_at(sight.picture.step)]) for story in stories})


GROUP: Mapping[str, Callable[[Sight, Sequence[Story]], Any]] = {
    "size": lambda s, group: len(group),
    "steps": lambda s, group: s.steps(*_span(s, group)),
    "offered": lambda s, group: _row_steps(s, group)[0],
    "idle": lambda s, group: _row_steps(s, group)[0] - _row_steps(s, group)[1],
    "ended": lambda s, group: sum(0 <= story.ended <= s.picture.step for story in group),
    "texts": _texts,
    "prompt": _sum("prompt"),
    "output": _sum("output"),
    "blocks": _sum("blocks"),
    "host": _sum("host"),
    "cached": _sum("cached"),
    "chunks": _sum("chunks"),
    "ttft": _most("ttft"),
    "waited": _most("waited"),
    "gap": _most("gap"),
}
"""Figures of a group: sums, and the most of waits and gaps."""

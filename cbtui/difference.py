"""What changed between two kept steps."""

from dataclasses import dataclass

from cbtui.model import MonitorState
from cbtui.picture import Picture
from cbtui.standing import state_of
from engine.core.observe import BlockView


@dataclass(frozen=True, slots=True)
class Difference:
    """Step A and step B (A is the earlier one) compared.

    Attributes:
        figures: name -> (at A, at B) for used, cached, free, total, host, waiting.
        moved: (key, state at A, state at B) of requests alive at both whose state differs.
        kept: state -> keys of requests that are in it at both.
        arrived, ended: keys. Counters begin anew with an engine: across the border they are not known.
        output, tokens, budget: output tokens, query tokens and token budget of the steps after A up to B; -1 unknown.
        offloads, restores, preemptions: how many between them.
        unchanged, taken, given_back, swapped: numbers of blocks; they add up to the pool.
        changed: ids of the blocks that are not unchanged.
    """

    a: int
    b: int
    seconds: float
    figures: dict[str, tuple[int, int]]
    moved: tuple[tuple[int, str, str], ...]
    kept: dict[str, tuple[int, ...]]
    arrived: tuple[int, ...]
    ended: tuple[int, ...]
    output: int
    tokens: int
    budget: int
    offloads: int
    restores: int
    preemptions: int
    unchanged: int
    taken: int
    given_back: int
    swapped: int
    changed: frozenset[int]


def is_changed(before: BlockView, now: BlockView) -> bool:
    """Whether state or owners differ (being published or used is not a change one can see)."""
    return before.state != now.state or {o[0] for o in before.owners} != {o[0] for o in now.owners}


def difference(state: MonitorState, a: int, b: int) -> Difference:
    """Compare two steps; their order does not matter."""
    before, now = state.at(min(a, b)), state.at(max(a, b))
    taken = given = swapped = 0
    changed = set()
    for number in range(1, min(len(before.blocks), len(now.blocks))):
        old, new = before.blocks[number], now.blocks[number]
        if not is_changed(old, new):
            continue
        changed.add(number)
        taken += new.state == "owned"
        given += new.state != "owned" and old.state == "owned"
        swapped += new.state != "owned" and old.state != "owned"
    old_keys, new_keys = _alive(before), _alive(now)
    both = [(key, _word(state, before, key), _word(state, now, key)) for key in sorted(old_keys & new_keys)]
    kept: dict[str, tuple[int, ...]] = {}
    for key, old_word, new_word in both:
        if old_word == new_word:
            kept[old_word] = (*kept.get(old_word, ()), key)
    arrived = [s.key for s in state.stories.values() if before.step < s.arrived <= now.step]
    ended = [s.key for s in state.stories.values() if before.step < s.ended <= now.step]
    return Difference(
        before.step,
        now.step,
        now.time - before.time,
        {
            "used": (before.used, now.used),
            "cached": (before.cached, now.cached),
            "free": (before.free, now.free),
            "total": (before.num_blocks, now.num_blocks),
            "CPU pool": (before.host_used, now.host_used),
            "waiting": (before.queued, now.queued),
        },
        tuple(item for item in both if item[1] != item[2]),
        kept,
        tuple(arrived),
        tuple(ended),
        max(-1, now.counters.output_tokens - before.counters.output_tokens),
        _sum(state, "tokens", before.step, now.step),
        _sum(state, "budget", before.step, now.step),
        max(0, now.counters.offloads - before.counters.offloads),
        max(0, now.counters.restores - before.counters.restores),
        max(0, now.counters.preemptions - before.counters.preemptions),
        now.num_blocks - len(changed),
        taken,
        given,
        swapped,
        frozenset(changed),
    )


def _alive(picture: Picture) -> set[int]:
    return {key for key, live in picture.sequences.items() if live.change.place != "done"}


def _word(state: MonitorState, picture: Picture, key: int) -> str:
    story = state.story(key)
    return state_of(picture.sequences.get(key), story, picture.step) if story is not None else "?"


def _sum(state: MonitorState, name: str, after: int, until: int) -> int:
    """A column of the series summed over steps ``after`` + 1 … ``until``; -1 when one of them is not known."""
    first = state.series.first
    part = state.series[name][max(0, after + 1 - first) : max(0, until + 1 - first)]
    return sum(part) if len(part) == until - after and min(part, default=0) >= 0 else -1

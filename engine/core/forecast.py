"""Why a sequence is where it is, and what would change that: the scheduler's own checks, and dry runs of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.core import ways
from engine.core.dryrun import run_ahead
from engine.core.errors import Stalled
from engine.core.journal import place_of
from engine.core.layout import TRASH_BLOCK
from engine.core.observe import Decision, Verdict
from engine.core.request import Sequence
from engine.core.state import State
from engine.core.walk import PLANNED

if TYPE_CHECKING:
    from engine.core.scheduler import Scheduler

FARTHEST_PLACE = 256
"""Place in the line up to which a forecast is tried: farther back the copies alone would take too long."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check the scheduler makes, in the order it makes them, with the numbers it compares.

    ``name`` and numbers:
        "fits": a = blocks at full length, b = blocks in the pool.
        "turn": a = place in the line (0 when it holds a row), b = key of the one it waits behind, or -1.
        "row": a = rows taken, b = rows there are.
        "tokens": a = tokens wanted, b = tokens left in the step.
        "blocks": a = blocks needed, b = blocks usable (free + cached).
        "margin": a = blocks usable after taking them, b = blocks the margin keeps.
    """

    name: str
    passed: bool
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Blocks that only one sequence holds: ``full`` and ``window`` attention; ``freed`` come back when it leaves."""

    seq: int
    request_id: str
    full: int
    window: int
    freed: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One dry run: what is done, and the step in which the sequence would get its next tokens, at the latest.

    Attributes:
        kind: "wait", "margin", "cancel", "tokens", "rows", "skip" or "policy".
        value: the new value of the setting, or the key of the one cancelled; None for "wait".
        old: the value it has now, None where there is none.
        step: the step, or None when it is farther away than was looked.
        steps: how many steps from now that is, 1 for the next; or how many were looked at.
        helps: sooner than by waiting.
        price: what it costs, in plain words with numbers.
        ended: (key, step) of those that end before.
    """

    kind: str
    value: float | int | str | None
    old: float | int | str | None
    step: int | None
    steps: int
    helps: bool
    price: str
    ended: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Answer to "why?" for one sequence, as of now.

    Attributes:
        decision: what the next step would decide for it, None when it would not come to it.
        checks: all checks with the numbers at the end of that step's walk; empty for one that holds a row and is fine.
        holders: who holds blocks alone, most first; ``shared`` blocks are held by several.
        trials: "wait" first. Empty when it gets tokens in the next step anyway, or stands too far back.
        last_step: step in which it ends at the latest if it were never held up again; None while it waits.
    """

    seq: int
    request_id: str
    place: str
    step: int
    decision: Decision | None
    checks: tuple[Check, ...]
    usable: int
    free: int
    cached: int
    shared: int
    holders: tuple[Holder, ...]
    trials: tuple[Trial, ...]
    last_step: int | None = None


def explain(scheduler: "Scheduler", key: int) -> Explanation:
    """Explain the sequence ``key``. The scheduler is not changed.

    Everything comes from the real scheduler: its next plan on a copy, and some dry runs, each bounded in steps and in
    work. To keep even that out of the engine's way, pass ``scheduler.copy(…)`` made between two steps.

    Raises:
        KeyError: no living sequence has this key.
    """
    seq = next((s for s in scheduler if s.key == key), None)
    if seq is None:
        raise KeyError(f"no living sequence has the key {key}")
    place = _place_in_line(scheduler.state, seq)
    twin = scheduler.copy(min(place, FARTHEST_PLACE) + 1)
    try:
        twin.plan()
    except Stalled:
        pass  # the decisions made on the way are what is asked for
    decision = twin.state.decisions.get(key)
    planned = decision is not None and decision.verdict in PLANNED
    checks = () if planned or seq.key in scheduler.state.leaving else _checks(scheduler, twin, seq, place)
    pool = scheduler.cache.pool
    holders, shared = _holders(scheduler.state)
    trials: tuple[Trial, ...] = ()
    if checks and place <= FARTHEST_PLACE:
        trials = _trials(scheduler, seq, checks, place, decision)
    left = max(0, seq.request.max_new_tokens - seq.num_output)
    return Explanation(
        key, seq.request.request_id, place_of(seq), scheduler.step, decision, checks,
        pool.usable, len(pool.free), len(pool.cached), shared, holders, trials,
        scheduler.step + left if planned and decision and decision.verdict is Verdict.DECODE else None,
    )  # fmt: skip


def _place_in_line(state: State, seq: Sequence) -> int:
    """From 1 for the head of the line; 0 for one that holds a row."""
    if seq.row >= 0:
        return 0
    return next((place for place, other in enumerate(state.line, 1) if other is seq), 0)


def _checks(scheduler: "Scheduler", twin: "Scheduler", seq: Sequence, place: int) -> tuple[Check, ...]:
    """Each check with the numbers as they stand at the end of the next step's walk, on the copy that made it."""
    state, settings, cache = twin.state, twin.settings, twin.cache
    here = next((s for s in twin if s.key == seq.key), seq)
    left = settings.max_batch_tokens - sum(s.length for f in list(state.flights)[-1:] for s in f.plan.slices)
    usable = cache.pool.usable
    missing = len(here.tokens) + here.pending - here.computed
    if here.row >= 0:
        need = cache.num_groups
    elif here.host:
        need = cache.quote_restore(here, max(1, min(missing, left)))
    else:
        hit = cache.prefix.lookup(here)
        missing = len(here.tokens) - hit.tokens
        need = cache.quote_start(here, hit, min(missing, settings.max_batch_tokens))
    decision = state.decisions.get(seq.key)
    behind = decision.a if decision is not None and decision.verdict is Verdict.WAIT_ORDER else -1
    if decision is None and place > 1:
        behind = next(iter(state.line)).key
    length = seq.num_prompt + seq.request.max_new_tokens - 1
    margin = usable - need
    checks = [
        Check("fits", True, cache.blocks_ever(length), scheduler.layout.num_blocks),
        Check("turn", behind < 0, place, behind),
        Check("row", here.row >= 0 or state.rows_taken < settings.max_requests_per_batch, state.rows_taken,
              settings.max_requests_per_batch),
        Check("tokens", left > 0, missing, left),
        Check("blocks", need <= usable, need, usable),
    ]  # fmt: skip
    if here.row < 0:
        checks.append(Check("margin", margin >= state.margin or not state.rows_taken, margin, state.margin))
    return tuple(checks)


def _holders(state: State) -> tuple[tuple[Holder, ...], int]:
    """Who holds blocks alone, most first, and how many blocks are held by several."""
    refs = state.cache.pool.refs
    holders = []
    for seq in [*state.running.values(), *state.leaving.values()]:
        own = [0, 0]
        for group, table in zip(state.layout.groups, seq.tables, strict=True):
            own[group.is_sliding] += sum(1 for block in table if block != TRASH_BLOCK and refs[block] == 1)
        freed = state.cache.freed_by(seq, {})
        holders.append(Holder(seq.key, seq.request.request_id, own[0], own[1], freed))
    holders.sort(key=lambda h: (-h.full - h.window, h.seq))
    return tuple(holders), sum(1 for count in refs if count > 1)


def _trials(
    scheduler: "Scheduler", seq: Sequence, checks: tuple[Check, ...], place: int, decision: Decision | None
) -> tuple[Trial, ...]:
    """Waiting, then everything worth trying. Each on a copy of its own."""

    def run(change: Callable[["Scheduler"], None] | None = None, ahead: int = place) -> Trial:
        twin = scheduler.copy(ahead + 1)
        if change is not None:
            change(twin)
        found = run_ahead(twin, seq.key)
        return Trial("wait", None, None, found.step, found.steps, False, "", found.ended)

    wait = run()
    trials = [replace(wait, price=ways.price_of_waiting(wait.step, wait.steps))]
    for way in ways.worth_trying(scheduler, seq, {c.name: (c.passed, c.a, c.b) for c in checks}, decision):
        trial = run(way.change)
        helps = trial.step is not None and (wait.step is None or trial.step < wait.step)
        trials.append(replace(trial, kind=way.kind, value=way.value, old=way.old, price=way.price, helps=helps))
    return tuple(trials)

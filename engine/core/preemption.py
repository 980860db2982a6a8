"""Making room: who has to go, and where to."""

from engine.core.observe import Decision, Verdict
from engine.core.policy import newer_than
from engine.core.request import RequestStatus, Sequence
from engine.core.state import State
from engine.core.walk import Walk


def make_room(state: State, walk: Walk, seq: Sequence, need: int) -> bool:
    """Preempt until ``need`` blocks are usable for ``seq``.

    Victims are those admitted after ``seq`` that have no part in this plan and whose release frees blocks, the newest
    first. Nobody is touched unless they suffice together. When they only suffice with some that a step in flight still
    computes, these are left out of this plan, so that they can go in the next.

    Returns:
        Whether ``need`` blocks are usable now.
    """
    pool = state.cache.pool
    if need <= pool.usable:
        return True
    if state.leaving and need <= pool.usable + _freed_soon(state):
        return False
    idle: list[Sequence] = []
    busy: list[Sequence] = []
    for other in newer_than(seq, state.running):
        if walk.is_planned(other) or other.key in walk.pinned:
            continue
        (busy if other.in_flight else idle).append(other)
    missing = need - pool.usable
    victims = _enough(state, idle, missing)
    if victims:
        for victim in victims:
            preempt(state, walk, victim, seq)
        return need <= pool.usable
    for other in _enough(state, [*idle, *busy], missing):
        if other.in_flight and other.key not in walk.decisions:
            walk.disturbed = True
            walk.wait(other, Verdict.WAIT_IN_FLIGHT, state.flights[-1].plan.step, 0)
    return False


def preempt(state: State, walk: Walk, victim: Sequence, reason: Sequence) -> None:
    """Take row and blocks from a running sequence with nothing in flight. It goes back into the line.

    Its cache goes to the host when that has room, else it is dropped. Tokens, times and log-probabilities stay.
    """
    cache, totals = state.cache, state.totals
    del state.running[victim.key]
    state.rows.give_back(victim.row)
    victim.row = -1
    victim.preemptions += 1
    state.held.pop(victim.key, None)
    before = cache.pool.usable
    cache.recycle(victim)
    blocks = cache.held_by(victim)
    if blocks <= len(cache.host.free):
        copies = cache.offload(victim)
        walk.offload.extend(copies)
        verdict = Verdict.OFFLOAD
        totals.offloads += 1
        totals.offloaded_blocks += blocks
    else:
        drop_work(state, victim)
        cache.restart(victim)
        verdict = Verdict.RECOMPUTE
    state.line.put_back(victim)
    walk.disturbed = True
    walk.limit = walk.limit or "blocks"
    freed = cache.pool.usable - before
    walk.decisions[victim.key] = Decision(victim.key, verdict, reason.key, freed)
    if state.journal.on:
        state.journal.touched[victim.key] = victim


def drop_work(state: State, seq: Sequence) -> None:
    """Remember how far a sequence had come whose cache is about to be dropped, and count the loss."""
    state.rework[seq.key] = max(seq.computed, state.rework.get(seq.key, 0))
    state.totals.preemptions += 1
    seq.status = RequestStatus.PENDING


def count_rework(state: State, seq: Sequence, start: int, length: int) -> None:
    """Count those of the tokens ``start … start + length - 1`` that were computed once before."""
    mark = state.rework.get(seq.key)
    if mark is None:
        return
    again = max(0, min(mark, start + length) - start)
    seq.recomputed += again
    state.totals.recomputed_tokens += again
    if start + length >= mark:
        del state.rework[seq.key]


def _enough(state: State, candidates: list[Sequence], missing: int) -> list[Sequence]:
    """The first of the candidates that together free ``missing`` blocks, or nobody.

    First only those that free something where they stand in the order; if that is too little, all of them, because
    two may share blocks that nobody else holds.
    """
    for only_useful in (True, False):
        dropped: dict[int, int] = {}
        chosen: list[Sequence] = []
        freed = 0
        for other in candidates:
            before = dict(dropped) if only_useful else dropped
            gain = state.cache.freed_by(other, dropped)
            if only_useful and not gain:
                dropped = before
                continue
            if state.cache.held_by(other) == 0:
                continue
            chosen.append(other)
            freed += gain
            if freed >= missing:
                return chosen
    return []


def _freed_soon(state: State) -> int:
    """Blocks that come back when the steps in flight are applied."""
    dropped: dict[int, int] = {}
    return sum(state.cache.freed_by(seq, dropped) for seq in state.leaving.values())

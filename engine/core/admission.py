"""Letting sequences of the line in: newcomers, siblings, dropped ones, and those parked on the host."""

from engine.core.observe import Decision, Verdict
from engine.core.prefix import Hit
from engine.core.request import Sequence
from engine.core.running import add_slice
from engine.core.state import State
from engine.core.walk import Walk

LOOK_AHEAD = 32
"""How many of the line get a decision in one step, and how far one may overtake an unfit head."""


def admit_waiting(state: State, walk: Walk) -> None:
    """Let in from the head of the line until one does not fit; those behind it wait for their turn.

    With a ``skip_limit`` others may overtake an unfit head, in that many steps at most; then all wait for it. One that
    was preempted in this very plan ends the walk: nobody comes in at the price of somebody pushed out in the same step.
    """
    passed: list[Sequence] = []
    while len(passed) < len(state.line):
        seq = state.line.head(len(passed) + 1)[-1]
        if seq.key in walk.decisions:
            passed.append(seq)
            break
        if (_restore if seq.host else _admit)(state, walk, seq, len(passed) + 1):
            continue
        passed.append(seq)
        unfit = walk.decisions[seq.key].verdict in (Verdict.WAIT_BLOCKS, Verdict.WAIT_MARGIN)
        if not unfit or len(passed) >= LOOK_AHEAD or not _may_overtake(state, passed[0]):
            break
    _count_overtaking(state, walk, passed)
    if passed:
        _explain_rest(state, walk, passed[-1])


def _admit(state: State, walk: Walk, seq: Sequence, place: int) -> bool:
    """Let in a sequence that holds nothing, or say why not. The checks stand in the order in which they are told."""
    cache = state.cache
    if not _row_and_tokens(state, walk, seq, len(seq.tokens)):
        return False
    leader = _leader(state, seq)
    if leader is not None and not leader.num_output and leader.settled < leader.num_prompt:
        walk.wait(seq, Verdict.WAIT_ORDER, leader.key, place)
        return False
    source, hit = _sibling_hit(state, seq) if leader is not None else (None, cache.prefix.lookup(seq))
    missing = len(seq.tokens) - hit.tokens
    chunk = min(missing, walk.left)
    alone = not state.rows_taken
    need = cache.quote_start(seq, hit, min(missing, state.settings.max_batch_tokens))
    if alone:
        chunk = min(chunk, cache.tokens_within(hit.pages, hit.tokens, cache.pool.usable - hit.revived))
    if not _blocks_and_margin(state, walk, seq, need, alone and chunk > 0):
        return False
    copies, new = cache.start(seq, hit, chunk)
    walk.fork.extend(copies)
    if copies and source is not None:
        walk.pinned.add(source.key)
    _count_hit(state, seq, hit)
    _take_row(state, seq)
    add_slice(state, walk, seq, chunk, Decision(seq.key, Verdict.ADMIT, hit.tokens, new))
    _note_rest(walk, missing - chunk)
    return True


def _restore(state: State, walk: Walk, seq: Sequence, place: int) -> bool:
    """Bring a sequence back from the host, or say why not."""
    cache = state.cache
    missing = len(seq.tokens) - seq.computed
    saving = state.saving_step(seq)
    if saving:
        walk.wait(seq, Verdict.WAIT_IN_FLIGHT, saving, 0)
        return False
    if not _row_and_tokens(state, walk, seq, missing):
        return False
    blocks = len(seq.host)
    chunk = min(missing, walk.left)
    alone = not state.rows_taken
    if alone:
        pages = -(-seq.computed // cache.page_size)
        chunk = min(chunk, cache.tokens_within(pages, seq.computed, cache.pool.usable - blocks))
    if not _blocks_and_margin(state, walk, seq, cache.quote_restore(seq, max(chunk, 1)), alone and chunk > 0):
        return False
    walk.restore.extend(cache.restore(seq, chunk, walk.step))
    state.totals.restores += 1
    state.totals.restored_blocks += blocks
    _take_row(state, seq)
    add_slice(state, walk, seq, chunk, Decision(seq.key, Verdict.RESTORE, blocks, cache.host.used))
    _note_rest(walk, missing - chunk)
    return True


def _row_and_tokens(state: State, walk: Walk, seq: Sequence, wanted: int) -> bool:
    """A free row and some budget?"""
    if state.rows_taken >= walk.rows:
        walk.wait(seq, Verdict.WAIT_ROWS, state.rows_taken, walk.rows, "rows")
        return False
    if walk.left <= 0:
        walk.wait(seq, Verdict.WAIT_TOKENS, wanted, 0, "tokens")
        return False
    return True


def _blocks_and_margin(state: State, walk: Walk, seq: Sequence, need: int, alone: bool) -> bool:
    """Enough blocks, and the margin kept? One that would run alone only needs blocks for its first tokens."""
    usable = state.cache.pool.usable
    if alone:
        return True
    if need > usable:
        walk.wait(seq, Verdict.WAIT_BLOCKS, need, usable, "blocks")
        return False
    if usable - need < state.margin and state.rows_taken:
        walk.wait(seq, Verdict.WAIT_MARGIN, usable - need, state.margin, "margin")
        return False
    return True


def _leader(state: State, seq: Sequence) -> Sequence | None:
    """The first living sibling, whose prompt the others take over; None for itself, and where nothing is shared."""
    if seq.request.num_return_sequences == 1 or not state.cache.prefix.sharing or seq.preemptions or seq.num_output:
        return None
    leader = state.families[seq.request.request_id][0]
    return None if leader is seq else leader


def _sibling_hit(state: State, seq: Sequence) -> tuple[Sequence | None, Hit]:
    """A running sibling that has written the whole prompt and what can be taken over from it, else a plain hit."""
    for sibling in state.families[seq.request.request_id]:
        if sibling.key in state.running and sibling.settled >= seq.num_prompt:
            hit = state.cache.prefix.lookup_sibling(seq, sibling)
            if hit is not None:
                return sibling, hit
    return None, state.cache.prefix.lookup(seq)


def _take_row(state: State, seq: Sequence) -> None:
    state.line.leave(seq)
    seq.row = state.rows.take()
    state.running[seq.key] = seq


def _count_hit(state: State, seq: Sequence, hit: Hit) -> None:
    totals = state.totals
    if not state.cache.prefix.sharing:
        return
    totals.lookups += 1
    totals.lookup_tokens += len(seq.tokens)
    totals.cached_tokens += hit.tokens
    if not seq.preemptions:
        seq.cached_tokens = hit.tokens


def _note_rest(walk: Walk, rest: int) -> None:
    """Tokens of a newcomer that did not fit into this step."""
    if rest and not walk.limit:
        walk.limit = "tokens" if walk.left <= 0 else "blocks"


def _may_overtake(state: State, head: Sequence) -> bool:
    key, times = state.overtaken
    return (times if key == head.key else 0) < state.settings.skip_limit


def _count_overtaking(state: State, walk: Walk, passed: list[Sequence]) -> None:
    """Remember in how many steps the head of the line was overtaken. Only its entry starts the count anew.

    Otherwise one quiet step would let the next row of small ones pass, and a large one might never come in.
    """
    if not state.settings.skip_limit or not passed:
        return
    head = passed[0]
    key, times = state.overtaken
    entered = (Verdict.ADMIT, Verdict.RESTORE)
    passed_by = any(d.verdict in entered and k > head.key for k, d in walk.decisions.items())
    state.overtaken = (head.key, (times if key == head.key else 0) + passed_by)


def _explain_rest(state: State, walk: Walk, blocker: Sequence) -> None:
    """Tell the next ones in the line whom they wait for. Remembered while nothing changes: long lines are common."""
    key, seqs, made = state.order
    head = state.line.head(LOOK_AHEAD + 1)
    if key != blocker.key or seqs != head:
        made = {
            seq.key: Decision(seq.key, Verdict.WAIT_ORDER, blocker.key, place)
            for place, seq in enumerate(head, 1)
            if seq is not blocker
        }
        state.order = (blocker.key, head, made)
    decisions = walk.decisions
    if len(head) < 2:
        return
    for seq in head:
        if seq.key in decisions and seq is not blocker:
            decisions.update({k: d for k, d in made.items() if k not in decisions})
            return
    decisions.update(made)

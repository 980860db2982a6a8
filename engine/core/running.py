"""Planning the sequences that hold a row: decode steps and chunks of prompts."""

from collections.abc import Iterable

from engine.core.observe import Decision, Verdict
from engine.core.plan import Slice
from engine.core.preemption import count_rework, make_room
from engine.core.quick import quick
from engine.core.request import RequestStatus, Sequence
from engine.core.state import State
from engine.core.walk import Walk

DECODE = Verdict.DECODE
make_decision = quick(Decision)
make_slice = quick(Slice)


def plan_decodes(state: State, walk: Walk, seqs: Iterable[Sequence], behind_prefill: bool) -> None:
    """One token for each sequence that only lacks its next token.

    The common step, no new block and nothing in the way, must stay short: it runs for every sequence in every step.

    Args:
        behind_prefill: prefills were planned before, so a decode without budget was held back by them.
    """
    cache, page_size, decisions, slices = state.cache, state.cache.page_size, walk.decisions, walk.slices
    windows = cache.windows
    held, stateful = state.held, state.stateful
    left = min(walk.left, walk.rows - len(slices))
    for seq in seqs:
        key = seq.key
        if walk.disturbed and key in decisions:
            continue
        start, pending, output = seq.computed, seq.pending, len(seq.tokens) - seq.num_prompt
        if pending and (output + pending >= seq.request.max_new_tokens or start > len(seq.tokens) or key in stateful):
            walk.wait(seq, Verdict.WAIT_IN_FLIGHT, state.flights[-1].plan.step, 0)
            continue
        if left <= 0:
            _hold_back(state, walk, seq, behind_prefill)
            continue
        new = 0
        for window, group in windows:
            behind = (start - seq.in_flight - window + 1) // page_size
            if behind > 0 and seq.tables[group][behind - 1]:
                cache.recycle(seq)
        if start == len(seq.tables[0]) * page_size:
            if cache.pool.usable < cache.num_groups and not make_room(state, walk, seq, cache.num_groups):
                walk.wait(seq, Verdict.WAIT_BLOCKS, cache.num_groups, cache.pool.usable, "blocks")
                continue
            new = cache.extend(seq, 1)
        slices.append(make_slice(seq, start, 1, True, pending > 0, output + pending))
        decisions[key] = make_decision(key, DECODE, start, new)
        seq.computed = start + 1
        seq.in_flight += 1
        seq.pending = 1
        left -= 1
        walk.left -= 1
        if held:
            held.pop(key, None)


def plan_chunks(state: State, walk: Walk, seqs: Iterable[Sequence]) -> None:
    """As many of the missing tokens as budget and blocks allow for each sequence that is behind."""
    cache = state.cache
    for seq in seqs:
        if walk.disturbed and seq.key in walk.decisions:
            continue
        missing = len(seq.tokens) - seq.computed
        if len(walk.slices) >= walk.rows:
            walk.wait(seq, Verdict.WAIT_ROWS, len(walk.slices), walk.rows, "rows")
            continue
        if walk.left <= 0:
            walk.wait(seq, Verdict.WAIT_TOKENS, missing, 0, "tokens")
            continue
        cache.recycle(seq)
        chunk = min(missing, walk.left)
        fits = cache.tokens_within(len(seq.tables[0]), seq.computed, cache.pool.usable)
        if fits < 1:
            if not make_room(state, walk, seq, cache.num_groups):
                walk.wait(seq, Verdict.WAIT_BLOCKS, cache.num_groups, cache.pool.usable, "blocks")
                continue
            fits = cache.tokens_within(len(seq.tables[0]), seq.computed, cache.pool.usable)
        if fits < chunk:
            chunk = fits
            walk.limit = walk.limit or "blocks"
        elif chunk < missing:
            walk.limit = walk.limit or "tokens"
        new = cache.extend(seq, chunk)
        if chunk == missing == 1 and seq.computed >= seq.num_prompt:
            decision = Decision(seq.key, DECODE, seq.computed, new)
        else:
            decision = Decision(seq.key, Verdict.CHUNK, chunk, missing - chunk)
        add_slice(state, walk, seq, chunk, decision)


def add_slice(state: State, walk: Walk, seq: Sequence, length: int, decision: Decision) -> None:
    """Plan ``length`` tokens of a sequence that has blocks for them and nothing to wait for."""
    start, known = seq.computed, len(seq.tokens)
    samples = start + length == known
    walk.slices.append(Slice(seq, start, length, samples, False, known - seq.num_prompt))
    walk.decisions[seq.key] = decision
    walk.left -= length
    if not (samples and length == 1 and start >= seq.num_prompt):
        walk.prompt_tokens += length
    if state.rework:
        count_rework(state, seq, start, length)
    seq.computed = start + length
    seq.in_flight += length
    seq.status = RequestStatus.DECODING if samples else RequestStatus.PREFILLING
    if samples:
        seq.pending = 1


def _hold_back(state: State, walk: Walk, seq: Sequence, behind_prefill: bool) -> None:
    """No room in this step for a decode."""
    if walk.left > 0:
        walk.wait(seq, Verdict.WAIT_ROWS, len(walk.slices), walk.rows, "rows")
    elif behind_prefill:
        state.held[seq.key] = state.held.get(seq.key, 0) + 1
        walk.wait(seq, Verdict.WAIT_PREFILL, state.held[seq.key], state.settings.max_steps_without_decode, "tokens")
    else:
        walk.wait(seq, Verdict.WAIT_TOKENS, 1, 0, "tokens")

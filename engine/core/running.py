"""Planning the sequences that hold a row: decode steps and chunks of prompts."""

from collections.abc import Iterable
from typing import Any

from engine.core.observe import Decision, Verdict
from engine.core.plan import Slice
from engine.core.preemption import count_rework, make_room
from engine.core.quick import freeze, open_twin
from engine.core.request import RequestStatus, Sequence
from engine.core.state import State
from engine.core.walk import Walk

DECODE = Verdict.DECODE
open_decision = open_twin(Decision)
open_slice = open_twin(Slice)


def plan_decodes(state: State, walk: Walk, seqs: Iterable[Sequence], behind_prefill: bool) -> None:
    """One token for each sequence that only lacks its next token.

    The common step, no new block and nothing in the way, must stay short: it runs for every sequence in every step.

    Args:
        behind_prefill: prefills were planned before, so a decode without budget was held back by them.
    """
    cache, page_size, windows = state.cache, state.cache.page_size, state.cache.windows
    held, stateful, decisions = state.held, state.stateful, walk.decisions
    rows = walk.rows - len(walk.slices)
    left = min(walk.left, rows)
    slices: list[Any] = []
    decided: list[Any] = []
    for seq in seqs:
        key = seq.key
        if walk.disturbed and key in decisions:
            continue
        start, pending, output = seq.computed, seq.pending, len(seq.tokens) - seq.num_prompt
        if pending and (output + pending >= seq.request.max_new_tokens or start > len(seq.tokens) or key in stateful):
            walk.wait(seq, Verdict.WAIT_IN_FLIGHT, state.flights[-1].plan.step, 0)
            continue
        if not left:
            _hold_back(state, walk, seq, len(slices) == rows, behind_prefill)
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
        slices.append(open_slice(seq, start, 1, True, pending > 0, output + pending))
        decision = decisions[key] = open_decision(key, DECODE, start, new)
        decided.append(decision)
        seq.computed = start + 1
        seq.in_flight += 1
        seq.pending = 1
        left -= 1
        if held:
            held.pop(key, None)
    walk.left -= len(slices)
    walk.slices.extend(freeze(slices, Slice))
    freeze(decided, Decision)


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


def _hold_back(state: State, walk: Walk, seq: Sequence, rows_full: bool, behind_prefill: bool) -> None:
    """No room in this step for a decode."""
    if rows_full:
        walk.wait(seq, Verdict.WAIT_ROWS, walk.rows, walk.rows, "rows")
    elif behind_prefill:
        held = state.held[seq.key] = state.held.get(seq.key, 0) + 1
        walk.wait(seq, Verdict.WAIT_PREFILL, held, state.settings.max_steps_without_decode, "tokens")
    else:
        walk.wait(seq, Verdict.WAIT_TOKENS, 1, 0, "tokens")

"""Taking in the result of a step."""

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.core.errors import InvariantError
from engine.core.lifecycle import depart, end
from engine.core.plan import StepPlan, StepResult
from engine.core.preemption import drop_work
from engine.core.request import FinishReason, RequestStatus, Sequence
from engine.core.state import Flight, State
from engine.core.stop import TextOf, end_of


class TokenEvent(NamedTuple):
    """One new token of a sequence; ``logprob`` is None when nobody asked for it."""

    seq: Sequence
    token: int
    logprob: float | None = None


@dataclass(slots=True)
class Outcome:
    """What a step brought: new tokens in plan order, and the sequences that ended."""

    tokens: list[TokenEvent] = field(default_factory=list)
    ended: list[Sequence] = field(default_factory=list)


def apply_result(state: State, plan: StepPlan, result: StepResult, now: float, text_of: TextOf | None) -> Outcome:
    """See ``Scheduler.apply``."""
    outcome = Outcome()
    flight = _take_flight(state, plan)
    if flight is None:
        return outcome
    if state.journal.on and state.journal.plan is not plan:  # else it was noted as it was planned
        state.journal.touch_slices(plan.slices)
    if result.error is not None:
        _fail_step(state, plan, result.error, now, outcome)
    else:
        _take_rows(state, plan, result, now, text_of, outcome)
        state.totals.prompt_tokens += flight.prompt_tokens
    state.cache.host.settle(plan.step)
    if state.journal.on:
        state.journal.outputs.extend([(seq.key, token, logprob) for seq, token, logprob in outcome.tokens])
    return outcome


def _take_rows(
    state: State, plan: StepPlan, result: StepResult, now: float, text_of: TextOf | None, outcome: Outcome
) -> None:
    """Each slice in plan order: its tokens are written now, and the sampled one is known."""
    page_size, cache, leaving = state.cache.page_size, state.cache, state.leaving
    tokens, logprobs, tops, failures = result.tokens, result.logprobs, result.top_logprobs, result.failures
    events = outcome.tokens
    row = -1
    for piece in plan.slices:
        seq, length = piece.seq, piece.length
        seq.in_flight -= length
        if piece.samples:
            row += 1
        failed = failures and piece.samples and row in failures
        if failed:
            cache.prefix.disown(seq)
        if leaving and seq.key in leaving:
            _leave(state, seq, now, outcome)
            continue
        if failed:
            end(state, seq, FinishReason.FAILED, now, f"{failures[row]} at step {plan.step}")
            outcome.ended.append(seq)
            continue
        if (seq.computed - seq.in_flight) % page_size < length:
            cache.settle(seq)
        if seq.started_time < 0:
            seq.started_time = now
        if not piece.samples:
            continue
        token = tokens[row]
        logprob = logprobs[row] if logprobs is not None else None
        seq.pending = 1 if seq.in_flight else 0
        seq.tokens.append(token)
        if logprob is not None:
            seq.logprobs.append(logprob)
        if tops is not None:
            seq.top_logprobs.append(tops[row])
        if seq.first_token_time < 0:
            seq.first_token_time = now
        request = seq.request
        if request.record_timestamps:
            seq.timestamps.append(now)
        events.append(TokenEvent(seq, token, logprob))
        if (
            token in request.eos_ids
            or len(seq.tokens) - seq.num_prompt >= request.max_new_tokens
            or request.stop_strings
        ):
            reason = end_of(seq, token, state.stops.get(seq.key), text_of)
            if reason is not None:
                end(state, seq, reason, now)
                outcome.ended.append(seq)
    state.totals.output_tokens += len(events)


def _take_flight(state: State, plan: StepPlan) -> Flight | None:
    """The flight of a plan, which must be the oldest. None for an empty plan or one that was forgotten."""
    if state.flights and state.flights[0].plan is plan:
        return state.flights.popleft()
    if (not plan.slices and not plan.copies) or plan.step <= state.abandoned:
        return None
    expected = state.flights[0].plan.step if state.flights else "none"
    raise InvariantError(f"step {plan.step} cannot be applied now: the step to apply next is {expected}")


def _leave(state: State, seq: Sequence, now: float, outcome: Outcome) -> None:
    """A sequence that was over, or cancelled, while this step was in flight; its token is thrown away."""
    if seq.status < RequestStatus.FINISHED:
        end(state, seq, FinishReason.CANCELLED, now)
        outcome.ended.append(seq)
    elif not seq.in_flight:
        depart(state, seq)


def _fail_step(state: State, plan: StepPlan, error: BaseException, now: float, outcome: Outcome) -> None:
    """The step failed as a whole. Its sequences fail with the cause; all others live on.

    What it should have copied to the host may not be there, so those sequences are computed again.
    """
    text = f"step {plan.step} failed: {type(error).__name__}: {error}"
    for piece in plan.slices:
        seq = piece.seq
        seq.in_flight -= piece.length
        if seq.key in state.leaving:
            _leave(state, seq, now, outcome)
        else:
            end(state, seq, FinishReason.FAILED, now, text)
            outcome.ended.append(seq)
    lost = {slot for _, slot in plan.copies.offload}
    for seq in [s for s in state.line.parked if any(slot in lost for _, _, slot in s.host)]:
        _compute_again(state, seq)


def _compute_again(state: State, seq: Sequence) -> None:
    """A parked sequence whose host copy is not to be trusted."""
    state.line.leave(seq)
    drop_work(state, seq)
    state.cache.restart(seq)
    state.line.put_back(seq)
    if state.journal.on:
        state.journal.touched[seq.key] = seq

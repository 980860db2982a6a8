"""How sequences enter and leave: refusal with numbers, admission to the line, the end for whatever reason."""

from dataclasses import dataclass

from engine.core.errors import RequestError
from engine.core.journal import info_of
from engine.core.observe import Decision, Verdict
from engine.core.plan import StepPlan
from engine.core.policy import needs_known_tokens
from engine.core.request import FinishReason, Request, RequestStatus, Sequence
from engine.core.state import State
from engine.core.stop import StopText

STATUS_OF = {
    FinishReason.CANCELLED: RequestStatus.CANCELLED,
    FinishReason.FAILED: RequestStatus.FAILED,
    FinishReason.STOPPED: RequestStatus.FAILED,
}
VERDICT_OF = {
    RequestStatus.FINISHED: Verdict.FINISHED,
    RequestStatus.CANCELLED: Verdict.CANCELLED,
    RequestStatus.FAILED: Verdict.FAILED,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request cannot be accepted; ``decision`` has the numbers, where numbers say it (its ``seq`` is -1)."""

    text: str
    decision: Decision | None = None


def refusal(state: State, request: Request) -> Refusal | None:
    """Whether a request can never run here, and why. Says nothing about the room there is now."""
    if not request.prompt_ids:
        return Refusal("the prompt is empty: give at least one token")
    if request.num_return_sequences < 1:
        return Refusal(f"num_return_sequences is {request.num_return_sequences}; the least is 1")
    if request.max_new_tokens < 0:
        return Refusal(f"max_new_tokens is {request.max_new_tokens}; the least is 0")
    length = len(request.prompt_ids) + request.max_new_tokens
    limit = state.settings.max_length
    if limit is not None and length > limit:
        return Refusal(
            f"{len(request.prompt_ids)} prompt tokens and {request.max_new_tokens} new ones are {length}, but the model"
            f" ends at {limit}: shorten the prompt or ask for fewer new tokens",
            Decision(-1, Verdict.REJECT_TOO_LONG, length, limit),
        )
    if request.max_new_tokens:
        need, pool = state.cache.blocks_ever(length - 1), state.layout.num_blocks
        if need > pool:
            return Refusal(
                f"can never fit: {length} tokens need {need} blocks of {state.layout.page_size} tokens,"
                f" but the pool has {pool}: shorten it or give the cache more blocks",
                Decision(-1, Verdict.REJECT_NEVER_FITS, need, pool),
            )
    return None


def enter(state: State, request: Request, now: float) -> list[Sequence]:
    """Put all sequences of a request at the end of the line, or refuse it whole.

    Raises:
        RequestError: refused; one FAILED sequence is recorded where the numbers say why.
    """
    if request.request_id in state.families:
        state.totals.rejected += 1
        raise RequestError(f"request id {request.request_id!r} is in use by a live request: choose another id")
    refused = refusal(state, request)
    if refused is not None:
        state.totals.rejected += 1
        _record_refusal(state, request, refused, now)
        raise RequestError(f"request {request.request_id!r}: {refused.text}")
    state.totals.accepted += request.num_return_sequences
    family = []
    for child in range(request.num_return_sequences):
        seq = _new_sequence(state, request, child)
        family.append(seq)
        if state.journal.on:
            state.journal.requests.append(info_of(seq))
            state.journal.touched[seq.key] = seq
        if request.max_new_tokens == 0:
            end(state, seq, FinishReason.LENGTH, now)
        else:
            state.line.join(seq)
            if request.stop_strings:
                state.stops[seq.key] = StopText(request.stop_strings)
            if needs_known_tokens(request.sampling):
                state.stateful.add(seq.key)
    if request.max_new_tokens:
        state.families[request.request_id] = family[:]
    return family


def end(state: State, seq: Sequence, reason: FinishReason, now: float, error: str | None = None) -> None:
    """A sequence is over. Its blocks go back now, or when the last step that computes it is applied."""
    seq.status = STATUS_OF.get(reason, RequestStatus.FINISHED)
    seq.finish_reason = reason
    seq.error = error
    seq.finished_time = now
    totals = state.totals
    if seq.status is RequestStatus.FINISHED:
        totals.finished += 1
    elif seq.status is RequestStatus.CANCELLED:
        totals.cancelled += 1
    else:
        totals.failed += 1
    stop = state.stops.pop(seq.key, None)
    if stop is not None and reason is not FinishReason.STOP_STRING:
        seq.text += stop.flush()
    _leave_family(state, seq)
    freed = 0
    if seq.in_flight:
        state.running.pop(seq.key, None)
        state.leaving[seq.key] = seq
    else:
        freed = depart(state, seq)
    if state.journal.on:
        verdict = VERDICT_OF[seq.status]
        state.journal.decide(seq, Decision(seq.key, verdict, seq.num_output, freed))


def depart(state: State, seq: Sequence) -> int:
    """The last trace of an ended sequence goes: its place, row, blocks and host slots. Returns blocks freed."""
    key = seq.key
    if seq.row >= 0:
        state.running.pop(key, None)
        state.leaving.pop(key, None)
        state.rows.give_back(seq.row)
        seq.row = -1
    elif seq in state.line:
        state.line.leave(seq)
    state.rework.pop(key, None)
    state.held.pop(key, None)
    state.stateful.discard(key)
    freed = state.cache.forget(seq)
    if state.journal.on:
        state.journal.touched[key] = seq
        state.journal.ended.append(seq)
    return freed


def withdraw(state: State, seq: Sequence, now: float) -> bool:
    """Cancel one sequence. Returns False when a step that computes it is in flight: then it ends as that is applied."""
    if not seq.in_flight:
        end(state, seq, FinishReason.CANCELLED, now)
        return True
    state.running.pop(seq.key, None)
    state.leaving[seq.key] = seq
    return False


def _new_sequence(state: State, request: Request, child: int) -> Sequence:
    seq = Sequence(state.next_key, request, child, list(request.prompt_ids), len(request.prompt_ids))
    seq.tables = [[] for _ in state.layout.groups]
    state.next_key += 1
    return seq


def _leave_family(state: State, seq: Sequence) -> None:
    family = state.families.get(seq.request.request_id)
    if family is not None and seq in family:
        family.remove(seq)
        if not family:
            del state.families[seq.request.request_id]


def _record_refusal(state: State, request: Request, refused: Refusal, now: float) -> None:
    """Let a watcher see what was refused: it enters and ends in one record. Nobody else ever sees this sequence.

    Its key is used up in any case, so that watching changes nothing.
    """
    seq = _new_sequence(state, request, 0)
    if not state.journal.on:
        return
    seq.status, seq.finish_reason = RequestStatus.FAILED, FinishReason.FAILED
    seq.error, seq.finished_time = refused.text, now
    journal = state.journal
    journal.requests.append(info_of(seq))
    journal.touched[seq.key] = seq
    journal.ended.append(seq)
    if refused.decision is not None:
        journal.decide(seq, Decision(seq.key, refused.decision.verdict, refused.decision.a, refused.decision.b))


def end_all(state: State, reason: FinishReason, error: str | None, now: float) -> list[Sequence]:
    """End every sequence, give everything back and forget the steps in flight. Returns those that ended, by key."""
    state.flights.clear()
    state.abandoned = state.step
    ended = []
    for seq in state.sequences():
        seq.in_flight = seq.pending = 0
        if seq.status >= RequestStatus.FINISHED:
            depart(state, seq)
        else:
            end(state, seq, reason, now, error)
            ended.append(seq)
    state.cache.host.settle(state.step)
    return ended


def note_start(plan: StepPlan, now: float) -> None:
    """Keep the time at which newly admitted sequences started."""
    for piece in plan.slices:
        if piece.seq.started_time < 0:
            piece.seq.started_time = now

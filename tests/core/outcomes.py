"""What a request owes its caller, and what the running totals must add up to."""

from engine.core.counters import Counters
from engine.core.outcome import Outcome
from engine.core.plan import StepPlan, StepResult
from engine.core.request import FinishReason, Sequence
from tests.core.fake_model import expected, logprob

WHOLE = (FinishReason.EOS, FinishReason.STOP_STRING, FinishReason.LENGTH)


def check_output(seq: Sequence, reason: FinishReason | None) -> list[str]:
    """What a sequence has so far, or ended with, is what it would have alone. ``reason`` is None while it lives."""
    wanted = expected(seq.request, seq.child)
    got = tuple(seq.tokens[seq.num_prompt :])
    who = f"sequence {seq.key} ({seq.output_id}, {reason or 'live'})"
    broken = []
    if got != wanted.tokens[: len(got)]:
        broken.append(f"{who}: output {got}, alone it is {wanted.tokens}")
    if reason in WHOLE:
        if (got, reason) != (wanted.tokens, wanted.reason):
            broken.append(f"{who}: ended with {got} {reason}, alone with {wanted.tokens} {wanted.reason}")
        if seq.request.stop_strings and seq.text != wanted.text:
            broken.append(f"{who}: text {seq.text!r}, alone {wanted.text!r}")
    elif reason is None and len(got) >= len(wanted.tokens):
        broken.append(f"{who}: has all its tokens and lives on")
    return broken + _check_extras(seq, got, who)


def _check_extras(seq: Sequence, got: tuple[int, ...], who: str) -> list[str]:
    broken = []
    if seq.request.record_timestamps and len(seq.timestamps) != len(got):
        broken.append(f"{who}: {len(seq.timestamps)} timestamps for {len(got)} tokens")
    if seq.timestamps != sorted(seq.timestamps):
        broken.append(f"{who}: timestamps {seq.timestamps} go back")
    if seq.timestamps and seq.first_token_time != seq.timestamps[0]:
        broken.append(f"{who}: first token at {seq.first_token_time}, timestamps {seq.timestamps}")
    if seq.request.sampling.logprobs >= 0 and seq.logprobs != [logprob(t, i) for i, t in enumerate(got)]:
        broken.append(f"{who}: log-probabilities {seq.logprobs} for {got}")
    return broken


def check_counters(
    before: Counters, now: Counters, sequences: list[Sequence], ended: dict[int, FinishReason]
) -> list[str]:
    """Totals never go down, and equal what all sequences ever accepted add up to."""
    broken = [
        f"counter {name} went from {getattr(before, name)} to {getattr(now, name)}"
        for name in Counters.__dataclass_fields__
        if getattr(now, name) < getattr(before, name)
    ]
    reasons = list(ended.values())
    facts = {
        "finished": sum(1 for r in reasons if r in WHOLE),
        "failed": reasons.count(FinishReason.FAILED),
        "cancelled": reasons.count(FinishReason.CANCELLED),
        "output_tokens": sum(s.num_output for s in sequences),
        "recomputed_tokens": sum(s.recomputed for s in sequences),
    }
    if not any(s.preemptions for s in sequences):
        # Who comes back after a preemption asks the cache again, and keeps the figure of its first admission.
        facts["cached_tokens"] = sum(s.cached_tokens for s in sequences)
    return broken + [
        f"counter {name} is {getattr(now, name)}, counted {value}"
        for name, value in facts.items()
        if getattr(now, name) != value
    ]


def check_delivery(
    plan: StepPlan, result: StepResult, outcome: Outcome, known: dict[int, int], quiet: set[int]
) -> list[str]:
    """Each sampling row's token reaches its own sequence, once.

    Args:
        known: tokens each living sequence had before; others are owed nothing.
        quiet: sequences that failed or were cancelled with this step and get no token.
    """
    rows = {s.seq.key: row for row, s in enumerate(s for s in plan.slices if s.samples)}
    broken = []
    for event in outcome.tokens:
        key = event.seq.key
        if key not in rows or key in quiet or result.error is not None:
            broken.append(f"sequence {key} got token {event.token} from nowhere")
        elif [event.token] != event.seq.tokens[known[key] :] or event.token != result.tokens[rows[key]]:
            broken.append(f"sequence {key} was handed {event.token}, drawn {result.tokens[rows[key]]}")
    told = [event.seq.key for event in outcome.tokens]
    owed = set(rows) & set(known) - quiet
    if len(set(told)) != len(told) or not owed <= set(told):
        broken.append(f"tokens for {told}, owed to {sorted(owed)}")
    return broken

"""What a person could do so that a waiting sequence starts sooner. Only proposals; dry runs tell whether they help."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.core.observe import Decision, Verdict
from engine.core.policy import margin_blocks
from engine.core.request import Sequence

if TYPE_CHECKING:
    from engine.core.scheduler import Scheduler

SKIP_TRIED = 8
"""Skip limit proposed to one that waits behind an unfit head."""


@dataclass(frozen=True, slots=True)
class Way:
    """Something to do, how to do it to a copy, and its price. Names as in ``Trial``."""

    kind: str
    value: float | int | str
    old: float | int | str | None
    price: str
    change: Callable[["Scheduler"], None]


def price_of_waiting(step: int | None, steps: int) -> str:
    """Waiting costs nothing but time."""
    return "at the latest, if everybody runs to the last token" if step is not None else f"not within {steps} steps"


def worth_trying(
    scheduler: "Scheduler", seq: Sequence, checks: Mapping[str, tuple[bool, int, int]], decision: Decision | None
) -> list[Way]:
    """Proposals in the order of their price: settings first, then pushing somebody out.

    Args:
        scheduler: the live one; only looked at.
        seq: the sequence that waits.
        checks: name -> (passed, a, b), see ``Check``.
        decision: what the next step would decide for it.
    """
    settings = scheduler.settings
    ways: list[Way] = []
    if seq.row < 0 and scheduler.state.margin:
        ways += _lower_margins(scheduler, checks)
    ways += _cancel_one(scheduler, seq, checks, decision)
    if decision is not None and decision.verdict is Verdict.WAIT_ORDER and settings.skip_limit < SKIP_TRIED:
        price = f"the head of the queue may be overtaken {SKIP_TRIED} steps in a row"
        ways.append(_setting("skip", "skip_limit", settings.skip_limit, SKIP_TRIED, price))
    tokens, rows = 2 * settings.max_batch_tokens, settings.max_requests_per_batch + 1
    ways.append(
        _setting(
            "tokens", "max_batch_tokens", settings.max_batch_tokens, tokens, "larger steps, longer waits in between"
        )
    )
    ways.append(
        _setting("rows", "max_requests_per_batch", settings.max_requests_per_batch, rows, "one more shares the pool")
    )
    other = "fifo" if settings.policy == "prefill_first" else "prefill_first"
    ways.append(_setting("policy", "policy", settings.policy, other, _price_of_policy(scheduler, other)))
    return ways


def _setting(kind: str, field: str, old: float | int | str, value: float | int | str, price: str) -> Way:
    def change(twin: "Scheduler") -> None:
        twin.configure(replace(twin.settings, **{field: value}))  # type: ignore[arg-type]

    return Way(kind, value, old, price, change)


def _lower_margins(scheduler: "Scheduler", checks: Mapping[str, tuple[bool, int, int]]) -> list[Way]:
    """The largest margin in whole percent that lets it in now, and one half way there."""
    old, pool = scheduler.settings.safety_margin, scheduler.layout.num_blocks
    _, left, _ = checks["margin"]
    enough = max(0, int(100 * left / pool)) / 100 if left >= 0 else 0.0
    values = [round((old + enough) / 2, 2), enough]
    ways = []
    for value in dict.fromkeys(values):
        if value < old:
            settings = replace(scheduler.settings, safety_margin=value)
            kept, before = margin_blocks(settings, pool), scheduler.state.margin
            price = f"keeps back {kept} blocks instead of {before}"
            ways.append(_setting("margin", "safety_margin", old, value, price))
    return ways


def _cancel_one(
    scheduler: "Scheduler", seq: Sequence, checks: Mapping[str, tuple[bool, int, int]], decision: Decision | None
) -> list[Way]:
    """Cancel the one who stands before it, and the running one with the least work whose blocks are enough."""
    ways = []
    if decision is not None and decision.verdict is Verdict.WAIT_ORDER:
        ahead = next((s for s in scheduler.state.line if s.key == decision.a), None)
        if ahead is not None and ahead.request is not seq.request:
            ways.append(_cancel(scheduler, ahead))
    _, need, usable = checks["blocks"]
    missing = max(0, need - usable)
    if "margin" in checks:
        _, left, kept = checks["margin"]
        missing = max(missing, kept - left)
    gains = {s.key: scheduler.cache.freed_by(s, {}) for s in scheduler.running if s.request is not seq.request}
    if gains:
        others = [s for s in scheduler.running if s.key in gains]
        enough = [s for s in others if gains[s.key] >= missing]
        chosen = min(enough, key=lambda s: s.computed) if enough else max(others, key=lambda s: gains[s.key])
        ways.append(_cancel(scheduler, chosen))
    return ways


def _cancel(scheduler: "Scheduler", victim: Sequence) -> Way:
    request_id = victim.request.request_id
    family = scheduler.sequences_of(request_id) or (victim,)
    gone: dict[int, int] = {}
    freed = sum(scheduler.cache.freed_by(s, gone) for s in family)
    lost = sum(s.computed for s in family)

    def change(twin: "Scheduler") -> None:
        twin.cancel(request_id, 0.0)

    price = f"frees {freed} blocks, loses {lost} tokens of work"
    return Way("cancel", victim.key, None, price, change)


def _price_of_policy(scheduler: "Scheduler", policy: str) -> str:
    if policy == "fifo":
        return "prompts wait for decodes"
    return f"decodes may wait up to {scheduler.settings.max_steps_without_decode} steps for prompts"

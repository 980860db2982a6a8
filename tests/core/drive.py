"""A scheduler stepped by hand with tokens chosen by the test, all invariants checked on the way."""

from collections.abc import Callable

from engine.core.groups import group_layers
from engine.core.invariants import check, check_plan
from engine.core.layout import CacheLayout, SchedulerSettings
from engine.core.observe import Decision, Verdict
from engine.core.plan import Slice, StepPlan, StepResult
from engine.core.request import Request, SamplingParams, Sequence
from engine.core.scheduler import Outcome, Scheduler

Pick = Callable[[Slice], int]
FULL = (None,)
HYBRID = (None, 6)


def constant(piece: Slice) -> int:
    """A token that depends on the sequence only and is in no prompt of these tests."""
    return 1_000 + piece.seq.key


def build(
    num_blocks: int = 40,
    windows: tuple[int | None, ...] = FULL,
    page_size: int = 4,
    host_blocks: int = 0,
    text_of: Callable[[Sequence], str] | None = None,
    **settings: object,
) -> Scheduler:
    """A small scheduler. Pool: ``num_blocks`` over all groups; margin 0 unless given."""
    values: dict[str, object] = {"max_batch_tokens": 16, "max_requests_per_batch": 8, "safety_margin": 0.0, **settings}
    layout = CacheLayout(page_size, group_layers(windows), num_blocks, host_blocks)
    return Scheduler(layout, SchedulerSettings(**values), text_of)  # type: ignore[arg-type]


def ask(name: str, prompt: int | tuple[int, ...], new: int = 4, **fields: object) -> Request:
    """A request; a number stands for that many tokens which no other name shares."""
    ids = prompt if isinstance(prompt, tuple) else tuple(hash_free(name) + i for i in range(prompt))
    return Request(name, ids, fields.pop("sampling", SamplingParams()), new, **fields)  # type: ignore[arg-type]


def hash_free(name: str) -> int:
    """A number for a name, the same in every process."""
    return 10_000 * (1 + sum(ord(c) * 31**i for i, c in enumerate(name)) % 9_973)


def plan(scheduler: Scheduler) -> StepPlan:
    """Plan one step and check everything."""
    made = scheduler.plan()
    assert check_plan(scheduler, made) == []
    assert check(scheduler) == []
    return made


def finish(scheduler: Scheduler, made: StepPlan, pick: Pick = constant, now: float = 0.0) -> Outcome:
    """Apply a plan with the tokens ``pick`` chooses, and check everything."""
    outcome = scheduler.apply(made, StepResult([pick(s) for s in made.slices if s.samples]), now)
    assert check(scheduler) == []
    return outcome


def step(scheduler: Scheduler, pick: Pick = constant, now: float = 0.0) -> tuple[StepPlan, Outcome]:
    made = plan(scheduler)
    return made, finish(scheduler, made, pick, now)


def drain(scheduler: Scheduler, pick: Pick = constant, limit: int = 500) -> list[Sequence]:
    """Step until nobody is left. Returns those that ended, in order."""
    ended: list[Sequence] = []
    for _ in range(limit):
        if not scheduler.has_work:
            return ended
        ended += step(scheduler, pick)[1].ended
    raise AssertionError(f"still work after {limit} steps")


def told(made: StepPlan) -> dict[int, Decision]:
    """Key -> decision of a plan."""
    return {d.seq: d for d in made.decisions}


def verdicts(made: StepPlan) -> dict[int, Verdict]:
    """Key -> verdict of a plan."""
    return {d.seq: d.verdict for d in made.decisions}

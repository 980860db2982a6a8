"""Explanations: the numbers are the scheduler's own, and what a dry run promises is what then happens."""

from dataclasses import replace

import pytest

from engine.core.forecast import FARTHEST_PLACE, Explanation, Trial, explain
from engine.core.observe import Verdict
from engine.core.plan import StepResult
from engine.core.scheduler import Scheduler
from tests.core.drive import HYBRID, ask, build, constant, finish, plan, step, told


def crowded(**settings: object) -> Scheduler:
    """Two that run, a third that does not fit, a fourth behind it."""
    scheduler = build(num_blocks=20, **settings)
    for name, size, new in (("a", 24, 12), ("b", 20, 20), ("c", 40, 3), ("d", 4, 3)):
        scheduler.add(ask(name, size, new))
    for _ in range(6):
        step(scheduler)
    return scheduler


def happens(scheduler: Scheduler, key: int) -> int:
    """The step in which tokens of ``key`` are planned, everybody running to the end."""
    for _ in range(200):
        made = plan(scheduler)
        if key in {s.seq.key for s in made.slices}:
            return made.step
        finish(scheduler, made)
    raise AssertionError("it never starts")


def of_kind(answer: Explanation, kind: str) -> list[Trial]:
    return [t for t in answer.trials if t.kind == kind]


@pytest.mark.parametrize("name", ["c", "d"])
def test_waiting_takes_as_long_as_the_forecast_says(name: str) -> None:
    scheduler = crowded()
    (seq,) = scheduler.sequences_of(name)
    answer = explain(scheduler, seq.key)
    wait = answer.trials[0]
    assert wait.kind == "wait" and wait.steps == wait.step - scheduler.step  # type: ignore[operator]
    assert happens(scheduler, seq.key) == wait.step
    assert {key for key, at in wait.ended if at < wait.step} == {  # type: ignore[operator]
        s for s in range(4) if s not in {q.key for q in scheduler}
    }


def test_the_checks_carry_the_numbers_of_the_decision() -> None:
    scheduler = crowded()
    (seq,) = scheduler.sequences_of("c")
    answer = explain(scheduler, seq.key)
    checks = {c.name: (c.passed, c.a, c.b) for c in answer.checks}
    assert list(checks) == ["fits", "turn", "row", "tokens", "blocks", "margin"]
    made = plan(scheduler)
    decision = told(made)[seq.key]
    assert answer.decision == decision and decision.verdict is Verdict.WAIT_BLOCKS
    assert checks["blocks"] == (False, decision.a, decision.b)
    assert checks["fits"] == (True, 11, 20)
    assert checks["turn"] == (True, 1, -1)
    assert checks["row"] == (True, 2, 8)
    assert checks["tokens"] == (True, 40, 16 - made.num_tokens)
    assert answer.usable == answer.free + answer.cached
    assert sum(h.full + h.window for h in answer.holders) + answer.shared + answer.usable == 20


def test_one_behind_another_is_told_whom_it_waits_for() -> None:
    scheduler = crowded()
    c, d = (scheduler.sequences_of(n)[0] for n in "cd")
    answer = explain(scheduler, d.key)
    assert {c_.name: (c_.passed, c_.a, c_.b) for c_ in answer.checks}["turn"] == (False, 2, c.key)
    (cancel_ahead, *_) = of_kind(answer, "cancel")
    assert cancel_ahead.value == c.key and cancel_ahead.helps
    (skip,) = of_kind(answer, "skip")
    assert skip.helps
    scheduler.configure(replace(scheduler.settings, skip_limit=int(skip.value or 0)))
    assert happens(scheduler, d.key) == skip.step


@pytest.mark.parametrize(("windows", "margin"), [((None,), 0.4), (HYBRID, 0.5)])
def test_what_helps_really_helps_and_what_does_not_does_not(windows: tuple[int | None, ...], margin: float) -> None:
    def scene() -> Scheduler:
        scheduler = build(num_blocks=20 * len(windows), windows=windows, safety_margin=margin)
        for name, size, new in (("a", 20, 16), ("b", 16, 24), ("c", 12, 3)):
            scheduler.add(ask(name, size, new))
        for _ in range(5):
            step(scheduler)
        return scheduler

    scheduler = scene()
    (seq,) = scheduler.sequences_of("c")
    assert seq.row < 0
    answer = explain(scheduler, seq.key)
    assert {t.kind for t in answer.trials} >= {"wait", "margin", "cancel", "tokens", "rows", "policy"}
    names = {
        "margin": "safety_margin",
        "tokens": "max_batch_tokens",
        "rows": "max_requests_per_batch",
        "policy": "policy",
    }
    for trial in answer.trials[1:]:
        twin = scene()
        if trial.kind == "cancel":
            twin.cancel(next(s for s in twin if s.key == trial.value).request.request_id, 0.0)
        else:
            assert trial.old == getattr(twin.settings, names[trial.kind])
            twin.configure(replace(twin.settings, **{names[trial.kind]: trial.value}))
        assert happens(twin, seq.key) == trial.step
        assert trial.helps == (trial.step < answer.trials[0].step)  # type: ignore[operator]
        assert trial.price
    assert any(t.helps for t in of_kind(answer, "margin"))
    assert any(t.helps for t in of_kind(answer, "cancel"))
    assert not any(t.helps for t in of_kind(answer, "rows"))


def test_explaining_changes_nothing_even_with_steps_in_flight() -> None:
    scheduler = build(num_blocks=20, host_blocks=4)
    for name, size in (("a", 24), ("b", 20), ("c", 30), ("d", 4)):
        scheduler.add(ask(name, size, 12, num_return_sequences=2))
    first = plan(scheduler)
    second = plan(scheduler)
    before = scheduler.keyframe(0, 0.0)
    decisions = {seq.key: explain(scheduler, seq.key).decision for seq in scheduler}
    assert scheduler.keyframe(0, 0.0) == before
    assert scheduler.num_in_flight == 2 or not second.slices
    finish(scheduler, first)
    assert decisions[0] is not None
    scheduler.cancel("a", 0.0)
    for seq in scheduler:
        explain(scheduler, seq.key)


def test_one_that_runs_needs_no_trials_and_says_when_it_ends() -> None:
    scheduler = crowded()
    (a,) = scheduler.sequences_of("a")
    answer = explain(scheduler, a.key)
    assert (answer.place, answer.trials, answer.checks) == ("running", (), ())
    for _ in range(50):
        made = plan(scheduler)
        if a in scheduler.apply(made, StepResult([constant(s) for s in made.slices if s.samples]), 0.0).ended:
            break
    assert made.step == answer.last_step


def test_an_offloaded_one_is_explained_too() -> None:
    scheduler = build(num_blocks=6, host_blocks=8)
    for name in "ab":
        scheduler.add(ask(name, 9, 14))
    for _ in range(20):
        step(scheduler)
        if scheduler.offloaded:
            break
    (parked,) = scheduler.offloaded
    answer = explain(scheduler, parked.key)
    assert answer.place == "offloaded" and answer.trials[0].step == happens(scheduler, parked.key)


def test_far_back_in_a_long_line_there_are_checks_but_no_forecast() -> None:
    scheduler = build(max_requests_per_batch=1)
    for number in range(FARTHEST_PLACE + 30):
        scheduler.add(ask(f"r{number}", (number,), 40))
    step(scheduler)
    answer = explain(scheduler, FARTHEST_PLACE + 10)
    assert answer.decision is None and answer.trials == ()
    turn = next(c for c in answer.checks if c.name == "turn")
    assert (turn.passed, turn.a, turn.b) == (False, FARTHEST_PLACE + 10, 1)


def test_looking_ahead_ends_though_nobody_ends() -> None:
    scheduler = build(num_blocks=90_000, max_requests_per_batch=64, max_batch_tokens=64)
    for number in range(65):
        scheduler.add(ask(f"r{number}", (number,), 5_000))
    step(scheduler)
    answer = explain(scheduler, 64)
    wait = answer.trials[0]
    assert wait.step is None and 0 < wait.steps < 500
    assert wait.price == f"not within {wait.steps} steps"


def test_nobody_has_no_explanation() -> None:
    with pytest.raises(KeyError, match="no living sequence has the key 3"):
        explain(build(), 3)

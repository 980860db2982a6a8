"""The scheduler one step ahead, how sequences end, and what previews and the same commands give."""

import pytest

from engine.core.errors import InvariantError
from engine.core.invariants import check
from engine.core.observe import Decision, Verdict
from engine.core.plan import StepResult
from engine.core.request import FinishReason, RequestStatus, SamplingParams
from engine.core.scheduler import Scheduler
from tests.core.drive import ask, build, drain, finish, plan, step, told, verdicts

V = Verdict


def test_one_step_ahead_decodes_the_token_in_flight_and_never_past_the_limit() -> None:
    scheduler = build()
    (a,) = scheduler.add(ask("a", 3, 2))
    first = plan(scheduler)
    second = plan(scheduler)
    assert [(s.start, s.carry, s.position) for s in second.slices] == [(3, True, 1)]
    assert (a.computed, a.in_flight, a.pending, len(a.tokens)) == (4, 4, 1, 3)
    finish(scheduler, first)
    third = plan(scheduler)
    assert third.slices == () and told(third)[a.key] == Decision(a.key, V.WAIT_IN_FLIGHT, second.step, 0)
    outcome = finish(scheduler, second)
    assert outcome.ended == [a] and a.num_output == 2


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(repetition_penalty=1.2),
        SamplingParams(presence_penalty=0.5),
        SamplingParams(frequency_penalty=0.5),
        SamplingParams(no_repeat_ngram=2),
        SamplingParams(bad_words=((1, 2),)),
    ],
)
def test_a_sampler_that_needs_the_last_token_waits_for_it(sampling: SamplingParams) -> None:
    scheduler = build()
    (a,) = scheduler.add(ask("a", 3, 4, sampling=sampling))
    first = plan(scheduler)
    second = plan(scheduler)
    assert second.slices == () and verdicts(second)[a.key] is V.WAIT_IN_FLIGHT
    finish(scheduler, first)
    assert [s.carry for s in plan(scheduler).slices] == [False]


@pytest.mark.parametrize("way", ["eos", "cancel", "row", "step"])
def test_blocks_stay_until_the_step_that_uses_them_is_applied(way: str) -> None:
    scheduler = build(num_blocks=10)
    (a,) = scheduler.add(ask("a", 4, 9, eos_ids=frozenset({7})))
    first = plan(scheduler)
    second = plan(scheduler)
    if way == "cancel":
        assert scheduler.cancel("a", 5.0) == []
        assert scheduler.cancel("a", 5.0) == []
    result = {
        "eos": StepResult([7]),
        "cancel": StepResult([3]),
        "row": StepResult([-1], failures={0: "non-finite logits"}),
        "step": StepResult(error=RuntimeError("boom")),
    }[way]
    outcome = scheduler.apply(first, result, 6.0)
    assert outcome.ended == [a] and a.finished_time == 6.0
    assert a.num_output == (1 if way == "eos" else 0)
    assert scheduler.leaving == (a,) and scheduler.cache.pool.usable == 8
    assert check(scheduler) == []
    outcome = finish(scheduler, second)
    assert (outcome.tokens, outcome.ended) == ([], [])
    assert scheduler.leaving == () and scheduler.cache.pool.usable == 10 and not scheduler.has_work


def test_eos_and_length_and_times() -> None:
    scheduler = build()
    (a,) = scheduler.add(ask("a", 3, 9, eos_ids=frozenset({7, 8}), record_timestamps=True))
    (b,) = scheduler.add(ask("b", 3, 2))
    now = 0.0
    while scheduler.has_work:
        now += 1.0
        made = scheduler.plan(now=now)
        step_tokens = [8 if s.seq is a and a.num_output == 2 else 5 for s in made.slices]
        scheduler.apply(made, StepResult(step_tokens, logprobs=[-now] * len(step_tokens)), now + 0.5)
    assert (a.finish_reason, a.tokens[3:], a.timestamps) == (FinishReason.EOS, [5, 5, 8], [1.5, 2.5, 3.5])
    assert (a.started_time, a.first_token_time, a.finished_time) == (1.0, 1.5, 3.5)
    assert (b.finish_reason, b.num_output, b.logprobs, b.timestamps) == (FinishReason.LENGTH, 2, [-1.0, -2.0], [])


def test_a_failed_row_fails_alone_and_what_it_wrote_is_not_found() -> None:
    scheduler = build()
    prompt = tuple(range(9))
    (a,) = scheduler.add(ask("a", prompt, 3))
    (b,) = scheduler.add(ask("b", 3, 3))
    made = plan(scheduler)
    outcome = scheduler.apply(made, StepResult([-1, 5], failures={0: "non-finite logits"}), 0.0)
    assert outcome.ended == [a] and a.error == "non-finite logits at step 1"
    assert (a.status, a.num_output, b.num_output) == (RequestStatus.FAILED, 0, 1)
    (again,) = scheduler.add(ask("again", prompt, 1))
    drain(scheduler)
    assert again.cached_tokens == 0 and b.finish_reason is FinishReason.LENGTH


def test_a_row_that_fails_after_its_sequence_was_cancelled_is_not_found_either() -> None:
    scheduler = build(max_batch_tokens=8)
    prompt = tuple(range(9))
    scheduler.add(ask("a", prompt, 3))
    step(scheduler)
    made = plan(scheduler)
    assert scheduler.cancel("a", 1.0) == []
    (a,) = scheduler.apply(made, StepResult([-1], failures={0: "non-finite logits"}), 1.0).ended
    assert a.status is RequestStatus.CANCELLED
    assert not scheduler.cache.pool.index and check(scheduler) == []


def test_a_failed_step_fails_its_own_and_spares_the_line() -> None:
    scheduler = build(max_requests_per_batch=1)
    (a,) = scheduler.add(ask("a", 3, 3))
    (b,) = scheduler.add(ask("b", 3, 3))
    outcome = scheduler.apply(plan(scheduler), StepResult(error=ValueError("no memory")), 1.0)
    assert outcome.ended == [a] and a.error == "step 1 failed: ValueError: no memory"
    drain(scheduler)
    assert b.finish_reason is FinishReason.LENGTH


def test_a_failed_copy_to_the_host_costs_only_the_work() -> None:
    scheduler = build(num_blocks=6, host_blocks=8)
    scheduler.add(ask("a", 9, 12))
    (b,) = scheduler.add(ask("b", 7, 12))
    for _ in range(20):
        made = plan(scheduler)
        if made.copies.offload:
            break
        finish(scheduler, made)
    scheduler.apply(made, StepResult(error=OSError("host")), 1.0)
    assert check(scheduler) == []
    assert scheduler.offloaded == () and scheduler.waiting == (b,) and b.computed == 0
    drain(scheduler)
    assert b.num_output == 12 and b.recomputed > 0


@pytest.mark.parametrize("depth", [0, 1])
def test_fail_all_ends_everybody_at_once_and_late_results_change_nothing(depth: int) -> None:
    scheduler = build(num_blocks=10, max_requests_per_batch=2)
    seqs = [scheduler.add(ask(n, 4, 6))[0] for n in "abc"]
    flights = [plan(scheduler) for _ in range(1 + depth)]
    ended = scheduler.fail_all(FinishReason.STOPPED, "engine stopped", 9.0)
    assert ended == seqs and all(s.finish_reason is FinishReason.STOPPED and s.error for s in seqs)
    assert not scheduler.has_work and scheduler.cache.pool.usable == 10 and check(scheduler) == []
    for made in flights:
        assert scheduler.apply(made, StepResult([5] * 2), 9.0).tokens == []
    scheduler.add(ask("next", 4, 2))
    assert drain(scheduler)


def test_steps_are_applied_in_the_order_planned() -> None:
    scheduler = build()
    scheduler.add(ask("a", 3, 9))
    first, second = plan(scheduler), plan(scheduler)
    with pytest.raises(InvariantError, match="the step to apply next is 1"):
        scheduler.apply(second, StepResult([1]), 0.0)
    finish(scheduler, first)
    with pytest.raises(InvariantError):
        scheduler.apply(first, StepResult([1]), 0.0)


def test_cancelling_the_unknown_has_no_effect_and_a_family_goes_together() -> None:
    scheduler = build()
    assert scheduler.cancel("nobody", 0.0) == []
    family = scheduler.add(ask("a", 5, 9, num_return_sequences=3))
    step(scheduler)
    step(scheduler)
    assert scheduler.cancel("a", 4.0) == family
    assert {s.status for s in family} == {RequestStatus.CANCELLED}
    assert not scheduler.has_work and scheduler.cache.pool.usable == 40


def test_a_preview_is_what_the_next_plan_does_and_changes_nothing() -> None:
    scheduler = build(num_blocks=9, host_blocks=3)
    for name in "abcd":
        scheduler.add(ask(name, 6, 12))
    for _ in range(60):
        if not scheduler.has_work:
            break
        before = scheduler.keyframe(0, 0.0)
        preview = scheduler.preview()
        assert scheduler.keyframe(0, 0.0) == before
        made, _ = step(scheduler)
        assert preview.decisions == made.decisions and preview.limit == made.limit
        planned = [(s.seq.key, s.length, s.start) for s in made.slices]
        assert [(s.seq, s.query, s.past) for s in preview.slices] == planned
    assert not scheduler.has_work


def test_the_same_commands_give_the_same_plans() -> None:
    def run(scheduler: Scheduler) -> list[tuple[object, ...]]:
        told = []
        for number in range(12):
            prompt = (number % 3, 1, 2, number % 2, 5, 6)
            scheduler.add(ask(f"r{number}", prompt, 7, num_return_sequences=1 + number % 2))
        while scheduler.has_work:
            made, _ = step(scheduler, lambda s: (s.position + s.seq.key) % 4)
            told.append((made.decisions, made.copies, [(s.seq.key, s.start, s.length) for s in made.slices]))
        return told

    assert run(build(num_blocks=14, host_blocks=5)) == run(build(num_blocks=14, host_blocks=5))

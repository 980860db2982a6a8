"""Order, limits, margin, preemption, siblings, the end of sequences: one small scene for each rule."""

import pytest

from engine.core.errors import InvariantError, RequestError
from engine.core.invariants import check
from engine.core.layout import SchedulerSettings
from engine.core.observe import Decision, Verdict
from engine.core.plan import StepResult
from engine.core.request import FinishReason, RequestStatus, SamplingParams
from engine.core.scheduler import Scheduler
from tests.core.drive import FULL, HYBRID, ask, build, drain, finish, plan, step, told, verdicts

V = Verdict


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_can_never_fit_is_refused_with_numbers_and_hurts_nobody() -> None:
    scheduler = build(num_blocks=4)
    with pytest.raises(RequestError, match=r"'big': can never fit: 21 tokens need 5 blocks .*, but the pool has 4"):
        scheduler.add(ask("big", 18, 3))
    (fits,) = scheduler.add(ask("exact", 14, 3))  # 17 tokens, of which the last is never written: 4 blocks
    drain(scheduler)
    assert fits.finish_reason is FinishReason.LENGTH
    counters = scheduler.keyframe(0, 0.0).counters
    assert (counters.rejected, counters.accepted, counters.finished) == (1, 1, 1)


@pytest.mark.parametrize(("prompt", "new", "accepted"), [(9, 1, True), (10, 0, True), (10, 1, False), (11, 0, False)])
def test_the_model_s_last_position_is_a_limit(prompt: int, new: int, accepted: bool) -> None:
    scheduler = build(max_length=10)
    request = ask("a", prompt, new)
    if accepted:
        scheduler.check(request)
    else:
        with pytest.raises(RequestError, match=f"are {prompt + new}, but the model ends at 10"):
            scheduler.check(request)


def test_an_id_is_free_again_only_when_its_request_ended() -> None:
    scheduler = build()
    scheduler.add(ask("a", 3))
    with pytest.raises(RequestError, match="in use"):
        scheduler.add(ask("a", 5))
    step(scheduler)
    with pytest.raises(RequestError, match="in use"):
        scheduler.add(ask("a", 5))
    drain(scheduler)
    scheduler.add(ask("a", 5))


def test_a_refusal_is_seen_by_a_watcher_with_its_numbers() -> None:
    scheduler = build(num_blocks=4)
    scheduler.observe(True)
    with pytest.raises(RequestError):
        scheduler.add(ask("big", 18, 3))
    events = scheduler.take_events()
    (info,) = events.requests
    assert events.decisions == (Decision(info.seq, V.REJECT_NEVER_FITS, 5, 4),)
    (change,) = events.changes
    assert (change.place, change.status, change.row) == ("done", RequestStatus.FAILED, -1)
    assert scheduler.take_events().changes == ()


def test_no_new_tokens_asked_for_is_finished_at_once() -> None:
    scheduler = build()
    family = scheduler.add(ask("a", 5, 0, num_return_sequences=2), now=3.0)
    assert [(s.status, s.finish_reason, s.finished_time) for s in family] == [
        (RequestStatus.FINISHED, FinishReason.LENGTH, 3.0)
    ] * 2
    assert not scheduler.has_work
    scheduler.add(ask("a", 5, 1))


# -- order and limits --------------------------------------------------------------------------------------------------


def test_fifo_serves_decodes_then_the_running_prefill_then_newcomers_in_order() -> None:
    scheduler = build(max_batch_tokens=10)
    a, b, c, d = (scheduler.add(ask(n, size, 9))[0] for n, size in zip("abcd", (4, 14, 3, 3), strict=True))
    made, _ = step(scheduler)
    assert made.decisions[:3] == (
        Decision(a.key, V.ADMIT, 0, 1), Decision(b.key, V.ADMIT, 0, 2), Decision(c.key, V.WAIT_TOKENS, 3, 0),
    )  # fmt: skip
    assert made.decisions[3] == Decision(d.key, V.WAIT_ORDER, c.key, 2)
    made, _ = step(scheduler)
    assert [(s.seq, s.start, s.length, s.samples) for s in made.slices] == [
        (a, 4, 1, True), (b, 6, 8, True), (c, 0, 1, False)
    ]  # fmt: skip
    assert told(made)[b.key] == Decision(b.key, V.CHUNK, 8, 0)
    assert (made.num_tokens, made.limit) == (10, "tokens")


def test_rows_are_a_limit_of_their_own_and_are_reused_smallest_first() -> None:
    scheduler = build(max_requests_per_batch=2)
    seqs = [scheduler.add(ask(n, 2, new))[0] for n, new in zip("abc", (2, 4, 4), strict=True)]
    made, _ = step(scheduler)
    assert told(made)[seqs[2].key] == Decision(seqs[2].key, V.WAIT_ROWS, 2, 2)
    assert made.limit == "rows"
    assert [s.row for s in seqs] == [0, 1, -1]
    step(scheduler)
    made, _ = step(scheduler)
    assert seqs[0].row == -1 and seqs[2].row == 0
    assert told(made)[seqs[2].key].verdict is V.ADMIT


def test_ten_thousand_waiting_get_no_more_decisions_than_a_few() -> None:
    scheduler = build(max_requests_per_batch=1)
    for number in range(2_000):
        scheduler.add(ask(f"r{number}", (number, 1), 2))
    step(scheduler)
    made = plan(scheduler)
    assert 30 < len(made.decisions) < 40
    blocker = told(made)[1]
    assert blocker == Decision(1, V.WAIT_ROWS, 1, 1)
    assert [told(made)[k] for k in (2, 3)] == [Decision(2, V.WAIT_ORDER, 1, 2), Decision(3, V.WAIT_ORDER, 1, 3)]


def test_the_margin_holds_newcomers_back_unless_nothing_runs() -> None:
    scheduler = build(num_blocks=10, safety_margin=0.35)  # keeps 4 blocks
    (a,) = scheduler.add(ask("a", 20, 2))
    (b,) = scheduler.add(ask("b", 8, 2))
    made, _ = step(scheduler)
    assert told(made)[a.key].verdict is V.ADMIT, "alone it may use the margin"
    made, _ = step(scheduler)
    assert told(made)[b.key] == Decision(b.key, V.WAIT_MARGIN, 3, 4)
    assert made.limit == "margin"
    drain(scheduler)
    assert b.finish_reason is FinishReason.LENGTH


def test_a_prompt_that_would_not_fit_whole_waits_with_the_numbers_of_the_whole() -> None:
    scheduler = build(num_blocks=8, max_batch_tokens=32)
    scheduler.add(ask("a", 16, 3))
    (b,) = scheduler.add(ask("b", 20, 3))
    made = plan(scheduler)
    assert told(made)[b.key] == Decision(b.key, V.WAIT_BLOCKS, 5, 4)
    assert made.limit == "blocks"


def test_strict_order_lets_nobody_overtake_and_a_skip_limit_so_often_and_no_more() -> None:
    for limit in (0, 2):
        scheduler = build(num_blocks=10, skip_limit=limit, max_requests_per_batch=8)
        scheduler.add(ask("holder", 24, 12))
        step(scheduler)
        step(scheduler)
        (big,) = scheduler.add(ask("big", 20, 1))
        small = []
        for number in range(5):
            small += scheduler.add(ask(f"s{number}", 2, 1))
            made, _ = step(scheduler)
            assert told(made)[big.key].verdict is V.WAIT_BLOCKS
        assert [s.num_output for s in small] == [1] * limit + [0] * (5 - limit)
        drain(scheduler)


def test_prefill_first_holds_decodes_back_but_not_longer_than_the_cap() -> None:
    scheduler = build(num_blocks=200, policy="prefill_first", max_batch_tokens=8, max_steps_without_decode=3)
    (decoding,) = scheduler.add(ask("d", 3, 30))
    step(scheduler)
    scheduler.add(ask("p", 100, 1))
    gaps, waits = [0], []
    for _ in range(18):
        before = decoding.num_output
        made, _ = step(scheduler)
        if decoding.num_output > before:
            gaps.append(0)
        else:
            gaps[-1] += 1
            waits.append(told(made)[decoding.key])
    assert max(gaps) == 3
    assert {(w.verdict, w.a, w.b) for w in waits} == {(V.WAIT_PREFILL, a, 3) for a in (1, 2, 3)}


def test_settings_change_between_steps_and_nonsense_is_refused() -> None:
    scheduler = build(max_requests_per_batch=4)
    for name in "abc":
        scheduler.add(ask(name, 3, 6))
    step(scheduler)
    scheduler.observe(True)
    scheduler.configure(SchedulerSettings(max_batch_tokens=16, max_requests_per_batch=2, safety_margin=0.0))
    made, _ = step(scheduler)
    assert len(made.slices) == 2
    assert made.decisions[-1].verdict is V.WAIT_ROWS
    assert scheduler.take_events().settings == {"max_requests_per_batch": 2}
    for wrong in ({"policy": "lifo"}, {"max_batch_tokens": 0}, {"max_requests_per_batch": 0}):
        with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
            scheduler.configure(SchedulerSettings(**wrong))  # type: ignore[arg-type]
    drain(scheduler)


# -- memory pressure ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [FULL, HYBRID])
@pytest.mark.parametrize("host_blocks", [0, 30])
@pytest.mark.parametrize("depth", [0, 1])
def test_the_newest_makes_room_for_the_older_and_all_get_all_their_tokens(
    windows: tuple[int | None, ...], host_blocks: int, depth: int
) -> None:
    scheduler = build(num_blocks=13 * len(windows), windows=windows, host_blocks=host_blocks)
    seqs = [scheduler.add(ask(n, 6, 24))[0] for n in "abcd"]
    victims: list[Decision] = []
    flights = []
    for _ in range(400):
        if not scheduler.has_work:
            break
        made = plan(scheduler)
        victims += [d for d in made.decisions if d.verdict in (V.OFFLOAD, V.RECOMPUTE)]
        if made.slices or made.copies:
            flights.append(made)
        while len(flights) > depth or (flights and not made.slices):
            finish(scheduler, flights.pop(0))
    assert [s.num_output for s in seqs] == [24] * 4
    assert victims and all(v.seq > v.a and v.b > 0 for v in victims), "only newer ones go, and only if it helps"
    assert {v.verdict for v in victims} == {V.OFFLOAD if host_blocks else V.RECOMPUTE}
    assert sum(s.recomputed for s in seqs) == scheduler.keyframe(0, 0.0).counters.recomputed_tokens
    assert (sum(s.recomputed for s in seqs) > 0) == (host_blocks == 0)
    assert seqs[0].preemptions == 0


def test_a_preempted_sequence_is_not_let_in_again_by_the_same_plan_nor_anyone_behind_it() -> None:
    scheduler = build(num_blocks=6)
    scheduler.add(ask("a", 7, 12))
    (b,) = scheduler.add(ask("b", 7, 12))
    (c,) = scheduler.add(ask("c", 2, 1))
    scheduler.configure(SchedulerSettings(max_batch_tokens=16, max_requests_per_batch=2, safety_margin=0.0))
    for _ in range(20):
        made, _ = step(scheduler)
        if told(made).get(b.key, made.decisions[0]).verdict is V.RECOMPUTE:
            break
    else:
        raise AssertionError("nobody was preempted")
    assert verdicts(made)[c.key] is V.WAIT_ORDER and told(made)[c.key].a == b.key
    assert b.computed == 0 and b.num_output > 0 and scheduler.waiting[0] is b
    drain(scheduler)


def test_cached_blocks_go_before_anybody_is_preempted() -> None:
    scheduler = build(num_blocks=8)
    scheduler.add(ask("old", 16, 1))
    drain(scheduler)
    assert len(scheduler.cache.pool.cached) == 4
    for name in "ab":
        scheduler.add(ask(name, 8, 9))
    drain(scheduler)
    counters = scheduler.keyframe(0, 0.0).counters
    assert counters.evictions > 0 and counters.preemptions == 0


def test_a_retry_of_a_waiting_request_counts_one_lookup() -> None:
    scheduler = build(num_blocks=8)
    scheduler.add(ask("a", 16, 8))
    step(scheduler)
    scheduler.add(ask("b", 20, 1))
    for _ in range(5):
        step(scheduler)
    assert scheduler.keyframe(0, 0.0).counters.lookups == 1
    drain(scheduler)
    counters = scheduler.keyframe(0, 0.0).counters
    assert (counters.lookups, counters.lookup_tokens) == (2, 36)


# -- parallel sampling -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [FULL, HYBRID])
@pytest.mark.parametrize("length", [1, 3, 8, 9, 11])
def test_siblings_share_full_blocks_and_copy_the_rest(windows: tuple[int | None, ...], length: int) -> None:
    scheduler = build(num_blocks=60, windows=windows)
    family = scheduler.add(ask("a", length, 5, num_return_sequences=3))
    made, _ = step(scheduler)
    assert len(made.slices) == 1, "the others wait until the first has written the prompt"
    assert told(made)[family[1].key] == Decision(family[1].key, V.WAIT_ORDER, family[0].key, 1)
    made = plan(scheduler)
    pages, rest = divmod(length - 1, 4)
    for seq in family[1:]:
        assert told(made)[seq.key].a == seq.cached_tokens == length - 1
        assert seq.tables[0][:pages] == family[0].tables[0][:pages]
        assert not set(seq.tables[0][pages:]) & set(family[0].tables[0][pages:])
        copied = {(a.tables[g][pages], seq.tables[g][pages]) for a in family[:1] for g in range(len(windows))}
        assert copied <= set(made.copies.fork) or not rest
    assert len(made.copies.fork) == (2 * len(windows) if rest else 0)
    assert made.num_tokens == 3
    finish(scheduler, made)
    drain(scheduler)
    assert [s.num_output for s in family] == [5, 5, 5]
    assert [s.output_id for s in family] == ["a", "a__child#0", "a__child#1"]


def test_siblings_compute_for_themselves_where_nothing_is_shared() -> None:
    scheduler = build(allow_block_sharing=False)
    family = scheduler.add(ask("a", 5, 2, num_return_sequences=3))
    made, _ = step(scheduler)
    assert [s.length for s in made.slices] == [5, 5, 5]
    drain(scheduler)
    assert [s.cached_tokens for s in family] == [0, 0, 0]


def test_siblings_do_not_wait_for_a_first_one_that_is_gone() -> None:
    scheduler = build(max_requests_per_batch=1)
    family = scheduler.add(ask("a", 6, 1, num_return_sequences=4))
    drain(scheduler)
    assert [s.num_output for s in family] == [1] * 4
    assert [s.cached_tokens for s in family] == [0, 4, 4, 4], "full pages are still cached, the partial one is gone"


def test_more_siblings_than_the_pool_holds_run_one_after_the_other() -> None:
    scheduler = build(num_blocks=7)
    family = scheduler.add(ask("a", 9, 12, num_return_sequences=4))
    drain(scheduler)
    assert [s.num_output for s in family] == [12] * 4


# -- one step ahead ----------------------------------------------------------------------------------------------------


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


# -- how it ends -------------------------------------------------------------------------------------------------------


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

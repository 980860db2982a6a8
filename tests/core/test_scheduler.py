"""What is refused, order, limits, margin: one small scene for each rule of the scheduler."""

import pytest

from engine.core.errors import RequestError
from engine.core.layout import SchedulerSettings
from engine.core.observe import Decision, Verdict
from engine.core.request import FinishReason, RequestStatus
from tests.core.drive import ask, build, drain, plan, step, told

V = Verdict


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

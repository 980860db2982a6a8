"""The life of a request: added, refused, cancelled, waiting its turn, counted."""

import pytest

from engine.core.errors import RequestError
from engine.core.observe import Verdict
from engine.core.plan import StepResult
from engine.core.request import FinishReason, RequestStatus
from engine.core.tap import Tap
from tests.core.scenarios import PROMPT, empty_record, request, world


@pytest.mark.parametrize("steps_before", [0, 3])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_live_id_is_refused_a_second_time_and_the_first_is_unharmed(steps_before: int, depth: int) -> None:
    harness = world(depth)
    (first,) = harness.submit(request("twin", PROMPT, 6))
    for _ in range(steps_before):
        harness.step()
    with pytest.raises(RequestError, match="twin"):
        harness.scheduler.add(request("twin", (1, 1), 2))
    harness.drain()
    assert harness.ended == {first.key: FinishReason.LENGTH}
    again = harness.submit(request("twin", PROMPT, 6))
    assert len(again) == 1, "an id whose request has ended is free again"
    harness.drain()


@pytest.mark.parametrize("depth", [0, 1])
def test_cancel_gives_one_outcome_wherever_the_request_is(depth: int) -> None:
    harness = world(depth, num_blocks=12, host_blocks=12, max_batch_tokens=4)
    places: set[str] = set()
    for wait in range(14):
        name = f"r{wait}"
        harness.submit(request("old" + name, PROMPT, 8))
        harness.submit(request(name, PROMPT[1:], 8, seed=1))
        for _ in range(wait):
            harness.step()
        live = {s.request.request_id: s for s in harness.live.values()}
        if name in live:
            queues = harness.queues()
            places |= {k for k, v in vars(queues).items() if live[name] in v}
            places |= {live[name].status.name.lower()}
        harness.cancel(name)
        harness.step()
        harness.step()
        assert name not in {s.request.request_id for s in harness.live.values()}
        harness.drain()
    assert {"waiting", "running", "decoding", "prefilling"} <= places
    assert FinishReason.CANCELLED in harness.ended.values()


def test_cancel_reaches_offloaded_sequences() -> None:
    harness = world(num_blocks=10, host_blocks=12)
    harness.submit(request("old", PROMPT, 10))
    harness.submit(request("new", PROMPT[1:], 10, seed=1))
    for _ in range(30):
        if harness.queues().offloaded:
            break
        harness.step()
    (away,) = harness.queues().offloaded
    assert away.host
    harness.cancel(away.request.request_id)
    assert harness.ended[away.key] is FinishReason.CANCELLED
    assert not any(harness.frame().host)
    harness.drain()


def test_cancel_of_a_parent_reaches_all_its_children() -> None:
    for steps in range(8):
        harness = world(num_blocks=20)
        family = harness.submit(request("parent", PROMPT, 8, n=3))
        for _ in range(steps):
            harness.step()
        harness.cancel("parent")
        harness.step()
        assert [harness.ended[s.key] for s in family] == [FinishReason.CANCELLED] * 3
        assert [s.output_id for s in family] == ["parent", "parent__child#0", "parent__child#1"]
        harness.check_idle()


def test_cancel_of_an_unknown_or_finished_id_does_nothing() -> None:
    harness = world()
    harness.submit(request("done", (1, 2), 2))
    harness.drain()
    before = harness.frame()
    assert harness.scheduler.cancel("done", 1.0) == []
    assert harness.scheduler.cancel("never heard of", 1.0) == []
    assert harness.frame() == before


def test_a_prompt_larger_than_the_pool_is_refused_with_numbers_and_the_others_run() -> None:
    harness = world(num_blocks=8)
    harness.submit(request("before", PROMPT, 4))
    whale = request("whale", PROMPT * 4, 2)
    with pytest.raises(RequestError, match=r"\b(16|17)\b.*\b8\b"):
        harness.scheduler.check(whale)
    with pytest.raises(RequestError, match=r"\b(16|17)\b.*\b8\b"):
        harness.scheduler.add(whale)
    harness.submit(request("after", PROMPT, 4, seed=1))
    harness.drain()
    assert list(harness.ended.values()) == [FinishReason.LENGTH] * 2
    assert harness.frame().counters.accepted == 2


def test_a_request_longer_than_the_positions_is_refused_at_the_limit_plus_one() -> None:
    harness = world(num_blocks=64, max_length=10)
    assert harness.submit(request("exact", PROMPT, 2))
    with pytest.raises(RequestError, match=r"\b11\b.*\b10\b"):
        harness.scheduler.add(request("over", PROMPT, 3))
    harness.drain()


def test_a_request_for_no_tokens_is_finished_and_empty_at_once() -> None:
    harness = world()
    (seq,) = harness.scheduler.add(request("nothing", PROMPT, 0))
    assert (seq.status, seq.finish_reason, seq.num_output) == (RequestStatus.FINISHED, FinishReason.LENGTH, 0)
    assert not harness.scheduler.has_work
    assert harness.frame().counters.finished == 1
    assert len(harness.scheduler.add(request("nothing", PROMPT, 1))) == 1, "its id is free again"


def test_waiting_never_lasts_while_nothing_runs() -> None:
    for seed in range(12):
        harness = world(num_blocks=10, host_blocks=seed % 3 * 4, safety_margin=0.5, windows=(None, 3)[: 1 + seed % 2])
        stuck = 0
        for i in range(30):
            if i < 20:
                harness.submit(
                    request(f"r{i}", tuple((i * k + seed) % 3 for k in range(1 + (i * 7 + seed) % 8)), 5, seed=i)
                )
            if i % 5 == 4:
                harness.cancel(f"r{i - 2}")
            harness.step()
            queues = harness.queues()
            stuck = stuck + 1 if (queues.waiting or queues.offloaded) and not queues.running else 0
            assert stuck < 3
        harness.drain()


@pytest.mark.parametrize("policy", ["fifo", "prefill_first"])
def test_a_plan_visits_no_more_candidates_than_the_running_and_a_few(policy: str) -> None:
    harness = world(num_blocks=20, policy=policy)
    for i in range(300):
        harness.scheduler.add(request(f"r{i}", PROMPT, 4, seed=i))
    visited = []
    for _ in range(6):
        plan = harness.scheduler.plan()
        visited.append(len(plan.decisions))
        harness.scheduler.apply(plan, StepResult(tokens=[1] * sum(s.samples for s in plan.slices)), 1.0)
    assert max(visited) <= 4 + 40


@pytest.mark.parametrize("cap", [1, 3, 8])
@pytest.mark.parametrize("depth", [0, 1])
def test_prefill_first_lets_a_decode_wait_no_longer_than_the_cap(cap: int, depth: int) -> None:
    harness = world(
        depth, num_blocks=300, max_batch_tokens=10, policy="prefill_first", max_steps_without_decode=cap, max_length=600
    )
    (decoding,) = harness.submit(request("decoding", PROMPT, 60))
    while not decoding.num_output:
        harness.step()
    harness.submit(request("arrival", tuple(i % 3 for i in range(400)), 3, seed=1))
    gap = worst = 0
    held_back = False
    while decoding.key in harness.live:
        harness.step()
        record = harness.records[-1]
        gap = 0 if any(s.seq == decoding.key for s in record.slices) else gap + 1
        worst = max(worst, gap)
        held_back = held_back or any(d.verdict is Verdict.WAIT_PREFILL for d in record.decisions)
    assert worst <= cap + depth
    assert held_back, "nothing was held back, so the cap was not tried"
    harness.drain()


def test_blocks_of_a_cancelled_sequence_stay_until_the_step_that_uses_them_is_applied() -> None:
    harness = world(1, num_blocks=12)
    (seq,) = harness.submit(request("gone", PROMPT, 8))
    harness.step()
    (flying,) = harness.launched
    harness.cancel("gone")
    assert flying.needs[seq.key] <= {b for b, v in enumerate(harness.frame().blocks) if v.state == "owned"}
    harness.step()
    assert harness.ended[seq.key] is FinishReason.CANCELLED
    harness.drain()
    assert not any(v.state == "owned" for v in harness.frame().blocks)


def test_ten_thousand_steps_without_a_reader_leave_a_bounded_ring() -> None:
    tap = Tap(64)
    for step in range(1, 10_001):
        tap.publish(empty_record(step))
    assert not tap.watched
    records, missed = tap.read(0)
    assert missed, "a reader that asks for step 1 must be told that it is gone"
    assert [r.step for r in records] == list(range(10_000 - 63, 10_001))
    assert tap.latest is not None and tap.latest.step == 10_000
    records, missed = tap.read(9_990)
    assert not missed and [r.step for r in records] == list(range(9_991, 10_001))
    assert tap.read(10_000) == ([], False) or tap.read(10_000) == ((), False)


def test_gauges_are_the_raw_state_recounted() -> None:
    harness = world(num_blocks=10, host_blocks=6)
    for i in range(5):
        harness.submit(request(f"r{i}", PROMPT[: 3 + i], 6, seed=i))
    while harness.step():
        queues = harness.queues()
        record = harness.records[-1]
        line = sorted(s.key for s in [*queues.waiting, *queues.offloaded])
        assert record.waiting == tuple(line) and record.num_waiting == len(line)
        assert record.counters == harness.frame().counters
    counters = harness.frame().counters
    assert counters.accepted == counters.finished == 5
    assert counters.output_tokens == 30

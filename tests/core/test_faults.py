"""The device fails, a reader sleeps, commands pour in: everybody gets an outcome and nothing leaks."""

import copy
from collections.abc import Iterator

import pytest

from engine.core.errors import RequestError
from engine.core.request import FinishReason, RequestStatus
from engine.core.tap import Tap
from tests.core.harness import Harness
from tests.core.scenarios import PROMPT, Walk, empty_record, request, world


def crowd(depth: int, windows: tuple[int | None, ...] = (None,), host_blocks: int = 6) -> Harness:
    """Five requests in a pool for about two, so that steps carry copies."""
    harness = world(depth, windows=windows, num_blocks=10 * len(windows), host_blocks=host_blocks, max_batch_tokens=6)
    for i in range(5):
        harness.submit(request(f"r{i}", PROMPT[: 4 + i], 7, seed=i, n=1 + (i == 2)))
    return harness


def at_every_step(harness: Harness) -> Iterator[Harness]:
    """A copy of the run before each of its steps, to be taken another way."""
    while harness.live:
        yield copy.deepcopy(harness)
        harness.step()


@pytest.mark.parametrize("when", ["before copies", "after copies"])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("windows", [(None,), (None, 4)])
def test_a_step_that_fails_fails_its_requests_and_nobody_else(
    when: str, depth: int, windows: tuple[int | None, ...]
) -> None:
    for harness in at_every_step(crowd(depth, windows)):
        harness.faults.step = when
        harness.drain()
        reasons = list(harness.ended.values())
        assert set(reasons) <= {FinishReason.LENGTH, FinishReason.FAILED}
        for seq in harness.sequences:
            if seq.status is RequestStatus.FAILED:
                assert seq.error and "the device failed" in seq.error


def test_what_a_failed_step_should_have_copied_to_the_host_is_not_believed() -> None:
    lost = 0
    for seed in range(8):
        walk = Walk(seed, crowded=True, faults=False)
        for _ in range(50):
            walk.move()
            walk.harness.faults.step = "offload"
        walk.harness.drain()
        lost += walk.harness.frame().counters.failed
    assert lost > 8


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("windows", [(None,), (None, 4)])
def test_a_row_that_fails_takes_nobody_along(depth: int, windows: tuple[int | None, ...]) -> None:
    failed = tried = 0
    for harness in at_every_step(crowd(depth, windows)):
        harness.faults.rows = {tried % 2}
        harness.drain()
        losers = [s for s in harness.sequences if s.status is RequestStatus.FAILED]
        assert len(losers) <= 1
        assert all(s.error and "non-finite logits" in s.error for s in losers)
        assert list(harness.ended.values()).count(FinishReason.LENGTH) == 6 - len(losers)
        failed += len(losers)
        tried += 1
    assert failed > tried / 4


@pytest.mark.parametrize("windows", [(None,), (None, 4), (3,)])
def test_blocks_of_a_failed_row_are_not_found_by_the_next_request(windows: tuple[int | None, ...]) -> None:
    harness = world(windows=windows, num_blocks=40, max_batch_tokens=4)
    harness.submit(request("sick", PROMPT, 4))
    harness.step()
    harness.faults.rows = {0}
    harness.step()
    assert list(harness.ended.values()) == [FinishReason.FAILED]
    (healthy,) = harness.submit(request("healthy", PROMPT, 4))
    harness.drain()
    assert healthy.cached_tokens == 0
    assert harness.ended[healthy.key] is FinishReason.LENGTH


@pytest.mark.parametrize("depth", [0, 1])
def test_when_the_engine_dies_everybody_gets_an_outcome(depth: int) -> None:
    for harness in at_every_step(crowd(depth)):
        alive = set(harness.live)
        harness.fail_all()
        for seq in harness.sequences:
            if seq.key in alive:
                assert (seq.status, seq.error) == (RequestStatus.FAILED, "the device is gone")
        assert not harness.scheduler.has_work
        assert not any(v.state == "owned" for v in harness.frame().blocks)
        assert not any(harness.frame().host)


def test_a_reader_that_never_reads_costs_a_bounded_ring() -> None:
    tap = Tap(16)
    tap.attach()
    assert tap.watched
    harness = crowd(0)
    told = 0
    while harness.step():
        tap.publish(harness.records[-1])
        told += 1
    for step in range(told + 1, told + 200):
        tap.publish(empty_record(step))
    records, missed = tap.read(1)
    assert missed and len(records) <= 16
    records, missed = tap.read(records[-1].step)
    assert not missed and not records
    tap.detach()
    assert not tap.watched


def test_one_reader_leaving_does_not_blind_the_other() -> None:
    tap = Tap(4)
    tap.attach()
    tap.attach()
    tap.detach()
    assert tap.watched
    tap.publish(empty_record(1))
    assert len(tap.read(0)[0]) == 1
    tap.detach()
    assert not tap.watched


@pytest.mark.parametrize("depth", [0, 1])
def test_a_flood_of_commands_between_two_steps(depth: int) -> None:
    harness = world(depth, num_blocks=12, host_blocks=4)
    for burst in range(4):
        for i in range(60):
            name = f"r{i % 20}"
            if i % 3 == 2:
                harness.cancel(name)
            else:
                harness.submit(request(name, PROMPT[: 1 + (i + burst) % 8], 1 + i % 5, seed=i))
            if i % 10 == 0:
                harness.configure(max_requests_per_batch=1 + i % 4)
                harness.clear_cache()
        harness.step()
    harness.drain()
    assert len(harness.ended) == len(harness.sequences) > 60


def test_a_refused_request_is_counted_and_leaves_no_trace() -> None:
    harness = world(num_blocks=4)
    before = harness.frame()
    for _ in range(3):
        with pytest.raises(RequestError):
            harness.scheduler.add(request("whale", PROMPT * 3, 3))
    after = harness.frame()
    assert after.counters.rejected == before.counters.rejected + 3
    assert after.counters.accepted == 0
    assert (after.blocks, after.waiting) == (before.blocks, before.waiting)
    assert all(view.change.place == "done" for view in after.sequences.values())

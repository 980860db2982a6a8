"""More demand than blocks: preemption, offloading, windows, families of children."""

from dataclasses import replace

import pytest

from engine.core.request import FinishReason
from tests.core import oracle, plan_oracle
from tests.core.scenarios import PROMPT, layout_of, output, request, world


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("windows", [(None,), (None, 5)])
@pytest.mark.parametrize("host_blocks", [0, 6, 40])
@pytest.mark.parametrize("new", [1, 2, 12])
def test_demand_of_twice_the_pool_preempts_and_changes_nothing(
    depth: int, windows: tuple[int | None, ...], host_blocks: int, new: int
) -> None:
    # Every sequence needs (8 + new) tokens; the pool holds about two of the four.
    pool = len(windows) * (8 + new)
    harness = world(
        depth, windows=windows, page_size=1, num_blocks=pool, host_blocks=host_blocks, allow_block_sharing=False
    )
    for i in range(4):
        harness.submit(request(f"r{i}", PROMPT[: 4 + i], new + 4 - i, seed=i))
    harness.drain()
    assert list(harness.ended.values()) == [FinishReason.LENGTH] * 4
    counters = harness.frame().counters
    if new == 12:
        assert counters.preemptions + counters.offloads > 0
        if host_blocks == 40:
            assert counters.offloads > 0 and counters.recomputed_tokens == 0
            assert counters.offloads == counters.restores
            assert counters.offloaded_blocks == counters.restored_blocks > 0
        if host_blocks == 0:
            assert counters.preemptions > 0 and counters.recomputed_tokens > 0
    assert sum(s.preemptions for s in harness.sequences) == counters.preemptions + counters.offloads


@pytest.mark.parametrize(("new", "host_blocks"), [(13, 0), (14, 10)])
@pytest.mark.parametrize("windows", [(6,), (None, 6)])
def test_windows_wrap_at_every_prompt_length(windows: tuple[int | None, ...], new: int, host_blocks: int) -> None:
    for length in range(1, 31):
        pool = oracle.most_blocks(layout_of(windows, page_size=4), length + new, 10) + len(windows)
        harness = world(windows=windows, page_size=4, num_blocks=pool, host_blocks=host_blocks, max_batch_tokens=10)
        prompt = tuple(i * i % 3 for i in range(length))
        for i in range(3):
            harness.submit(request(f"r{i}", prompt, new, seed=i))
        harness.drain()
        assert list(harness.ended.values()) == [FinishReason.LENGTH] * 3


def test_times_and_log_probabilities_survive_preemption() -> None:
    harness = world(page_size=1, num_blocks=26, allow_block_sharing=False)
    for i in range(4):
        harness.submit(replace(request(f"r{i}", PROMPT[:4], 10, seed=i), created_time=0.25 + i))
    harness.drain()
    assert any(s.preemptions for s in harness.sequences)
    for i, seq in enumerate(harness.sequences):
        assert seq.request.created_time == 0.25 + i
        assert len(seq.timestamps) == len(seq.logprobs) == 10
        assert len(set(seq.timestamps)) == 10
        assert seq.first_token_time == seq.timestamps[0]
        assert seq.finished_time == seq.timestamps[-1]


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("windows", [(None,), (None, 4)])
@pytest.mark.parametrize("sharing", [True, False])
@pytest.mark.parametrize("host_blocks", [0, 12])
def test_four_children_in_a_pool_for_two_all_complete(
    depth: int, windows: tuple[int | None, ...], sharing: bool, host_blocks: int
) -> None:
    pool = 2 * oracle.most_blocks(layout_of(windows), 7 + 9, 12)
    harness = world(depth, windows=windows, num_blocks=pool, host_blocks=host_blocks, allow_block_sharing=sharing)
    family = harness.submit(request("family", PROMPT[:7], 9, n=4))
    harness.drain()
    assert [harness.ended[s.key] for s in family] == [FinishReason.LENGTH] * 4
    assert len({output(harness, s.key) for s in family}) == 4, "each child draws its own tokens"


@pytest.mark.parametrize("host_blocks", [0, 40])
def test_a_preempted_sequence_is_not_picked_again_in_the_same_plan(host_blocks: int) -> None:
    harness = world(page_size=1, num_blocks=26, host_blocks=host_blocks, allow_block_sharing=False)
    for i in range(4):
        harness.submit(request(f"r{i}", PROMPT[:5], 12, seed=i))
    taken = 0
    while harness.step():
        record = harness.records[-1]
        victims = {d.seq for d in record.decisions if d.verdict in plan_oracle.TAKES}
        taken += len(victims)
        assert not victims & {s.seq for s in record.slices}
        assert len([d for d in record.decisions if d.seq in victims]) == len(victims)
    assert taken > 0

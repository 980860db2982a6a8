"""What the prefix cache may and may not hand out."""

import os
import subprocess
import sys

import pytest

from engine.core.request import FinishReason
from tests.core import plan_oracle
from tests.core.fake_model import expected
from tests.core.scenarios import PROMPT, output, request, same_digest, world


@pytest.mark.parametrize("windows", [(None,), (None, 4), (5,), (None, 3, 6)])
@pytest.mark.parametrize("pages", [1, 2, 4])
def test_a_prompt_of_whole_pages_computes_at_least_its_last_token(windows: tuple[int | None, ...], pages: int) -> None:
    harness = world(windows=windows, page_size=2, num_blocks=40)
    prompt = PROMPT[: 2 * pages]
    (cold,) = harness.submit(request("cold", prompt, 4))
    harness.drain()
    warm = [harness.submit(request(f"warm{i}", prompt, 4))[0] for i in range(4)]
    harness.drain()
    assert cold.cached_tokens == 0
    for seq in warm:
        assert seq.cached_tokens == len(prompt) - 2, "all whole pages but the one with the last token"
        assert output(harness, seq.key) == output(harness, cold.key) == expected(seq.request, 0).tokens


@pytest.mark.parametrize("depth", [0, 1])
def test_two_equal_prompts_in_one_step_share_only_what_is_written(depth: int) -> None:
    harness = world(depth, max_batch_tokens=6, num_blocks=30)
    twins = [harness.submit(request(f"twin{i}", PROMPT, 4))[0] for i in range(2)]
    harness.step()
    assert {s.seq.key for step in harness.launched for s in step.plan.slices} <= {t.key for t in twins}
    assert not any(b in twins[1].tables[0] for b in twins[0].tables[0]) or twins[1].tables == [[]]
    harness.drain()
    assert output(harness, twins[0].key) == output(harness, twins[1].key)


def test_a_hit_that_was_evicted_before_it_could_be_used_is_looked_up_again() -> None:
    harness = world(num_blocks=8, max_batch_tokens=12)
    harness.submit(request("cold", PROMPT, 1))
    harness.drain()
    assert sum(v.state == "cached" for v in harness.frame().blocks) >= 3
    # Somebody else takes nearly all blocks: first the warm request has to wait, then its cached prefix is gone.
    harness.submit(request("other", (2, 2, 2, 1, 1, 1, 0, 0), 7, seed=1))
    harness.step()
    (warm,) = harness.submit(request("warm", PROMPT, 4))
    waited = False
    while harness.step():
        waited = waited or any(
            d.seq == warm.key and d.verdict in plan_oracle.WAITS for d in harness.records[-1].decisions
        )
    assert waited
    assert output(harness, warm.key) == expected(warm.request, 0).tokens


@pytest.mark.parametrize("windows", [(None,), (None, 4)])
def test_equal_hashes_of_unequal_tokens_are_not_a_hit(windows: tuple[int | None, ...]) -> None:
    harness = world(num_blocks=30, windows=windows, digest=same_digest)
    prompts = ((0, 1, 2, 0, 1), (2, 2, 2, 2, 1), (0, 1, 2, 2, 1), (1, 1, 0, 1, 2), (0, 1, 2, 0, 1))
    for i, prompt in enumerate(prompts):
        harness.submit(request(f"r{i}", prompt, 3, seed=i))
        harness.drain()
    harness.submit(request("salted", prompts[0], 3, salt=b"x"))
    harness.drain()
    assert list(harness.ended.values()) == [FinishReason.LENGTH] * 6


def test_page_digests_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    code = (
        "from engine.core.pages import page_digest, root_digest;"
        "print(page_digest(page_digest(root_digest(b's'), (1, 2, 3)), (4, 5, 6)).hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(seen) == 1 and len(seen.pop().strip()) == 32


@pytest.mark.parametrize("eos", [False, True])
@pytest.mark.parametrize("windows", [(None,), (None, 4)])
def test_shared_blocks_are_counted_once_at_idle(windows: tuple[int | None, ...], eos: bool) -> None:
    harness = world(num_blocks=40, windows=windows)
    for i in range(4):
        harness.submit(request(f"r{i}", PROMPT, 6, seed=i, eos=eos))
        if i == 0:
            harness.drain()
    harness.drain()
    states = [v.state for v in harness.frame().blocks[1:]]
    assert states.count("free") + states.count("cached") == 40
    assert states.count("cached") > 0
    everything = harness.scheduler.clear_prefix_cache()
    assert everything == states.count("cached")
    assert [v.state for v in harness.frame().blocks[1:]] == ["free"] * 40


def test_children_share_whole_blocks_and_copy_the_partial_one() -> None:
    harness = world(num_blocks=40, page_size=4)
    family = harness.submit(request("family", PROMPT[:7], 4, n=3))
    copies = 0
    shared = False
    while harness.step():
        copies += sum(d.op.value == "copy" for d in harness.records[-1].deltas)
        shared = shared or any(len(v.owners) == 3 for v in harness.frame().blocks)
    assert copies == 2 and shared
    assert harness.frame().counters.prompt_tokens == 7 + 2, "a child computes only the last prompt token"
    assert len(family) == 3


def test_a_retry_of_a_waiting_request_is_one_look_up() -> None:
    harness = world(num_blocks=8, max_batch_tokens=4)
    harness.submit(request("holds all", PROMPT, 8))
    harness.step()
    harness.step()
    harness.submit(request("waits", PROMPT[:6], 2, seed=1))
    for _ in range(4):
        harness.step()
    assert harness.frame().counters.lookups <= 2
    harness.drain()
    counters = harness.frame().counters
    assert counters.lookups >= 2
    assert counters.lookup_tokens <= counters.lookups * len(PROMPT) + 20


def test_eviction_takes_the_tail_of_a_chain_first_and_no_more_than_is_needed() -> None:
    prompt = tuple(i * i % 3 for i in range(12))
    found = []
    for others in range(6):
        harness = world(num_blocks=8, max_batch_tokens=20)
        harness.submit(request("cold", prompt, 1))
        harness.drain()
        cached = sum(v.state == "cached" for v in harness.frame().blocks)
        # Each of these holds some blocks for one step and leaves nothing that could be found.
        if others:
            harness.submit(request("other", tuple([2] * (2 * others)), 1, salt=b"x"))
            harness.drain()
        evicted = harness.frame().counters.evictions
        assert evicted == max(0, others - (8 - cached))
        (warm,) = harness.submit(request("warm", prompt, 1))
        harness.drain()
        found.append(warm.cached_tokens)
        assert warm.cached_tokens == min(10, 2 * (cached - evicted))
    assert found == sorted(found, reverse=True) and found[-1] < found[0]


def test_the_least_recently_used_prefix_is_evicted_first() -> None:
    harness = world(num_blocks=9, max_batch_tokens=20)
    prompts = {name: tuple((i * k + k) % 3 for i in range(6)) for k, name in enumerate(("a", "b", "c"))}
    for name in ("a", "b", "a"):
        harness.submit(request(name, prompts[name], 1))
        harness.drain()
    harness.submit(request("c", prompts["c"] + (0, 0, 1, 1), 1))
    harness.drain()
    (again,) = harness.submit(request("a", prompts["a"], 1))
    harness.drain()
    assert again.cached_tokens == 4


def test_nothing_is_found_after_the_cache_was_cleared_not_even_what_is_still_running() -> None:
    harness = world(num_blocks=30)
    harness.submit(request("runs", PROMPT, 8))
    harness.step()
    harness.step()
    harness.clear_cache()
    (other,) = harness.submit(request("other", PROMPT, 2))
    harness.drain()
    (later,) = harness.submit(request("later", PROMPT, 2))
    harness.drain()
    assert other.cached_tokens == 0
    assert later.cached_tokens == 6, "what was computed after the clearing may be found"


@pytest.mark.parametrize("windows", [(None,), (None, 4)])
def test_with_sharing_off_nothing_is_shared_or_kept(windows: tuple[int | None, ...]) -> None:
    harness = world(windows=windows, num_blocks=40, allow_block_sharing=False)
    for i in range(3):
        harness.submit(request(f"r{i}", PROMPT, 3, n=2))
        harness.step()
        assert all(len(v.owners) < 2 and not v.published for v in harness.frame().blocks)
    harness.drain()
    assert all(v.state == "free" for v in harness.frame().blocks)
    assert harness.frame().counters.cached_tokens == harness.frame().counters.lookups == 0

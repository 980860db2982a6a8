"""Layer groups, what each kind of attention needs, prefix hits of hybrid models, moves to the host and back."""

import pytest

from engine.core.allocators import (
    FullAttentionCacheAllocator,
    SlidingAttentionCacheAllocator,
    longest_common_hit,
    pages_for,
)
from engine.core.groups import group_layers
from engine.core.layout import TRASH_BLOCK, LayerGroup
from engine.core.observe import BlockOp, Verdict
from tests.core.drive import FULL, HYBRID, ask, build, drain, finish, plan, step, told


@pytest.mark.parametrize(
    ("windows", "sizes", "kinds"),
    [
        ([None] * 5, [5], [None]),
        ([8, None] * 3, [3, 3], [None, 8]),
        ([8, 8, 8, 8, 8, None] * 3, [3] * 6, [None, 8, 8, 8, 8, 8]),
        ([8] * 7 + [None] * 3, [3, 3, 3, 1], [None, 8, 8, 8]),
        ([4, 8, None, 4, 8, None], [2, 2, 2], [None, 4, 8]),
    ],
)
def test_groups_have_one_kind_and_the_size_of_the_rarest(
    windows: list[int | None], sizes: list[int], kinds: list[int | None]
) -> None:
    groups = group_layers(windows)
    assert [len(g.layers) for g in groups] == sizes
    assert [g.window for g in groups] == kinds
    assert [g.index for g in groups] == list(range(len(groups)))
    assert sorted(layer for g in groups for layer in g.layers) == list(range(len(windows)))
    assert all(windows[layer] == g.window for g in groups for layer in g.layers)


@pytest.mark.parametrize("windows", [[], [0], [None, -1]])
def test_impossible_layers_are_refused(windows: list[int | None]) -> None:
    with pytest.raises(ValueError):
        group_layers(windows)


@pytest.mark.parametrize("page_size", [1, 3, 4])
@pytest.mark.parametrize("window", [1, 2, 4, 5, 6, 9])
def test_a_window_keeps_exactly_the_pages_its_queries_see(window: int, page_size: int) -> None:
    allocator = SlidingAttentionCacheAllocator(LayerGroup(0, window, (0,)), page_size)
    for settled in range(40):
        seen = {
            key // page_size for query in (settled, settled + 7) for key in range(max(0, query - window + 1), query)
        }
        assert all(page >= allocator.first_kept(settled) for page in seen)
        lowest = max(0, settled - window + 1)
        assert allocator.first_kept(settled) == lowest // page_size
        for chunk in (1, 2, 5):
            held = pages_for(settled + chunk, page_size) - allocator.first_kept(settled)
            assert held <= allocator.peak_blocks(settled + chunk, chunk)
            assert allocator.peak_blocks(settled + chunk, chunk) <= -(-(window - 1 + chunk) // page_size) + 1


def test_a_hit_is_the_longest_that_every_group_can_serve() -> None:
    page_size = 4
    allocators = (
        FullAttentionCacheAllocator(LayerGroup(0, None, (0,)), page_size),
        SlidingAttentionCacheAllocator(LayerGroup(1, 6, (1,)), page_size),
        SlidingAttentionCacheAllocator(LayerGroup(2, 9, (2,)), page_size),
    )
    for case in range(3**6):
        there = set()
        for page in range(6):
            case, kind = divmod(case, 3)
            there |= {(g, page) for g in range(3) if kind != g}  # in each page one group lacks its block

        def usable(length: int, there: set[tuple[int, int]] = there) -> bool:
            return all(
                (a.index, page) in there for a in allocators for page in range(a.first_kept(length * page_size), length)
            )

        best = max(length for length in range(7) if usable(length))
        assert longest_common_hit(allocators, 6, lambda g, p: (g, p) in there) == best  # noqa: B023


@pytest.mark.parametrize("windows", [FULL, HYBRID, (6,)])
@pytest.mark.parametrize("length", [1, 4, 5, 8, 9, 13, 20])
def test_the_same_prompt_again_computes_only_what_is_behind_the_last_full_page(
    windows: tuple[int | None, ...], length: int
) -> None:
    scheduler = build(windows=windows, max_batch_tokens=64)
    prompt = tuple(range(length))
    scheduler.add(ask("a", prompt, 1))
    drain(scheduler)
    (again,) = scheduler.add(ask("b", prompt, 1))
    made = plan(scheduler)
    hit = (length - 1) // 4 * 4
    assert told(made)[again.key].verdict is Verdict.ADMIT
    assert told(made)[again.key].a == hit == again.cached_tokens
    assert made.num_tokens == length - hit >= 1
    for group in scheduler.layout.groups:
        behind = 0 if group.window is None else max(0, hit - group.window + 1) // 4
        table = again.tables[group.index]
        assert table[:behind] == [TRASH_BLOCK] * behind and TRASH_BLOCK not in table[behind:]


def test_a_page_in_a_step_that_is_not_applied_is_not_found() -> None:
    scheduler = build(max_batch_tokens=64)
    prompt = tuple(range(12))
    scheduler.add(ask("a", prompt, 1))
    scheduler.add(ask("b", prompt, 1))
    made = plan(scheduler)
    assert [d.a for d in made.decisions] == [0, 0]
    assert made.num_tokens == 24


def test_output_pages_are_found_by_a_follow_up() -> None:
    scheduler = build(max_batch_tokens=64)
    (first,) = scheduler.add(ask("a", (1, 2, 3, 4, 5), 8))
    drain(scheduler)
    (second,) = scheduler.add(ask("b", (*first.tokens, 99), 1))
    step(scheduler)
    assert second.cached_tokens == 12  # 5 + 8 tokens, the last one never written


@pytest.mark.parametrize("windows", [FULL, HYBRID])
def test_with_sharing_off_nothing_is_looked_up_or_kept(windows: tuple[int | None, ...]) -> None:
    scheduler = build(windows=windows, max_batch_tokens=64, allow_block_sharing=False)
    for name in "ab":
        scheduler.add(ask(name, tuple(range(12)), 2))
        drain(scheduler)
    assert not scheduler.cache.pool.cached
    counters = scheduler.keyframe(0, 0.0).counters
    assert (counters.lookups, counters.lookup_tokens, counters.cached_tokens) == (0, 0, 0)


@pytest.mark.parametrize("windows", [FULL, HYBRID])
def test_after_clearing_nothing_computed_before_is_ever_found(windows: tuple[int | None, ...]) -> None:
    scheduler = build(windows=windows, max_batch_tokens=8)
    prompt = tuple(range(13))
    scheduler.add(ask("done", prompt, 1))
    drain(scheduler)
    scheduler.add(ask("half", (*prompt[:9], 50, 51, 52, 53), 3, salt=b"s"))
    step(scheduler)  # in the middle of its prompt
    assert scheduler.clear_prefix_cache() > 0
    drain(scheduler)
    assert not scheduler.cache.pool.index
    for name, salt in (("a", b""), ("b", b"s")):
        (seq,) = scheduler.add(ask(name, (*prompt[:9], 50, 51, 52, 53), 1, salt=salt))
        drain(scheduler)
        assert seq.cached_tokens == 0


@pytest.mark.parametrize("windows", [FULL, HYBRID])
def test_offload_and_restore_copy_every_block_that_is_still_seen_and_compute_nothing_again(
    windows: tuple[int | None, ...],
) -> None:
    groups = len(windows)
    scheduler = build(num_blocks=7 * groups, windows=windows, host_blocks=20)
    scheduler.observe(True)
    scheduler.add(ask("a", 9, 14))
    (b,) = scheduler.add(ask("b", 9, 14))
    moved = None
    tables: list[list[int]] = []
    for _ in range(30):
        tables = [list(t) for t in b.tables]
        made, _ = step(scheduler)
        moved = next((d for d in made.decisions if d.verdict is Verdict.OFFLOAD), None)
        if moved:
            break
    assert moved is not None and moved.seq == b.key and scheduler.offloaded == (b,) and not any(b.tables)
    kept = {block for table in tables for block in table if block != TRASH_BLOCK}
    assert {block for block, _ in made.copies.offload} <= kept
    computed = b.computed
    for group in scheduler.layout.groups:
        first = 0 if group.window is None else max(0, computed - group.window + 1) // 4
        assert [i for g, i, _ in b.host if g == group.index] == list(range(first, pages_for(computed, 4)))
    slots = {(g, i): slot for g, i, slot in b.host}
    while not b.tables[0]:
        made, _ = step(scheduler)
    assert told(made)[b.key].verdict is Verdict.RESTORE
    assert sorted(made.copies.restore) == sorted((slot, b.tables[g][i]) for (g, i), slot in slots.items())
    drain(scheduler)
    assert (b.num_output, b.recomputed, b.preemptions >= 1) == (14, 0, True)
    ops = {d.op for d in scheduler.take_events().deltas}
    assert {BlockOp.OFFLOAD, BlockOp.RESTORE} <= ops
    assert len(scheduler.cache.host.free) == 20


def test_an_offloaded_sequence_that_is_cancelled_gives_its_slots_back() -> None:
    scheduler = build(num_blocks=6, host_blocks=8)
    scheduler.add(ask("a", 9, 14))
    scheduler.add(ask("b", 9, 14))
    while not scheduler.offloaded:
        step(scheduler)
    (gone,) = scheduler.cancel("b", 1.0)
    assert len(scheduler.cache.host.free) == 8 and gone.host == []
    drain(scheduler)


def test_windows_hold_a_bounded_number_of_blocks_however_long_the_text() -> None:
    scheduler = build(num_blocks=8, windows=(6,), max_batch_tokens=4)
    (seq,) = scheduler.add(ask("a", 40, 40))
    most = 0
    while scheduler.has_work:
        made = plan(scheduler)
        most = max(most, sum(block != TRASH_BLOCK for block in seq.tables[0]))
        finish(scheduler, made)
    assert seq.num_output == 40
    assert most <= -(-(6 - 1 + 4) // 4) + 1

"""The scheduler when blocks are short, and siblings that share them."""

import pytest

from engine.core.layout import SchedulerSettings
from engine.core.observe import Decision, Verdict
from tests.core.drive import FULL, HYBRID, ask, build, drain, finish, plan, step, told, verdicts

V = Verdict


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

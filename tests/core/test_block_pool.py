"""The pool: states of a block, who is evicted, what can be found."""

import pytest

from engine.core.block_pool import BlockPool
from engine.core.errors import InvariantError
from engine.core.host_pool import HostPool
from engine.core.observe import BlockOp
from engine.core.pages import Page, page_digest, root_digest, same_prefix


def chain(*pages: tuple[int, ...], salt: bytes = b"") -> list[Page]:
    """Linked pages with these tokens."""
    made: list[Page] = []
    for tokens in pages:
        parent = made[-1] if made else None
        digest = page_digest(parent.digest if parent else root_digest(salt), tokens)
        made.append(Page(parent, tokens, digest, salt))
    return made


def test_a_block_is_free_owned_cached_and_evicted_when_nothing_else_is_left() -> None:
    pool = BlockPool(2, 1)
    pool.log = []
    (page,) = chain((1, 2))
    a = pool.take(0, 7, 0)
    pool.publish(a, page, 0, 7, 0)
    assert (pool.usable, pool.find(page, 0)) == (1, a)
    assert pool.drop(a, 7, 0, 0)
    assert (pool.usable, list(pool.cached), pool.find(page, 0)) == (2, [a], a)
    b = pool.take(0, 8, 0)
    assert b != a, "a cached block is kept while a free one is there"
    assert pool.take(0, 8, 1) == a
    assert (pool.usable, pool.find(page, 0), pool.evictions) == (0, 0, 1)
    ops = [d.op for d in pool.log]
    assert ops == [BlockOp.ALLOC, BlockOp.PUBLISH, BlockOp.RELEASE, BlockOp.ALLOC, BlockOp.EVICT, BlockOp.ALLOC]
    assert pool.log[4].seq == 8, "an eviction names who needed the block"


def test_an_empty_pool_and_a_release_too_many_are_bugs() -> None:
    pool = BlockPool(1, 1)
    block = pool.take(0, 1, 0)
    with pytest.raises(InvariantError, match="empty pool"):
        pool.take(0, 1, 1)
    pool.drop(block, 1, 0, 0)
    with pytest.raises(InvariantError, match="nobody holds"):
        pool.drop(block, 1, 0, 0)


def test_sharing_revives_a_cached_block_and_counts_references() -> None:
    pool = BlockPool(3, 1)
    (page,) = chain((1,))
    block = pool.take(0, 1, 0)
    pool.publish(block, page, 0, 1, 0)
    pool.drop(block, 1, 0, 0)
    pool.share(block, 2, 0, 0)
    pool.share(block, 3, 0, 0)
    assert (pool.refs[block], pool.usable) == (2, 2)
    assert not pool.drop(block, 2, 0, 0)
    assert pool.drop(block, 3, 0, 0)
    assert block in pool.cached


def test_the_least_recently_used_goes_first_and_of_a_chain_the_tail() -> None:
    pool = BlockPool(4, 1)
    older, newer = chain((1,), (2,)), chain((3,), (4,))
    blocks = {}
    for seq, pages in ((1, older), (2, newer)):
        for index, page in enumerate(pages):
            blocks[page.tokens] = block = pool.take(0, seq, index)
            pool.publish(block, page, 0, seq, index)
    for step, (seq, pages) in enumerate(((1, older), (2, newer)), 1):
        pool.step = step
        for index in (1, 0):  # a sequence gives up its last block first
            pool.drop(blocks[pages[index].tokens], seq, 0, index)
    pool.share(blocks[(1,)], 3, 0, 0)  # the head of the older chain is used again
    pool.step = 3
    pool.drop(blocks[(1,)], 3, 0, 0)
    assert [pool.take(0, 9, i) for i in range(4)] == [blocks[t] for t in ((2,), (4,), (3,), (1,))]


def test_the_second_block_with_the_same_content_stays_private_and_learns_the_page_of_the_first() -> None:
    pool = BlockPool(4, 1)
    one, two = chain((1, 2)), chain((1, 2))
    a, b = pool.take(0, 1, 0), pool.take(0, 2, 0)
    assert pool.publish(a, one[0], 0, 1, 0) is one[0]
    assert pool.publish(b, two[0], 0, 2, 0) is one[0]
    pool.drop(b, 2, 0, 0)
    assert b in pool.free and pool.find(two[0], 0) == a


def test_groups_and_salts_do_not_meet() -> None:
    pool = BlockPool(4, 2)
    (plain,), (salted,) = chain((1, 2)), chain((1, 2), salt=b"tenant")
    block = pool.take(0, 1, 0)
    pool.publish(block, plain, 0, 1, 0)
    assert pool.find(plain, 1) == 0
    assert pool.find(salted, 0) == 0
    assert plain.digest != salted.digest and not same_prefix(plain, salted)


@pytest.mark.parametrize("verify", [True, False])
def test_equal_digests_of_unequal_tokens_are_told_apart_by_comparing_all_of_the_prefix(verify: bool) -> None:
    pool = BlockPool(4, 1, verify=verify)
    digest = b"x" * 16
    first, other = Page(None, (1,), digest, b""), Page(None, (2,), digest, b"")
    mine, theirs = Page(first, (5,), digest, b""), Page(other, (5,), digest, b"")
    block = pool.take(0, 1, 1)
    pool.publish(block, mine, 0, 1, 1)
    assert pool.find(theirs, 0) == (0 if verify else block)


def test_clearing_frees_cached_blocks_and_makes_owned_ones_private() -> None:
    pool = BlockPool(3, 1)
    pages = chain((1,), (2,))
    blocks = [pool.take(0, 1, i) for i in range(2)]
    for index, page in enumerate(pages):
        pool.publish(blocks[index], page, 0, 1, index)
    pool.drop(blocks[1], 1, 0, 1)
    assert pool.clear() == 2
    assert (pool.find(pages[0], 0), pool.find(pages[1], 0), len(pool.cached)) == (0, 0, 0)
    pool.drop(blocks[0], 1, 0, 0)
    assert len(pool.free) == 3


def test_a_copy_goes_its_own_way() -> None:
    pool = BlockPool(3, 1)
    block = pool.take(0, 1, 0)
    twin = pool.copy()
    twin.drop(block, 1, 0, 0)
    twin.take(0, 2, 0)
    assert (pool.refs[block], pool.usable, twin.usable) == (1, 2, 2)


def test_digests_are_fixed_numbers() -> None:
    first = page_digest(root_digest(b""), (1, 2, 3))
    assert len(first) == 16
    assert page_digest(root_digest(b""), (1, 2, 3)) == first
    assert page_digest(root_digest(b""), (1, 2, 4)) != first
    assert page_digest(first, (1, 2, 3)) != first


def test_a_host_slot_read_back_is_free_only_after_that_step() -> None:
    host = HostPool(2)
    slot, other = host.take((1, 0, 0)), host.take((1, 0, 1))
    host.drain(slot, step=5)
    host.give_back(other)
    assert (host.free, host.used, host.owners) == ([other], 0, [None, None])
    host.settle(4)
    assert slot not in host.free
    host.settle(5)
    assert sorted(host.free) == [slot, other]

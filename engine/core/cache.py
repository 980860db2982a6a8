"""The paged cache of all sequences: quote → commit → settle → release, prefix hits, and moves to and from the host."""

from engine.core.allocators import (
    Allocator,
    SlidingAttentionCacheAllocator,
    allocator_for,
    pages_for,
)
from engine.core.block_pool import BlockPool
from engine.core.host_pool import HostPool
from engine.core.layout import TRASH_BLOCK, CacheLayout
from engine.core.observe import BlockDelta, BlockOp
from engine.core.pages import Digest, page_digest
from engine.core.prefix import Hit, PrefixCache
from engine.core.request import Sequence

COPY, DROP, OFFLOAD, RECYCLE, RESTORE = BlockOp.COPY, BlockOp.DROP, BlockOp.OFFLOAD, BlockOp.RECYCLE, BlockOp.RESTORE


class PagedCache:
    """Block tables of all sequences over one pool.

    All tables of a sequence have the same length: a new page takes one block in every group, and entries behind a
    sliding window stay in the table as the trash block. So the price of more tokens is one multiplication.

    Methods that only look say so; all others change the pool and the tables of one sequence.

    Attributes:
        windows: each sliding window once, with the index of one of its groups. Groups of one window recycle together,
            so one tells whether there is anything to recycle.

    Args:
        layout: shape of the cache.
        digest: digest of a page, see ``page_digest``.
        verify: compare tokens on every prefix hit; without it two equal digests count as equal prefixes.
    """

    def __init__(self, layout: CacheLayout, digest: Digest = page_digest, verify: bool = True) -> None:
        self.layout = layout
        self.page_size = layout.page_size
        self.num_groups = len(layout.groups)
        self.allocators: tuple[Allocator, ...] = tuple(allocator_for(g, layout.page_size) for g in layout.groups)
        self.sliding = tuple(a for a in self.allocators if isinstance(a, SlidingAttentionCacheAllocator))
        self.windows = tuple({a.window: a.index for a in self.sliding}.items())
        self.pool = BlockPool(layout.num_blocks, self.num_groups, verify)
        self.host = HostPool(layout.host_blocks)
        self.prefix = PrefixCache(self.pool, self.allocators, layout.page_size, digest)

    # -- looking ------------------------------------------------------------------------------------------------------

    def blocks_ever(self, num_tokens: int) -> int:
        """Fewest blocks with which a sequence alone can reach ``num_tokens`` written tokens. Only looks."""
        return sum(a.peak_blocks(num_tokens, 1) for a in self.allocators)

    def quote_start(self, seq: Sequence, hit: Hit, chunk: int) -> int:
        """Blocks the pool must have for all known tokens of a starting sequence, hits nobody holds included.

        Only looks. The peak is counted: a window gives blocks back while a long prompt runs in chunks.
        """
        total, size = len(seq.tokens), self.page_size
        span = chunk + hit.tokens - hit.pages * size
        need = hit.revived
        for allocator, (first, blocks) in zip(self.allocators, hit.shared or ((0, ()),) * self.num_groups, strict=True):
            held = min(allocator.peak_blocks(total, span), pages_for(total, size) - first)
            need += max(0, held - len(blocks))
        return need

    def quote_restore(self, seq: Sequence, num_tokens: int) -> int:
        """Blocks to bring a sequence back from the host and compute ``num_tokens`` more. Only looks."""
        pages = pages_for(seq.computed, self.page_size)
        more = pages_for(seq.computed + num_tokens, self.page_size) - pages
        return len(seq.host) + more * self.num_groups

    def tokens_within(self, pages: int, start: int, blocks: int) -> int:
        """How many tokens from position ``start`` on fit into a table of ``pages`` plus ``blocks`` new blocks."""
        return (pages + max(0, blocks) // self.num_groups) * self.page_size - start

    def freed_by(self, seq: Sequence, dropped: dict[int, int]) -> int:
        """Blocks that become usable when this sequence goes too, after the references in ``dropped`` are gone.

        Adds its own references to ``dropped``; changes nothing else.
        """
        refs = self.pool.refs
        freed = 0
        for table in seq.tables:
            for block in table:
                if block != TRASH_BLOCK:
                    gone = dropped.get(block, 0) + 1
                    dropped[block] = gone
                    freed += refs[block] == gone
        return freed

    def held_by(self, seq: Sequence) -> int:
        """Table entries of a sequence that point at a block. Only looks."""
        return sum(len(table) - table.count(TRASH_BLOCK) for table in seq.tables)

    # -- a sequence's life --------------------------------------------------------------------------------------------

    def start(self, seq: Sequence, hit: Hit, num_tokens: int) -> tuple[tuple[tuple[int, int], ...], int]:
        """Give a sequence its first tables: the hit, then blocks for ``num_tokens`` tokens after it.

        The caller quoted before. Sets ``seq.tables`` and ``seq.computed`` (to the hit).

        Returns:
            Block copies to make, (source, target), and the number of new blocks.
        """
        key, pool = seq.key, self.pool
        seq.tables = [[] for _ in range(self.num_groups)]
        for group, (first, blocks) in enumerate(hit.shared):
            table = seq.tables[group]
            table.extend([TRASH_BLOCK] * first)
            for index, block in enumerate(blocks, first):
                pool.share(block, key, group, index)
                table.append(block)
        self.prefix.begin(seq, hit)
        seq.computed = hit.tokens
        new = self.extend(seq, num_tokens)
        copies = tuple((source, table[hit.pages]) for source, table in zip(hit.fork, seq.tables, strict=False))
        if pool.log is not None:
            for group, (source, target) in enumerate(copies):
                pool.log.append(BlockDelta(COPY, target, key, group, hit.pages, source))
        return copies, new

    def extend(self, seq: Sequence, num_tokens: int) -> int:
        """Take the blocks that ``num_tokens`` more tokens need. The caller quoted before. Returns how many."""
        tables, key = seq.tables, seq.key
        first = len(tables[0])
        last = pages_for(seq.computed + num_tokens, self.page_size)
        for index in range(first, last):
            for group, table in enumerate(tables):
                table.append(self.pool.take(group, key, index))
        return max(0, last - first) * self.num_groups

    def recycle(self, seq: Sequence) -> None:
        """Give back blocks that no query can see any more, the ones in flight included."""
        for allocator in self.sliding:
            group = allocator.index
            table = seq.tables[group]
            index = allocator.first_kept(seq.computed - seq.in_flight) - 1
            while index >= 0 and table[index] != TRASH_BLOCK:
                self.pool.drop(table[index], seq.key, group, index, RECYCLE)
                table[index] = TRASH_BLOCK
                index -= 1

    def settle(self, seq: Sequence) -> None:
        """Let others find what is written and known now. Call after ``in_flight`` and the tokens moved on."""
        self.prefix.publish(seq)

    def release(self, seq: Sequence) -> int:
        """Give up all blocks, the last one first. Returns how many became usable. Its tables are empty afterwards."""
        pool, key = self.pool, seq.key
        freed = 0
        for index in range(len(seq.tables[0]) - 1 if seq.tables else -1, -1, -1):
            for group, table in enumerate(seq.tables):
                block = table[index]
                if block != TRASH_BLOCK:
                    freed += pool.drop(block, key, group, index)
        seq.tables = [[] for _ in range(self.num_groups)]
        return freed

    def forget(self, seq: Sequence) -> int:
        """A sequence is over: release its blocks, its host slots and what was remembered. Returns blocks freed."""
        freed = self.release(seq)
        self.drop_host(seq)
        self.prefix.forget(seq)
        return freed

    def restart(self, seq: Sequence) -> int:
        """Drop everything a sequence has written; it will be computed again. Returns blocks freed."""
        freed = self.release(seq)
        self.drop_host(seq)
        seq.computed = 0
        self.prefix.forget(seq)
        return freed

    # -- host memory --------------------------------------------------------------------------------------------------

    def offload(self, seq: Sequence) -> tuple[tuple[int, int], ...]:
        """Move a sequence with nothing in flight to the host pool, which has room for it.

        Returns:
            Copies to make, (block, host slot).
        """
        log, key = self.pool.log, seq.key
        copies = []
        for group, table in enumerate(seq.tables):
            for index, block in enumerate(table):
                if block == TRASH_BLOCK:
                    continue
                slot = self.host.take((key, group, index))
                seq.host.append((group, index, slot))
                copies.append((block, slot))
                if log is not None:
                    log.append(BlockDelta(OFFLOAD, block, key, group, index, slot))
        self.release(seq)
        return tuple(copies)

    def restore(self, seq: Sequence, num_tokens: int, step: int) -> tuple[tuple[int, int], ...]:
        """Bring a sequence back and take blocks for ``num_tokens`` more. The caller quoted before.

        Returns:
            Copies to make, (host slot, block).
        """
        log, key = self.pool.log, seq.key
        pages = pages_for(seq.computed, self.page_size)
        seq.tables = [[TRASH_BLOCK] * pages for _ in range(self.num_groups)]
        copies = []
        for group, index, slot in seq.host:
            block = self.pool.take(group, key, index)
            seq.tables[group][index] = block
            copies.append((slot, block))
            self.host.drain(slot, step)
            if log is not None:
                log.append(BlockDelta(RESTORE, block, key, group, index, slot))
        seq.host = []
        self.prefix.offer_again(seq)
        self.extend(seq, num_tokens)
        return tuple(copies)

    def drop_host(self, seq: Sequence) -> None:
        """Give up the host slots of a sequence without reading them back."""
        for group, index, slot in seq.host:
            self.host.give_back(slot)
            if self.pool.log is not None:
                self.pool.log.append(BlockDelta(DROP, TRASH_BLOCK, seq.key, group, index, slot))
        seq.host = []

    def copy(self) -> "PagedCache":
        """An independent cache in the same state that records nothing. Tables belong to the sequences."""
        twin = PagedCache(self.layout, self.prefix.digest, self.pool.verify)
        twin.pool, twin.host = self.pool.copy(), self.host.copy()
        twin.prefix = self.prefix.copy(twin.pool)
        return twin

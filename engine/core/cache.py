"""The paged cache of all sequences: quote → commit → settle → release, prefix hits, and moves to and from the host."""

from dataclasses import dataclass

from engine.core.allocators import (
    Allocator,
    SlidingAttentionCacheAllocator,
    allocator_for,
    longest_common_hit,
    pages_for,
)
from engine.core.block_pool import BlockPool
from engine.core.host_pool import HostPool
from engine.core.layout import TRASH_BLOCK, CacheLayout
from engine.core.observe import BlockDelta, BlockOp
from engine.core.pages import Digest, Page, page_digest, root_digest
from engine.core.request import Sequence

COPY, DROP, OFFLOAD, RECYCLE, RESTORE = BlockOp.COPY, BlockOp.DROP, BlockOp.OFFLOAD, BlockOp.RECYCLE, BlockOp.RESTORE


@dataclass(frozen=True, slots=True)
class Hit:
    """What a sequence that holds nothing can take over instead of computing it.

    Attributes:
        pages: leading pages found in the prefix cache.
        tokens: tokens it need not compute; more than ``pages`` pages only when a sibling's last block is copied.
        shared: per group the first table index and the blocks to share from there on.
        revived: how many of those are held by nobody now; sharing them makes the pool smaller.
        fork: per group the sibling's block to copy as the next one, empty when there is none.
    """

    pages: int = 0
    tokens: int = 0
    shared: tuple[tuple[int, tuple[int, ...]], ...] = ()
    revived: int = 0
    fork: tuple[int, ...] = ()


NO_HIT = Hit()


class Chain:
    """What the cache remembers about the pages of one sequence.

    Attributes:
        pages: contents of its full pages so far, each linked to the one before.
        published: leading pages that were offered to the prefix index.
        current: False once the prefix cache was cleared under it: what it holds must not be found by others.
        hit: the last look-up, good while the index is at version ``hit_version``.
    """

    __slots__ = ("current", "hit", "hit_version", "pages", "published", "root")

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.pages: list[Page] = []
        self.published = 0
        self.current = True
        self.hit = NO_HIT
        self.hit_version = -1

    def copy(self) -> "Chain":
        twin = Chain(self.root)
        twin.pages, twin.published, twin.current = self.pages[:], self.published, self.current
        return twin


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
        self.digest = digest
        self.sharing = True
        self.chains: dict[int, Chain] = {}

    # -- looking ------------------------------------------------------------------------------------------------------

    def blocks_ever(self, num_tokens: int) -> int:
        """Fewest blocks with which a sequence alone can reach ``num_tokens`` written tokens. Only looks."""
        return sum(a.peak_blocks(num_tokens, 1) for a in self.allocators)

    def quote_more(self, seq: Sequence, num_tokens: int) -> int:
        """New blocks for ``num_tokens`` more tokens of a sequence that has tables. Only looks."""
        pages = pages_for(seq.computed + num_tokens, self.page_size)
        return max(0, pages - len(seq.tables[0])) * self.num_groups

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

    # -- prefix hits --------------------------------------------------------------------------------------------------

    def lookup(self, seq: Sequence) -> Hit:
        """Longest prefix of a sequence without tables that the cache holds for every group.

        At least the last known token is left to compute, because its logits are wanted. Changes no block; remembers the
        answer until the prefix index changes.
        """
        chain = self._chain(seq)
        if not self.sharing:
            return NO_HIT
        if chain.hit_version != self.pool.version:
            chain.hit = self._search(seq, chain, (len(seq.tokens) - 1) // self.page_size)
            chain.hit_version = self.pool.version
        hit = chain.hit
        if not hit.pages:
            return hit
        return self._hit(hit.pages, hit.tokens, hit.shared)

    def lookup_sibling(self, seq: Sequence, source: Sequence) -> Hit | None:
        """Like ``lookup`` for a new sequence whose prompt ``source`` has written: all of it but the last token.

        The full pages come from the prefix cache, what is left of the prompt is copied out of the source's block.
        Returns None when some of it is not there any more.
        """
        pages, rest = divmod(seq.num_prompt - 1, self.page_size)
        hit = self.lookup(seq)
        if not self.sharing or hit.pages < pages or not self._chain(source).current:
            return None
        if not rest:
            return hit
        tail = tuple(table[pages] for table in source.tables)
        if TRASH_BLOCK in tail:
            return None
        shared = []
        for allocator, (first, blocks) in zip(self.allocators, hit.shared, strict=False):
            kept = allocator.first_kept(seq.num_prompt - 1)
            shared.append((kept, blocks[kept - first :]))
        return self._hit(hit.pages, seq.num_prompt - 1, tuple(shared), tail)

    def clear(self) -> int:
        """Forget every published block; what sequences hold now is never published. Returns how many were published."""
        for chain in self.chains.values():
            chain.current = False
        return self.pool.clear()

    # -- a sequence's life --------------------------------------------------------------------------------------------

    def start(self, seq: Sequence, hit: Hit, num_tokens: int) -> tuple[tuple[tuple[int, int], ...], int]:
        """Give a sequence its first tables: the hit, then blocks for ``num_tokens`` tokens after it.

        The caller quoted before. Sets ``seq.tables`` and ``seq.computed`` (to the hit).

        Returns:
            Block copies to make, (source, target), and the number of new blocks.
        """
        chain = self.chains[seq.key]
        key, pool = seq.key, self.pool
        seq.tables = [[] for _ in range(self.num_groups)]
        for group, (first, blocks) in enumerate(hit.shared):
            table = seq.tables[group]
            table.extend([TRASH_BLOCK] * first)
            for index, block in enumerate(blocks, first):
                pool.share(block, key, group, index)
                table.append(block)
        chain.published = hit.pages
        chain.current = True
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
        """Publish the full pages whose tokens are written and known. Call after ``in_flight`` and tokens moved on."""
        chain = self.chains[seq.key]
        if not self.sharing or not chain.current:
            return
        pool, key = self.pool, seq.key
        full = (seq.computed - seq.in_flight) // self.page_size
        for index in range(chain.published, full):
            page = self._page(seq, chain, index)
            for group, table in enumerate(seq.tables):
                block = table[index]
                if block != TRASH_BLOCK and pool.pages[block] is None:
                    kept = pool.publish(block, page, group, key, index)
                    if kept is not page:
                        chain.pages[index] = page = kept
        chain.published = max(chain.published, full)

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

    def disown(self, seq: Sequence) -> None:
        """Take its prefix out of the index, except what others hold: its contents are not to be trusted.

        What a window gave back before counts too.
        """
        pool = self.pool
        for page in self.chains[seq.key].pages:
            for group, table in enumerate(seq.tables):
                block = pool.find(page, group)
                if block and (pool.refs[block] == 0 or (pool.refs[block] == 1 and block in table)):
                    pool.hide(block)

    def forget(self, seq: Sequence) -> int:
        """A sequence is over: release its blocks, its host slots and what was remembered. Returns blocks freed."""
        freed = self.release(seq)
        self.drop_host(seq)
        self.chains.pop(seq.key, None)
        return freed

    def restart(self, seq: Sequence) -> int:
        """Drop everything a sequence has written; it will be computed again. Returns blocks freed."""
        freed = self.release(seq)
        self.drop_host(seq)
        seq.computed = 0
        self.chains.pop(seq.key, None)
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
        self._chain(seq).published = 0
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
        twin = PagedCache(self.layout, self.digest, self.pool.verify)
        twin.pool, twin.host, twin.sharing = self.pool.copy(), self.host.copy(), self.sharing
        twin.chains = {key: chain.copy() for key, chain in self.chains.items()}
        return twin

    # -- inside -------------------------------------------------------------------------------------------------------

    def _chain(self, seq: Sequence) -> Chain:
        chain = self.chains.get(seq.key)
        if chain is None:
            chain = self.chains[seq.key] = Chain(root_digest(seq.request.salt))
        return chain

    def _hit(
        self, pages: int, tokens: int, shared: tuple[tuple[int, tuple[int, ...]], ...], fork: tuple[int, ...] = ()
    ) -> Hit:
        """A hit whose blocks are counted as the pool is now."""
        refs = self.pool.refs
        revived = sum(1 for _, blocks in shared for block in blocks if refs[block] == 0)
        return Hit(pages, tokens, shared, revived, fork)

    def _page(self, seq: Sequence, chain: Chain, index: int) -> Page:
        """Contents of a full page of known tokens, made on first use."""
        pages, size = chain.pages, self.page_size
        for i in range(len(pages), index + 1):
            parent = pages[-1] if pages else None
            tokens = tuple(seq.tokens[i * size : (i + 1) * size])
            digest = self.digest(parent.digest if parent else chain.root, tokens)
            pages.append(Page(parent, tokens, digest, seq.request.salt))
        return pages[index]

    def _search(self, seq: Sequence, chain: Chain, limit: int) -> Hit:
        """The longest common hit of at most ``limit`` pages, its ``revived`` left at 0.

        Pages found are replaced by the very objects of the blocks that hold them, so that the comparison of the next
        page, whose parent they become, ends after one step.
        """
        pool, leader = self.pool, self.allocators[0].index

        def present(group: int, index: int) -> bool:
            block = pool.find(self._page(seq, chain, index), group)
            if block and group == leader and pool.verify:
                chain.pages[index] = pool.pages[block] or chain.pages[index]
            return block != 0

        pages = longest_common_hit(self.allocators, limit, present)
        if not pages:
            return NO_HIT
        shared = []
        for allocator in self.allocators:
            first = allocator.first_kept(pages * self.page_size)
            shared.append((first, tuple(pool.find(chain.pages[i], allocator.index) for i in range(first, pages))))
        return Hit(pages, pages * self.page_size, tuple(shared))

"""Prefix sharing: which blocks hold the beginning of a sequence already, and which new ones others may find."""

from dataclasses import dataclass

from engine.core.allocators import Allocator, longest_common_hit
from engine.core.block_pool import BlockPool
from engine.core.layout import TRASH_BLOCK
from engine.core.pages import Digest, Page, root_digest
from engine.core.request import Sequence


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


class PrefixCache:
    """Looks up, publishes and forgets the pages of sequences in the index of one pool.

    Attributes:
        sharing: False switches look-ups and publishing off.
        chains: what is remembered per sequence that was looked up or runs.
        digest: digest of a page, see ``page_digest``.
    """

    def __init__(self, pool: BlockPool, allocators: tuple[Allocator, ...], page_size: int, digest: Digest) -> None:
        self.pool = pool
        self.allocators = allocators
        self.page_size = page_size
        self.digest = digest
        self.sharing = True
        self.chains: dict[int, Chain] = {}

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

    def begin(self, seq: Sequence, hit: Hit) -> None:
        """A sequence starts with the pages of ``hit``; what it writes after them may be published."""
        chain = self._chain(seq)
        chain.published = hit.pages
        chain.current = True

    def offer_again(self, seq: Sequence) -> None:
        """The blocks of a sequence are new and unknown to the index: offer all its pages when it settles next."""
        self._chain(seq).published = 0

    def publish(self, seq: Sequence) -> None:
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

    def forget(self, seq: Sequence) -> None:
        """Nothing is remembered of a sequence any more."""
        self.chains.pop(seq.key, None)

    def copy(self, pool: BlockPool) -> "PrefixCache":
        """The same over a copy of the pool."""
        twin = PrefixCache(pool, self.allocators, self.page_size, self.digest)
        twin.sharing = self.sharing
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

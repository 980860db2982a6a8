"""The pool of blocks: who is referenced, what is cached, what goes first when room is needed."""

from collections import OrderedDict

from engine.core.errors import InvariantError
from engine.core.observe import BlockDelta, BlockOp
from engine.core.pages import Page, same_prefix
from engine.core.quick import quick

make_delta = quick(BlockDelta)
ALLOC, SHARE, PUBLISH, EVICT = BlockOp.ALLOC, BlockOp.SHARE, BlockOp.PUBLISH, BlockOp.EVICT


class BlockPool:
    """Reference counts, free list and prefix index of the blocks 1 … ``num_blocks``.

    A block is in exactly one of three states::

        free ── take ──▶ owned ── drop, last reference ──▶ cached (published) or free
         ▲                 ▲                                 │
         │                 └───────────── share ─────────────┤
         └────────────────── evicted by take ────────────────┘

    Cached blocks are kept in the order in which they lost their last reference, so the first one is the least recently
    used. A sequence drops its last block first: of one chain the tail is older than the head and is evicted first.

    Attributes:
        refs: references per block; index 0 is the trash block and stays 0.
        groups: layer group per block, -1 while free.
        pages: contents per published block, else None.
        last_use: number of the step in which the block was last taken, shared or dropped.
        version: grows with every change of the prefix index, so that look-ups can be remembered.
        step: number stamped into ``last_use``; the scheduler moves it.
        log: where block deltas are written, or None while nobody records.
    """

    def __init__(self, num_blocks: int, num_groups: int, verify: bool = True) -> None:
        self.num_blocks = num_blocks
        self.verify = verify
        self.refs = [0] * (num_blocks + 1)
        self.groups = [-1] * (num_blocks + 1)
        self.pages: list[Page | None] = [None] * (num_blocks + 1)
        self.last_use = [0] * (num_blocks + 1)
        self.free = list(range(num_blocks, 0, -1))
        self.cached: OrderedDict[int, None] = OrderedDict()
        self.index: dict[bytes, int] = {}
        self.version = 0
        self.evictions = 0
        self.step = 0
        self.log: list[BlockDelta] | None = None
        self._tags = tuple(group.to_bytes(2, "little") for group in range(num_groups))

    @property
    def usable(self) -> int:
        """Blocks that can be taken right now: free ones and cached ones."""
        return len(self.free) + len(self.cached)

    def key(self, page: Page, group: int) -> bytes:
        """Key of a page in the prefix index: its digest and its layer group."""
        return page.digest + self._tags[group]

    def take(self, group: int, seq: int, index: int) -> int:
        """Hand out one block with one reference; evicts the least recently used cached block when none is free."""
        if self.free:
            block = self.free.pop()
        elif self.cached:
            block = next(iter(self.cached))
            self._evict(block, seq)
            self.free.pop()
        else:
            raise InvariantError("a block was taken from an empty pool; it should have been quoted first")
        self.refs[block] = 1
        self.groups[block] = group
        self.last_use[block] = self.step
        if self.log is not None:
            self.log.append(make_delta(ALLOC, block, seq, group, index, -1))
        return block

    def share(self, block: int, seq: int, group: int, index: int) -> None:
        """One more reference to a published block, cached or owned."""
        if self.refs[block] == 0:
            del self.cached[block]
        self.refs[block] += 1
        self.last_use[block] = self.step
        if self.log is not None:
            self.log.append(make_delta(SHARE, block, seq, group, index, -1))

    def drop(self, block: int, seq: int, group: int, index: int, op: BlockOp = BlockOp.RELEASE) -> bool:
        """One reference less. Returns True when it was the last one, which makes the block usable again."""
        refs = self.refs[block] - 1
        if refs < 0:
            raise InvariantError(f"block {block} was released by sequence {seq} but nobody holds it")
        self.refs[block] = refs
        self.last_use[block] = self.step
        if self.log is not None:
            self.log.append(make_delta(op, block, seq, group, index, -1))
        if refs:
            return False
        if self.pages[block] is not None:
            self.cached[block] = None
        else:
            self.groups[block] = -1
            self.free.append(block)
        return True

    def publish(self, block: int, page: Page, group: int, seq: int, index: int) -> Page:
        """Make a written block findable.

        Returns:
            The page that stands for these tokens: that of an equal block published earlier (then this block stays
            private), else ``page`` itself.
        """
        key = self.key(page, group)
        known = self.index.get(key)
        if known is not None:
            other = self.pages[known]
            return other if other is not None and same_prefix(other, page) else page
        self.index[key] = block
        self.pages[block] = page
        self.version += 1
        if self.log is not None:
            self.log.append(make_delta(PUBLISH, block, seq, group, index, -1))
        return page

    def find(self, page: Page, group: int) -> int:
        """The published block of this group with exactly this prefix, or 0."""
        block = self.index.get(page.digest + self._tags[group], 0)
        if block and self.verify and not same_prefix(self.pages[block], page):
            return 0
        return block

    def clear(self) -> int:
        """Empty the prefix index. Cached blocks become free, owned ones private. Returns how many were published."""
        published = list(self.index.values())
        for block in published:
            self.hide(block)
        return len(published)

    def hide(self, block: int) -> None:
        """Take a published block out of the prefix index. Owners keep it; a cached one becomes free."""
        if not self.refs[block]:
            self._evict(block, -1)
            return
        self._unpublish(block)
        if self.log is not None:
            self.log.append(BlockDelta(EVICT, block, -1, self.groups[block]))

    def copy(self) -> "BlockPool":
        """An independent pool in the same state that records nothing."""
        twin = BlockPool(0, len(self._tags), self.verify)
        twin.num_blocks = self.num_blocks
        twin.refs, twin.groups, twin.pages = self.refs[:], self.groups[:], self.pages[:]
        twin.last_use, twin.free, twin.cached = self.last_use[:], self.free[:], self.cached.copy()
        twin.index, twin.version = dict(self.index), self.version
        twin.evictions, twin.step = self.evictions, self.step
        return twin

    def _evict(self, block: int, seq: int) -> None:
        del self.cached[block]
        if self.log is not None:
            self.log.append(BlockDelta(EVICT, block, seq, self.groups[block]))
        self._unpublish(block)
        self.groups[block] = -1
        self.free.append(block)
        self.evictions += 1

    def _unpublish(self, block: int) -> None:
        page = self.pages[block]
        if page is None:
            raise InvariantError(f"block {block} is not in the prefix index")
        del self.index[self.key(page, self.groups[block])]
        self.pages[block] = None
        self.version += 1

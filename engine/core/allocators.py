"""What one layer group needs: blocks for a length, blocks behind its window, how much of a prefix it can reuse."""

from collections.abc import Callable

from engine.core.layout import LayerGroup

Present = Callable[[int, int], bool]
"""(group, page number) -> whether a published block holds that page."""


def pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that ``num_tokens`` tokens fill, the last one perhaps in part."""
    return -(-num_tokens // page_size)


class FullAttentionCacheAllocator:
    """A group whose queries see every earlier token: nothing is ever given back before the end."""

    def __init__(self, group: LayerGroup, page_size: int) -> None:
        self.index = group.index
        self.page_size = page_size

    def first_kept(self, settled: int) -> int:
        """First page a query at position ``settled`` or later can see."""
        return 0

    def peak_blocks(self, num_tokens: int, chunk: int) -> int:
        """Most blocks held at one time while ``num_tokens`` tokens are computed in chunks of at most ``chunk``."""
        return pages_for(num_tokens, self.page_size)

    def longest_hit(self, limit: int, present: Present) -> int:
        """Most leading pages, at most ``limit``, that can be taken from the prefix cache. Every page must be there."""
        for page in range(limit):
            if not present(self.index, page):
                return page
        return limit


class SlidingAttentionCacheAllocator:
    """A group whose queries at position p see the keys ``p - window + 1 … p``.

    With page size 4 and window 6, when 13 tokens are settled the next query (position 13) sees 8 … 13::

        page      0 0 0 0 | 1 1 1 1 | 2 2 2 2 | 3 . . .
        position  0 1 2 3   4 5 6 7   8 9 …  11  12
                  ╰─ behind the window ─╯ ╰── kept ──╯
    """

    def __init__(self, group: LayerGroup, page_size: int) -> None:
        if group.window is None:
            raise ValueError(f"layer group {group.index} has no sliding window")
        self.index = group.index
        self.window = group.window
        self.page_size = page_size

    def first_kept(self, settled: int) -> int:
        """First page a query at position ``settled`` or later can see."""
        return max(0, settled - self.window + 1) // self.page_size

    def peak_blocks(self, num_tokens: int, chunk: int) -> int:
        """Most blocks held at one time while ``num_tokens`` tokens are computed in chunks of at most ``chunk``.

        ``window - 1 + chunk`` neighbouring tokens, wherever they start in a page.
        """
        span = self.window - 1 + chunk
        return min(pages_for(num_tokens, self.page_size), pages_for(span - 1, self.page_size) + 1)

    def longest_hit(self, limit: int, present: Present) -> int:
        """Most leading pages, at most ``limit``, after which only pages inside the window have to be there."""
        length = limit
        page = limit - 1
        while page >= self.first_kept(length * self.page_size):
            if not present(self.index, page):
                length = page
            page -= 1
        return length


Allocator = FullAttentionCacheAllocator | SlidingAttentionCacheAllocator


def allocator_for(group: LayerGroup, page_size: int) -> Allocator:
    """The allocator of a layer group's attention kind."""
    kind = SlidingAttentionCacheAllocator if group.is_sliding else FullAttentionCacheAllocator
    return kind(group, page_size)


def longest_common_hit(allocators: tuple[Allocator, ...], limit: int, present: Present) -> int:
    """Most leading pages that *all* groups can take from the prefix cache: the largest fixed point under ``limit``.

    A shorter hit moves a sliding group's window back, where other pages are needed, so the groups are asked again until
    nobody shortens it further.
    """
    length = limit
    while True:
        before = length
        for allocator in allocators:
            length = allocator.longest_hit(length, present)
        if length == before:
            return length

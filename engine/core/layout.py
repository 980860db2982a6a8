"""What the cache looks like: layer groups, page size, pool sizes. Facts only, no behaviour."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that share one block table because they keep the same positions.

    Attributes:
        index: position of the group in every table list.
        window: sliding window in tokens (a query at position p sees keys p-window+1 … p), or None for full attention.
        layers: model layer indices in ascending order. Layer ``layers[j]`` uses the j-th page of each block.
    """

    index: int
    window: int | None
    layers: tuple[int, ...]

    @property
    def is_sliding(self) -> bool:
        return self.window is not None


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Shape of the paged cache.

    A *page* holds ``page_size`` tokens of one layer. A *block* is one page for each layer of one group. Every group has
    the same number of layers (the last one of a kind is padded), so all blocks have one size and come from one pool::

        block ids   0        1 … num_blocks
                    trash    usable, handed out by the pool

    Attributes:
        page_size: tokens per page.
        groups: the layer groups, full attention first.
        num_blocks: usable blocks in the pool, over all groups (the trash block 0 is not counted).
        host_blocks: slots of the host (CPU) swap pool, 0 when offloading is off. Slot ids are 0 … host_blocks-1.
        block_bytes: bytes of one block, for display and cost; 0 when unknown.
    """

    page_size: int
    groups: tuple[LayerGroup, ...]
    num_blocks: int
    host_blocks: int = 0
    block_bytes: int = 0


TRASH_BLOCK = 0
"""Padding rows write here and table entries behind a window point here; nothing inside a window ever reads it."""


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """The part of the resolved configuration the scheduler reads. Replaced as a whole between two steps.

    Attributes:
        policy: ``"fifo"`` or ``"prefill_first"``.
        max_batch_tokens: query tokens per step.
        max_requests_per_batch: rows per step; also the number of sequences that may hold a row.
        safety_margin: share of the pool, in [0, 1], that new prefills must leave usable.
        allow_block_sharing: prefix cache and parent/child sharing on.
        skip_limit: in how many steps the head of the queue may be overtaken while it does not fit; 0 is strict.
        max_steps_without_decode: under ``prefill_first``, decodes run at the latest after this many steps without one.
        max_length: longest sequence (prompt + output) the model's positions allow, or None.
    """

    policy: str = "fifo"
    max_batch_tokens: int = 8192
    max_requests_per_batch: int = 1024
    safety_margin: float = 0.15
    allow_block_sharing: bool = True
    skip_limit: int = 0
    max_steps_without_decode: int = 16
    max_length: int | None = None

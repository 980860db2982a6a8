"""The tensors behind the block ids: keys and values of every page, and their twins in host memory."""

import torch

from engine.core.layout import CacheLayout
from engine.core.plan import Copies
from engine.run.facts import ModelFacts
from engine.run.upload import upload


class KVStore:
    """Physical storage of the paged cache.

    A block is one page for each layer of a group. Page j of every block lives in ``keys[j]`` and ``values[j]``::

        keys[j]    [1 + num_blocks, page_size, kv_heads, head_dim]
                    block 0 is the trash block

    so a layer at place j of its group uses tensor j with its group's block table. Nothing is initialised, and what was
    never written is never read. So on the CPU the memory is reserved but not committed: the system gives it when it is
    first written, and a large pool costs what is used of it.
    """

    def __init__(self, layout: CacheLayout, facts: ModelFacts) -> None:
        """Reserve the pool on the model's device and the host pool in RAM.

        Raises:
            MemoryError: the device cannot hold the pool; the sum is laid out.
        """
        self.layout = layout
        pages = max((len(group.layers) for group in layout.groups), default=0)
        shape = (1 + layout.num_blocks, layout.page_size, facts.kv_heads, facts.head_dim)
        try:
            self.keys = [torch.empty(shape, dtype=facts.dtype, device=facts.device) for _ in range(pages)]
            self.values = [torch.empty(shape, dtype=facts.dtype, device=facts.device) for _ in range(pages)]
            self._host = self._reserve_host(pages, shape[1:], facts)
        except (RuntimeError, torch.OutOfMemoryError) as error:
            item = facts.dtype.itemsize
            size = 2 * pages * shape[0] * layout.page_size * facts.kv_heads * facts.head_dim * item
            raise MemoryError(
                f"the cache does not fit: 2 (keys, values) x {pages} pages x {shape[0]} blocks x {layout.page_size}"
                f" tokens x {facts.kv_heads} heads x {facts.head_dim} x {item} bytes = {size / 2**30:.2f} GiB;"
                " lower num_blocks or page_size"
            ) from error
        # The same memory as one list of slots, [blocks * page_size, kv_heads, head_dim].
        self.flat_keys = [store.flatten(0, 1) for store in self.keys]
        self.flat_values = [store.flatten(0, 1) for store in self.values]

    def _reserve_host(self, pages: int, page: tuple[int, ...], facts: ModelFacts) -> torch.Tensor | None:
        """[host_blocks, 2, pages, page_size, kv_heads, head_dim] in RAM, page-locked where a GPU copies from it."""
        if not self.layout.host_blocks:
            return None
        shape = (self.layout.host_blocks, 2, pages, *page)
        return torch.empty(shape, dtype=facts.dtype, pin_memory=facts.device.type == "cuda")

    @property
    def host(self) -> torch.Tensor | None:
        """The host pool, slot first, or None when offloading is off."""
        return self._host

    def run_copies(self, copies: Copies) -> None:
        """Copy blocks, in this order: device to host, host to device, device to device.

        On CUDA the copies are queued on the stream that computes, so the pass that follows sees them done and a restore
        sees the offload before it. Other devices copy at once: their host memory is not page-locked.
        """
        if copies.offload:
            self._offload(copies.offload)
        if copies.restore:
            self._restore(copies.restore)
        if copies.fork:
            source, target = (self._index(column) for column in zip(*copies.fork, strict=True))
            for store in (*self.keys, *self.values):
                store[target] = store[source]

    def _index(self, ids: tuple[int, ...]) -> torch.Tensor:
        return upload(ids, self.keys[0].device)

    def _offload(self, pairs: tuple[tuple[int, int], ...]) -> None:
        assert self._host is not None
        blocks, slots = zip(*pairs, strict=True)
        index, rows = self._index(blocks), torch.tensor(slots)
        for which, stores in enumerate((self.keys, self.values)):
            for page, store in enumerate(stores):
                if store.device.type == "cpu":
                    self._host[rows, which, page] = store[index]
                else:
                    for block, slot in pairs:
                        self._host[slot, which, page].copy_(store[block], non_blocking=store.is_cuda)

    def _restore(self, pairs: tuple[tuple[int, int], ...]) -> None:
        assert self._host is not None
        slots, blocks = zip(*pairs, strict=True)
        index, rows = self._index(blocks), torch.tensor(slots)
        for which, stores in enumerate((self.keys, self.values)):
            for page, store in enumerate(stores):
                if store.device.type == "cpu":
                    store[index] = self._host[rows, which, page]
                else:
                    for slot, block in pairs:
                        store[block].copy_(self._host[slot, which, page], non_blocking=store.is_cuda)

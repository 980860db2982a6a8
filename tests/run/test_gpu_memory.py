"""Memory: what the store says when it does not fit, and what is asked of a device."""

import pytest
import torch

from engine.core.groups import group_layers
from engine.core.layout import CacheLayout
from engine.memory import _device_memory
from engine.run.facts import inspect_model
from engine.run.kv_store import KVStore
from tests.tiny import tiny_model


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_a_cache_that_does_not_fit_lays_out_the_sum(monkeypatch, error):
    facts = inspect_model(tiny_model("gemma2"))
    layout = CacheLayout(16, group_layers(facts.windows), 99)

    def full(*_, **__):
        raise error("CUDA out of memory")

    monkeypatch.setattr("engine.run.kv_store.torch.empty", full)
    with pytest.raises(MemoryError) as refused:
        KVStore(layout, facts)
    assert str(refused.value) == (
        "the cache does not fit: 2 (keys, values) x 2 pages x 100 blocks x 16 tokens x 2 heads x 8 x 4 bytes"
        f" = {2 * 2 * 100 * 16 * 2 * 8 * 4 / 2**30:.2f} GiB; lower num_blocks or page_size"
    )
    assert refused.value.__cause__ is not None


def test_what_the_allocator_keeps_unused_counts_as_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10_000, 90_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1_000)
    assert _device_memory(torch.device("cuda", 1), None) == (12_000, 90_000)

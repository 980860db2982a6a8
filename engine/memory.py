"""The impure half of sizing: asks the system, the device and the model, and returns plain facts."""

from dataclasses import replace
from typing import Any

import psutil
import torch

from engine.core.resolved import ResolvedConfig
from engine.core.sizing import Facts
from engine.run.facts import ModelFacts, inspect_model


def probe(model: Any, backend: str, model_facts: ModelFacts | None = None, **more: Any) -> Facts:
    """Facts about ``model`` and the machine it is on, as they are now.

    Args:
        model: a loaded ``transformers`` model.
        backend: attention backend that will run.
        model_facts: what ``inspect_model`` said, when it was asked already.
        more: further fields of ``Facts``.

    Raises:
        ConfigError: the model has a layer the cache cannot hold.
    """
    facts = model_facts or inspect_model(model)
    device = facts.device
    host = psutil.virtual_memory()
    free, total = _device_memory(device, host)
    on_gpu = device.type == "cuda"
    return Facts(
        device=device.type,
        windows=facts.windows,
        kv_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        num_heads=facts.num_heads,
        hidden_size=facts.hidden_size,
        intermediate_size=facts.intermediate_size,
        vocab_size=facts.vocab_size,
        item_bytes=facts.dtype.itemsize,
        max_positions=facts.max_positions,
        attention=backend,
        weight_bytes=facts.weight_bytes,
        free_bytes=free,
        total_bytes=total,
        host_free_bytes=host.available,
        has_graphs=on_gpu,
        **more,
    )


def without(facts: Facts, engine: ResolvedConfig, device: torch.device) -> Facts:
    """The same facts with the memory that is free now, and with what an engine holds, as if it were gone already.

    Args:
        facts: about the model and the machine, at whatever time.
        engine: the configuration it was built with.
        device: where its cache is.
    """
    host = psutil.virtual_memory()
    free, total = _device_memory(device, host)
    pool = engine.host_blocks.value * engine.block_bytes.value
    shared = device.type in ("cpu", "mps")
    back = engine.demand.total + (pool if shared else 0)
    host_back = pool + (engine.demand.kv if shared else 0)
    return replace(
        facts, free_bytes=min(total, free + back), host_free_bytes=min(host.total, host.available + host_back)
    )


def _device_memory(device: torch.device, host: Any) -> tuple[int, int]:
    """(free, total) bytes where the cache will be. What torch's own allocator keeps unused counts as free."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + unused, total
    if device.type == "xpu":
        free, total = torch.xpu.mem_get_info(device)
        return free + torch.xpu.memory_reserved(device) - torch.xpu.memory_allocated(device), total
    return host.available, host.total

"""What would be decided for an ordinary model on a device, before any model is loaded."""

import torch

from engine.core.config import resolve
from engine.core.options import ContinuousBatchingConfig
from engine.core.resolved import ResolvedConfig
from engine.core.sizing import GIB, Facts
from engine.run.attention.choice import choose_attention
from engine.run.facts import ModelFacts

SHOWN = ("attention", "page_size", "max_blocks_per_request", "use_cuda_graph", "use_async_batching")
"""Fields that say how the device is used."""


def typical_choices(device: torch.device, dtype: torch.dtype) -> ResolvedConfig:
    """The default configuration, resolved for a model of common sizes (heads of 64 numbers, no sliding layers).

    Looks for the flash kernels where the device could use them, and for nothing else.
    """
    model = ModelFacts((None,) * 16, 32, 8, 64, 2048, 8192, 128_000, 8192, dtype, device, 2 * GIB)
    attention = choose_attention("sdpa", model)
    facts = Facts(
        device=device.type,
        windows=model.windows,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        num_heads=model.num_heads,
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        vocab_size=model.vocab_size,
        item_bytes=dtype.itemsize,
        max_positions=model.max_positions,
        attention=attention.name,
        attention_reason=attention.reason,
        weight_bytes=model.weight_bytes,
        free_bytes=64 * GIB,
        total_bytes=64 * GIB,
        host_free_bytes=64 * GIB,
        has_graphs=device.type == "cuda",
        has_decode_kernel=attention.kernels is not None,
        page_multiple=attention.page_multiple,
    )
    return resolve(ContinuousBatchingConfig(num_blocks=64), facts)

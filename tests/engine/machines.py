"""What the configuration becomes on machines that are only described."""

from engine import ContinuousBatchingConfig
from engine.core.config import resolve
from tests.engine.fakes import GIB, fake_facts


def resolved(facts=None, **config):
    return resolve(ContinuousBatchingConfig(**config), facts or fake_facts())


def gpu(**changed):
    values = {
        "device": "cuda", "attention": "flash_attention_2", "has_graphs": True, "has_decode_kernel": True,
        "hidden_size": 2048, "intermediate_size": 8192, "num_heads": 32, "kv_heads": 8, "head_dim": 64,
        "vocab_size": 128_000, "item_bytes": 2, "windows": (None,) * 16, "max_positions": 131_072,
        "free_bytes": 20 * GIB, "total_bytes": 24 * GIB, "host_free_bytes": 64 * GIB,
    }  # fmt: skip
    return fake_facts(**{**values, **changed})

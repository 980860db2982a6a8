"""Noise that depends on nothing but (seed, position, token): a request draws the same text in any company.

The generator is a counter: no state is kept, so order, batch, preemption and device cannot matter.
"""

import hashlib

import torch

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF


def request_seed(engine_seed: int, seed: int | None, request_id: str, child: int) -> int:
    """The 64-bit seed of one sequence; siblings differ, and without a seed of its own a request takes the engine's."""
    if seed is not None and child == 0:
        return seed & _MASK64
    source = f"{seed}/{child}" if seed is not None else f"{engine_seed}/{request_id}/{child}"
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest(), "little")


def step_key(seed: int, position: int) -> tuple[int, int]:
    """Two 32-bit words for one position: splitmix64 (Steele, Lea, Flood 2014) of seed and position."""
    z = (seed + (position + 1) * 0x9E3779B97F4A7C15) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    z ^= z >> 31
    return z & _MASK32, z >> 32


def gumbel(keys: list[tuple[int, int]], tokens: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise for each (key, token id).

    Each 32-bit word goes through the finaliser of MurmurHash3 (Appleby, public domain); 24 bits of it become a uniform
    number strictly between 0 and 1. All arithmetic is int64 with masks, so every device gives the same bits.

    Args:
        keys: n pairs from ``step_key``.
        tokens: int64 [n, m] or [m] token ids.

    Returns:
        float32 [n, m].
    """
    low, high = torch.tensor(keys, device=tokens.device).unsqueeze(-1).unbind(1)
    h = (tokens * 0x9E3779B1 + low) & _MASK32
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _MASK32
    h = h ^ high
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _MASK32
    h = h ^ (h >> 16)
    uniform = ((h >> 8).float() + 0.5) * 2.0**-24
    return uniform.log_().neg_().log_().neg_()

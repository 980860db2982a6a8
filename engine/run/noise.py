"""Noise that depends on nothing but (seed, position, token): a request draws the same text in any company.

The generator is a counter: no state is kept, so order, batch, preemption and device cannot matter.
"""

import hashlib

import torch

from engine.run.upload import upload

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_CHUNK = 1 << 16
"""Elements the CPU hashes at a time, so that every pass over them finds them in the processor's cache."""


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
    """Standard Gumbel noise for each (key, token id), always finite.

    Args:
        keys: n pairs from ``step_key``.
        tokens: int64 [n, m] or [m] token ids under 2**31.

    Returns:
        float32 [n, m].
    """
    words = upload([[_signed(low), _signed(high)] for low, high in keys], tokens.device, torch.int32)
    tokens = tokens.to(torch.int32).expand(len(keys), -1)
    out = torch.empty(tokens.shape, dtype=torch.float32, device=tokens.device)
    rows = max(1, _CHUNK // tokens.shape[1]) if tokens.device.type == "cpu" and tokens.shape[1] else max(1, len(keys))
    for first in range(0, len(keys), rows):
        part = slice(first, first + rows)
        _to_gumbel(_hashed(words[part, :1], words[part, 1:], tokens[part]), out[part])
    return out


def _hashed(low: torch.Tensor, high: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """31 well-mixed bits for each (key, token): the finaliser of MurmurHash3 (Appleby, public domain), keyed twice.

    Multiplications wrap modulo 2**32 and shifts are made logical by a mask, so all devices give the same bits.
    """
    h = (tokens * _signed(0x9E3779B1)).add_(low)
    spare = torch.empty_like(h)
    _shift_into(h, 16, spare).mul_(_signed(0x85EBCA6B)).bitwise_xor_(high)
    _shift_into(h, 13, spare).mul_(_signed(0xC2B2AE35))
    return _shift_into(h, 16, spare).bitwise_and_(0x7FFFFFFF)


def _shift_into(h: torch.Tensor, bits: int, spare: torch.Tensor) -> torch.Tensor:
    """h ^= h >> bits, in place, as if h were unsigned."""
    torch.bitwise_right_shift(h, bits, out=spare)
    return h.bitwise_xor_(spare.bitwise_and_((1 << (32 - bits)) - 1))


def _to_gumbel(bits: torch.Tensor, out: torch.Tensor) -> None:
    """-log(-log(1 - v)) with v = (bits + 1/2) / 2**31.

    Large noise comes from small v, where float32 is finest; v is kept under 1, where the logarithm would be infinite.
    """
    out.copy_(bits).add_(0.5).mul_(2.0**-31).clamp_(max=1.0 - 2.0**-24)
    out.neg_().log1p_().neg_().log_().neg_()


def _signed(word: int) -> int:
    """The 32-bit word as int32 holds it."""
    return word - (1 << 32) if word >= 1 << 31 else word

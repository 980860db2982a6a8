"""The workloads, the same for every engine: prompts are token ids drawn from a fixed seed."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts and how many tokens each must produce (end-of-sequence is ignored)."""

    name: str
    about: str
    prompts: tuple[tuple[int, ...], ...]
    new_tokens: int

    @property
    def longest(self) -> int:
        """Tokens of the longest request at its end."""
        return max(len(prompt) for prompt in self.prompts) + self.new_tokens

    @property
    def generated(self) -> int:
        return len(self.prompts) * self.new_tokens


def workloads(vocab_size: int, scale: float = 1.0) -> dict[str, Workload]:
    """W1 … W5, and D1, D32, D64: next to nothing but decode, with that many rows.

    Args:
        vocab_size: ids are drawn from its middle, where no special tokens are.
        scale: < 1 shortens prompts and outputs, for trying things out.
    """
    rng = random.Random(20_240_501)
    low, high = vocab_size // 8, vocab_size - vocab_size // 8

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(low, high) for _ in range(max(1, int(count * scale))))

    def new(count: int) -> int:
        return max(2, int(count * scale))

    mixed = tuple(ids(rng.randint(16, 256)) for _ in range(32))
    short = tuple(ids(32) for _ in range(64))
    long = tuple(ids(1500) for _ in range(8))
    prefix = ids(700)
    shared = tuple(prefix + ids(16) for _ in range(32))
    one = (ids(32),)
    decode = {
        f"D{rows}": Workload(f"D{rows}", f"{rows} prompts of 4 tokens", tuple(ids(4) for _ in range(rows)), new(128))
        for rows in (1, 32, 64)
    }
    return decode | {
        "W1": Workload("W1", "32 prompts of 16-256 tokens", mixed, new(64)),
        "W2": Workload("W2", "64 prompts of 32 tokens", short, new(128)),
        "W3": Workload("W3", "8 prompts of 1,500 tokens", long, new(64)),
        "W4": Workload("W4", "32 prompts sharing 700 tokens", shared, new(32)),
        "W5": Workload("W5", "1 prompt of 32 tokens", one, new(128)),
    }

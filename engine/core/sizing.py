"""How much cache fits: pure arithmetic over facts about model and machine.

All sizes are bytes. The sum a running engine needs::

    weights (already loaded) + KV pool + trash block + buffers per batch token + attention scratch + logits per row
"""

from dataclasses import dataclass
from typing import Any

from engine.core.errors import ConfigError
from engine.core.groups import group_layers

MIN_BATCH_TOKENS = 256
"""Automatic sizing never goes below this many query tokens per step; a person may."""

DEFAULT_BATCH_TOKENS = 8192
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Facts:
    """What sizing needs to know about model and machine. Made by ``engine.memory``; tests make their own.

    Attributes:
        device: "cpu", "cuda", "mps" …
        windows: sliding window of each layer in tokens, None for full attention.
        kv_heads, head_dim, num_heads, hidden_size, intermediate_size, vocab_size: of the model (on this rank).
        item_bytes: bytes of one cache element.
        max_positions: longest sequence the model's positions allow, None when unbounded.
        forward: "fast", "packed" or "modules", what computes a step; forward_reason: why that one; forward_notice: a
            sentence when a quicker one was expected.
        attention: "eager", "sdpa", "fast", "flash_attention_2", "flash_attention_3"; attention_reason: why that one.
        weight_bytes: bytes of the loaded weights; they are not part of the free memory.
        free_bytes, total_bytes: memory of the device, weights already loaded.
        host_free_bytes: free RAM of the host.
        has_graphs: CUDA graphs can be captured here.
        has_decode_kernel: the attention library has a paged decode kernel here.
        page_multiple: tokens a page must be a multiple of for the attention kernels.
        compile_trouble: why nothing can be compiled here, "" when it can.
        compile_fallback: compile config of the generation config, for paths that have no other; None for none.
        processes_logits: sampling or penalties are expected, so vocabulary-sized temporaries are needed.
        num_requests, longest_request: hints about the work to come (prompts, prompt + output tokens); 0 for unknown.
    """

    device: str
    windows: tuple[int | None, ...]
    kv_heads: int
    head_dim: int
    num_heads: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    item_bytes: int
    max_positions: int | None
    attention: str
    weight_bytes: int
    free_bytes: int
    total_bytes: int
    host_free_bytes: int
    has_graphs: bool = False
    has_decode_kernel: bool = False
    processes_logits: bool = False
    num_requests: int = 0
    longest_request: int = 0
    attention_reason: str = "model"
    forward: str = "modules"
    forward_reason: str = "default"
    forward_notice: str = ""
    page_multiple: int = 1
    compile_trouble: str = ""
    compile_fallback: Any = None

    @property
    def has_tables(self) -> bool:
        """Whether the attention kernels read block tables on the device."""
        return self.attention.startswith("flash")


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes the engine needs, part by part."""

    kv: int
    buffers: int
    attention: int
    logits: int

    @property
    def total(self) -> int:
        return self.kv + self.buffers + self.attention + self.logits

    def spelled_out(self) -> str:
        """The sum in words, for errors and for the monitor."""
        parts = {"KV cache": self.kv, "buffers": self.buffers, "attention": self.attention, "logits": self.logits}
        return " + ".join(f"{name} {readable(size)}" for name, size in parts.items()) + f" = {readable(self.total)}"


@dataclass(frozen=True, slots=True)
class Sizing:
    """The arithmetic for one page size and pipeline depth (0 sync, 1 async: buffers exist twice)."""

    facts: Facts
    page_size: int
    depth: int = 0

    @property
    def groups(self) -> int:
        return len(group_layers(self.facts.windows))

    @property
    def block_bytes(self) -> int:
        """One page of keys and values for each layer of a group."""
        layers = max(len(group.layers) for group in group_layers(self.facts.windows))
        return 2 * layers * self.page_size * self.facts.kv_heads * self.facts.head_dim * self.facts.item_bytes

    def demand(self, num_blocks: int, batch_tokens: int, rows: int) -> Demand:
        """Bytes for ``num_blocks`` whole-model blocks, ``batch_tokens`` query tokens and ``rows`` sampled rows."""
        facts = self.facts
        context = num_blocks * self.page_size
        if facts.max_positions is not None:
            context = min(context, facts.max_positions)
        activations = 4 * facts.hidden_size + 3 * facts.intermediate_size + 2 * facts.num_heads * facts.head_dim
        # Without static buffers the indices of a step live beside those of the step in flight.
        indices = 8 * (3 + self.groups) * (1 if facts.has_tables else 1 + self.depth)
        tables = 4 * rows * self.groups * -(-context // self.page_size) if facts.has_tables else 0
        copies = (3 if facts.processes_logits else 1) + facts.has_tables
        return Demand(
            kv=(num_blocks * self.groups + 1) * self.block_bytes,
            buffers=batch_tokens * (activations * facts.item_bytes + indices) + tables,
            attention=self._attention(num_blocks * self.page_size, context, batch_tokens),
            logits=min(rows, batch_tokens) * facts.vocab_size * 4 * copies,
        )

    def _attention(self, pool: int, context: int, batch_tokens: int) -> int:
        """Scratch of one layer: keys and values gathered from their pages, and what is kept per (query, key) pair.

        eager writes out one request at a time, its keys repeated for each head and its scores twice in float32; sdpa
        gathers the keys of all requests (at most the pool's) and builds a mask per query head of a KV head.
        """
        facts = self.facts
        if facts.attention == "eager":
            gathered = 2 * context * facts.num_heads * facts.head_dim * facts.item_bytes
            return gathered + batch_tokens * context * 8 * facts.num_heads
        if facts.attention == "sdpa":
            gathered = 2 * pool * facts.kv_heads * facts.head_dim * facts.item_bytes
            return gathered + batch_tokens * context * (1 + facts.num_heads // facts.kv_heads)
        return 0

    def most_blocks(self, budget: int, batch_tokens: int, rows: int) -> int:
        """Largest pool that fits into ``budget`` bytes beside everything else; 0 when none does."""
        low, high = 0, max(0, budget // (self.block_bytes * self.groups))
        while low < high:
            middle = (low + high + 1) // 2
            if self.demand(middle, batch_tokens, rows).total <= budget:
                low = middle
            else:
                high = middle - 1
        return low

    def most_batch_tokens(self, budget: int, num_blocks: int, rows: int) -> int:
        """8192 halved until it fits beside the pool, at least 256; 0 when not even that fits."""
        tokens = DEFAULT_BATCH_TOKENS
        while tokens > MIN_BATCH_TOKENS and self.demand(num_blocks, tokens, rows).total > budget:
            tokens //= 2
        return tokens if self.demand(num_blocks, tokens, rows).total <= budget else 0

    def balanced(self, budget: int, rows: int) -> tuple[int, int]:
        """(num_blocks, batch_tokens): the largest batch that leaves half of the budget to the cache, then all blocks.

        (0, 0) when not even one block fits beside a batch of 256 tokens.
        """
        tokens = DEFAULT_BATCH_TOKENS
        while True:
            blocks = self.most_blocks(budget, tokens, rows)
            if blocks and self.demand(blocks, tokens, rows).kv * 2 >= budget:
                return blocks, tokens
            if tokens <= MIN_BATCH_TOKENS:
                return (blocks, tokens) if blocks else (0, 0)
            tokens //= 2

    def useful_blocks(self, rows: int) -> int | None:
        """Whole-model blocks beyond which ``rows`` requests of full length can use no more; None when unbounded."""
        if self.facts.max_positions is None:
            return None
        return max(rows * -(-self.facts.max_positions // self.page_size), 1024)


def impossible(demand: Demand, budget: int, facts: Facts, what: str, advice: str) -> ConfigError:
    """The error for a wish that does not fit, with the sum laid out."""
    return ConfigError(
        f"{what} does not fit: {demand.spelled_out()}, but {readable(budget)} may be used "
        f"({readable(facts.free_bytes)} of {readable(facts.total_bytes)} free on {facts.device}, "
        f"weights of {readable(facts.weight_bytes)} already loaded); {advice}"
    )


def readable(size: int) -> str:
    """Bytes with a unit: "512 B", "3.4 MiB", "1.2 GiB"."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")

"""The configuration that runs, each value with how it was decided."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from engine.core.layout import SchedulerSettings
from engine.core.sizing import Demand

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resolved(Generic[T]):
    """A decided value and how it was decided: "default", "user", "8192 → 2048: free memory" …"""

    value: T
    reason: str


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """The configuration that runs. Field names follow ``ContinuousBatchingConfig``; the last ones are derived.

    Attributes:
        host_blocks: blocks of the host swap pool.
        block_bytes: bytes of one block (one page for each layer of a group).
        max_length: longest sequence the model allows, in tokens.
        attention: attention backend.
        demand: bytes needed, part by part.
        notices: one sentence for everything that was switched off, clamped or left out.
    """

    page_size: Resolved[int]
    num_blocks: Resolved[int]
    max_batch_tokens: Resolved[int]
    max_memory_percent: Resolved[float]
    max_requests_per_batch: Resolved[int]
    max_blocks_per_request: Resolved[int]
    allow_block_sharing: Resolved[bool]
    use_async_batching: Resolved[bool]
    use_cuda_graph: Resolved[tuple[bool, bool]]
    q_padding_interval_size: Resolved[int]
    kv_padding_interval_size: Resolved[int]
    varlen_compile_config: Resolved[Any]
    decode_compile_config: Resolved[Any]
    default_compile_level: Resolved[int]
    scheduler_type: Resolved[str]
    safety_margin: Resolved[float]
    return_logprobs: Resolved[bool]
    seed: Resolved[int | None]
    auto_switch_to_flash: Resolved[bool]
    cpu_offload_space: Resolved[float]
    cpu_offload_space_safety_threshold: Resolved[float]
    max_queue_size: Resolved[int]
    per_request_processors: Resolved[bool]
    drop_unsupported_processors: Resolved[bool]
    disable_nccl_graph_mixing: Resolved[bool]
    cpu_group_timeout: Resolved[float | None]
    skip_limit: Resolved[int]
    max_steps_without_decode: Resolved[int]
    reorder_requests: Resolved[bool]
    forward: Resolved[str]
    check_invariants: Resolved[str]
    check_ranks: Resolved[bool]
    history_steps: Resolved[int]
    host_blocks: Resolved[int]
    block_bytes: Resolved[int]
    max_length: Resolved[int | None]
    attention: Resolved[str]
    demand: Demand
    notices: tuple[str, ...] = ()

    def items(self) -> Iterator[tuple[str, Resolved[Any]]]:
        """(name, value with reason) of every decided field, in declaration order."""
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, Resolved):
                yield spec.name, value

    def scheduler_settings(self) -> SchedulerSettings:
        """The part the scheduler reads."""
        return SchedulerSettings(
            policy=self.scheduler_type.value,
            max_batch_tokens=self.max_batch_tokens.value,
            max_requests_per_batch=self.max_requests_per_batch.value,
            safety_margin=self.safety_margin.value,
            allow_block_sharing=self.allow_block_sharing.value,
            skip_limit=self.skip_limit.value,
            max_steps_without_decode=self.max_steps_without_decode.value,
            max_length=self.max_length.value,
        )

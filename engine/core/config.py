"""From what a user set to what runs: ``resolve`` decides every open field and says why.

Pure: memory, devices and libraries come in as ``Facts``. The fields themselves are in ``engine.core.options``.
"""

import dataclasses
from typing import Any

from engine.core.errors import ConfigError
from engine.core.options import RULES, ContinuousBatchingConfig, check_field, unknown_field
from engine.core.paths import decide_paths
from engine.core.resolved import Resolved, ResolvedConfig
from engine.core.sizing import DEFAULT_BATCH_TOKENS, GIB, Demand, Facts, Sizing, impossible, readable

__all__ = ["ContinuousBatchingConfig", "Resolved", "ResolvedConfig", "change", "resolve"]

FALLBACK_ROWS = 1024
MARGINS = {"fifo": 0.15, "prefill_first": 0.0}
CHANGEABLE = (
    "max_batch_tokens",
    "max_requests_per_batch",
    "allow_block_sharing",
    "scheduler_type",
    "safety_margin",
    "return_logprobs",
    "max_queue_size",
    "skip_limit",
    "max_steps_without_decode",
    "reorder_requests",
    "check_invariants",
)
"""Fields that take effect between two steps; all others are built into buffers and need a new engine."""


def resolve(config: ContinuousBatchingConfig, facts: Facts) -> ResolvedConfig:
    """Decides every open field of ``config`` for the model and machine described by ``facts``.

    Raises:
        ConfigError: a value is out of range, or what was asked for does not fit into memory (with the sum).
    """
    config.validate()
    defaults = ContinuousBatchingConfig()
    found: dict[str, Resolved[Any]] = {}
    for name in RULES:
        value = getattr(config, name)
        found[name] = Resolved(value, "default" if value == getattr(defaults, name) else "user")
    notices = [facts.forward_notice] if facts.forward_notice else []
    config = _decide_page(config, facts, found, notices)
    decide_paths(config, facts, found, notices)
    if found["safety_margin"].value is None:
        found["safety_margin"] = Resolved(MARGINS[config.scheduler_type], f"default of {config.scheduler_type}")
    sizing = Sizing(facts, config.page_size, depth=int(found["use_async_batching"].value))
    _decide_rows(config, facts, found)
    demand = _decide_memory(config, facts, sizing, found)
    _clamp_rows(found, notices)
    found["block_bytes"] = Resolved(sizing.block_bytes, "page size and model")
    found["host_blocks"] = _host_blocks(config, facts, sizing, found, notices)
    offload_bytes = found["host_blocks"].value * sizing.block_bytes
    found["cpu_offload_space"] = Resolved(offload_bytes / GIB, found["host_blocks"].reason)
    found["max_length"] = Resolved(facts.max_positions, "model")
    found["attention"] = Resolved(facts.attention, facts.attention_reason)
    found["forward"] = Resolved(facts.forward, facts.forward_reason)
    return ResolvedConfig(**found, demand=demand, notices=tuple(notices))


def change(resolved: ResolvedConfig, built: ResolvedConfig, **values: Any) -> ResolvedConfig:
    """``resolved`` with fields changed between two steps.

    Args:
        resolved: what runs now.
        built: what buffers were built for; batch limits may not grow beyond it.
        values: field name → new value.

    Raises:
        ConfigError: unknown field, value out of range, more than the buffers hold, or a field that needs a restart.
    """
    changed: dict[str, Resolved[Any]] = {}
    for name, value in values.items():
        if name not in RULES:
            raise unknown_field(name)
        if name not in CHANGEABLE:
            raise ConfigError(
                f"{name} is built into the engine and needs a new one; these can change while it runs: "
                f"{', '.join(CHANGEABLE)}"
            )
        check_field(name, value)
        if name in ("max_batch_tokens", "max_requests_per_batch"):
            limit = getattr(built, name).value
            value = limit if value is None else value
            if value > limit:
                raise ConfigError(f"{name}={value} is more than the {limit} its buffers hold; restart with more")
        changed[name] = Resolved(value, "changed while running")
    policy = changed.get("scheduler_type", resolved.scheduler_type).value
    margin = changed.get("safety_margin", resolved.safety_margin)
    if margin.value is None or ("scheduler_type" in changed and margin.reason.startswith("default of")):
        changed["safety_margin"] = Resolved(MARGINS[policy], f"default of {policy}")
    return dataclasses.replace(resolved, **changed)  # type: ignore[arg-type]  # no field of another type is changeable


def _decide_page(
    config: ContinuousBatchingConfig, facts: Facts, found: dict[str, Resolved[Any]], notices: list[str]
) -> ContinuousBatchingConfig:
    """Raises the page size to what the attention kernels read; the configuration with that page size."""
    asked, multiple = config.page_size, facts.page_multiple
    size = -(-asked // multiple) * multiple
    if size == asked:
        return config
    why = f"{facts.attention} reads pages of a multiple of {multiple} tokens"
    found["page_size"] = Resolved(size, f"{asked} → {size}: {why}")
    notices.append(f"page_size={asked} raised to {size}: {why}")
    return dataclasses.replace(config, page_size=size)


def _decide_rows(config: ContinuousBatchingConfig, facts: Facts, found: dict[str, Resolved[Any]]) -> None:
    if config.max_requests_per_batch is None:
        hinted = min(facts.num_requests, FALLBACK_ROWS)
        found["max_requests_per_batch"] = (
            Resolved(hinted, "number of prompts") if hinted else Resolved(FALLBACK_ROWS, "default")
        )


def _clamp_rows(found: dict[str, Resolved[Any]], notices: list[str]) -> None:
    rows = found["max_requests_per_batch"]
    for name, words in (("max_batch_tokens", "one token each"), ("num_blocks", "one block each")):
        limit = found[name].value
        if rows.value > limit:
            if rows.reason == "user":
                notices.append(f"max_requests_per_batch={rows.value} lowered to {limit}: {name}, {words}")
            rows = Resolved(limit, f"{rows.value} → {limit}: {name}, {words}")
    found["max_requests_per_batch"] = rows


def _share(config: ContinuousBatchingConfig, facts: Facts) -> Resolved[float]:
    if config.max_memory_percent is not None:
        return Resolved(config.max_memory_percent, "user")
    if facts.device == "cpu" and config.num_blocks is None:
        return Resolved(0.25, "CPU: a quarter of the free RAM")
    if facts.device == "mps" and config.num_blocks is None:
        return Resolved(0.6, "MPS: memory is shared with the system")
    if facts.processes_logits:
        return Resolved(0.8, "default with logits processing")
    return Resolved(0.9, "default")


def _decide_memory(
    config: ContinuousBatchingConfig, facts: Facts, sizing: Sizing, found: dict[str, Resolved[Any]]
) -> Demand:
    """Sizes pool and batch; raises ConfigError with the sum when the wish is impossible."""
    share = _share(config, facts)
    found["max_memory_percent"] = share
    budget = int(facts.free_bytes * share.value)
    rows = found["max_requests_per_batch"].value
    blocks, tokens = config.num_blocks, config.max_batch_tokens
    if blocks is None and tokens is None:
        blocks, tokens = sizing.balanced(budget, rows)
    elif blocks is None:
        blocks = sizing.most_blocks(budget, tokens or 0, rows)
    elif tokens is None:
        tokens = sizing.most_batch_tokens(budget, blocks, rows)
    asked_blocks, asked_tokens = max(1, blocks or 1), tokens or config.max_batch_tokens or 256
    demand = sizing.demand(asked_blocks, asked_tokens, rows)
    if not blocks or not tokens or demand.total > budget:
        what = f"{asked_blocks} blocks of {config.page_size} tokens with {asked_tokens} batch tokens"
        advice = "lower num_blocks, max_batch_tokens, max_requests_per_batch or page_size, or free memory"
        raise impossible(demand, budget, facts, what, advice)
    if config.num_blocks is None:
        reason = f"{share.value:.0%} of {readable(facts.free_bytes)} free"
        useful = sizing.useful_blocks(rows)
        if useful is not None and blocks > useful:
            blocks, reason = useful, f"{blocks} → {useful}: {rows} requests of full length need no more"
        found["num_blocks"] = Resolved(blocks, reason)
    if config.max_batch_tokens is None:
        short = f"{DEFAULT_BATCH_TOKENS} → {tokens}: free memory"
        found["max_batch_tokens"] = Resolved(tokens, "default" if tokens == DEFAULT_BATCH_TOKENS else short)
    return sizing.demand(blocks, tokens, rows)


def _host_blocks(
    config: ContinuousBatchingConfig,
    facts: Facts,
    sizing: Sizing,
    found: dict[str, Resolved[Any]],
    notices: list[str],
) -> Resolved[int]:
    """Slots of the swap pool: what was asked for, within the threshold and within what can ever be used."""
    asked, threshold = config.cpu_offload_space, config.cpu_offload_space_safety_threshold
    if asked == 0:
        return Resolved(0, "off")
    free = facts.host_free_bytes
    if facts.device in ("cpu", "mps"):
        free -= found["num_blocks"].value * sizing.groups * sizing.block_bytes
    limit = max(0, int(free * threshold))
    size, reason = limit, f"{threshold:.0%} of {readable(max(0, free))} free"
    if asked is not None:
        size, reason = int(asked * GIB), "user"
    if size > limit:
        notices.append(
            f"cpu_offload_space={asked} GiB lowered to {readable(limit)}: at most {threshold:.0%} of the "
            f"{readable(max(0, free))} of free RAM (cpu_offload_space_safety_threshold)"
        )
        size, reason = limit, f"{asked} GiB → {readable(limit)}: threshold"
    blocks = size // sizing.block_bytes
    useful = sizing.useful_blocks(found["max_requests_per_batch"].value)
    if useful is not None and blocks > useful * sizing.groups:
        blocks, reason = useful * sizing.groups, f"{blocks} → {useful * sizing.groups}: more could never be used"
    if blocks == 0:
        notices.append(f"no offloading: cpu_offload_space holds no block of {readable(sizing.block_bytes)}")
    return Resolved(blocks, reason)

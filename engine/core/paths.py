"""How steps are run: the decode path, compilation, CUDA graphs, padding, and planning ahead.

There are two paths. "varlen" takes slices of any length, "decode" steps in which every slice is one token.
"""

from typing import Any

from engine.core.options import ContinuousBatchingConfig
from engine.core.resolved import Resolved
from engine.core.sizing import Facts

FALLBACK_BLOCKS_PER_REQUEST = 32
Q_INTERVAL = 64
KV_INTERVAL = 64 * 256
LEVELS = {
    1: {"mode": "default", "fullgraph": False, "dynamic": True},
    2: {"mode": "max-autotune-no-cudagraphs", "fullgraph": False, "dynamic": True},
    3: {"mode": "max-autotune-no-cudagraphs", "fullgraph": False, "dynamic": False},
}
"""What ``torch.compile`` is given on each level. Attention is left as it is, so a pass is never one whole graph."""

OWN_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes of ``torch.compile`` that record CUDA graphs themselves."""

Found = dict[str, Resolved[Any]]


def wants_compilation(config: ContinuousBatchingConfig) -> bool:
    """Whether a person asked for some path to be compiled."""
    explicit = config.varlen_compile_config is not None or config.decode_compile_config is not None
    return explicit or config.default_compile_level > 0


def decide_paths(config: ContinuousBatchingConfig, facts: Facts, found: Found, notices: list[str]) -> None:
    """Decide every field named in this module's first line, each with its reason.

    Args:
        found: decided fields by name, completed here.
        notices: sentences about wishes that cannot be followed, completed here.
    """
    found["max_blocks_per_request"] = _decode_width(config, facts, notices)
    _decide_compilation(config, facts, found, notices)
    _decide_graphs(config, facts, found, notices)
    _decide_padding(config, found, notices)
    if config.use_async_batching is None:
        graphs = any(found["use_cuda_graph"].value)
        use = graphs and facts.has_tables
        why = "graphs and flash attention" if use else f"no graphs: {found['use_cuda_graph'].reason}"
        found["use_async_batching"] = Resolved(use, why)


def _decode_width(config: ContinuousBatchingConfig, facts: Facts, notices: list[str]) -> Resolved[int]:
    """Columns of the decode path's block tables."""
    wish = config.max_blocks_per_request
    if not facts.has_decode_kernel:
        why = f"no paged decode kernel for {facts.attention} on {facts.device}"
        if wish:
            notices.append(f"max_blocks_per_request={wish} is switched off: {why}")
        return Resolved(0, why)
    if wish is not None:
        return Resolved(wish, "user")
    if facts.longest_request:
        blocks = -(-facts.longest_request // config.page_size) + 1
        return Resolved(blocks + blocks % 2, f"requests of up to {facts.longest_request} tokens")
    return Resolved(FALLBACK_BLOCKS_PER_REQUEST, "default")


def _decide_compilation(config: ContinuousBatchingConfig, facts: Facts, found: Found, notices: list[str]) -> None:
    """Each path: its own config, else the level, else the generation config's."""
    level = config.default_compile_level
    trouble = facts.compile_trouble
    if not trouble and facts.forward != "modules":
        trouble = f"forward is {facts.forward}, which has nothing to compile"
    explicit = {"varlen": config.varlen_compile_config, "decode": config.decode_compile_config}
    for path, own in explicit.items():
        name = f"{path}_compile_config"
        if trouble:
            if own is not None or (level and path == "varlen"):
                asked = name if own is not None else "default_compile_level"
                notices.append(f"{asked} is switched off: {trouble}")
            found[name] = Resolved(None, trouble)
        elif path == "decode" and facts.has_tables and not found["max_blocks_per_request"].value:
            why = f"the decode path is off: {found['max_blocks_per_request'].reason}"
            if own is not None:
                notices.append(f"{name} is switched off: {why}")
            found[name] = Resolved(None, why)
        elif own is not None:
            found[name] = Resolved(own, "user")
        elif level and path == "varlen" and facts.has_tables:
            found[name] = Resolved(None, "flash attention with slices of any length is not compiled by a level")
        elif level:
            found[name] = Resolved(dict(LEVELS[level]), f"default_compile_level={level}")
        elif facts.compile_fallback is not None:
            found[name] = Resolved(facts.compile_fallback, "generation config")
        else:
            found[name] = Resolved(None, "default_compile_level=0")
    if level and trouble:
        found["default_compile_level"] = Resolved(0, f"{level} → 0: {trouble}")


def _decide_graphs(config: ContinuousBatchingConfig, facts: Facts, found: Found, notices: list[str]) -> None:
    wish = config.use_cuda_graph
    if not facts.has_graphs or not facts.has_tables:
        why = f"needs a CUDA device, this is {facts.device}"
        if facts.has_graphs:
            why = f"needs flash attention, this is {facts.attention}"
        found["use_cuda_graph"] = Resolved((False, False), why)
        if wish not in (None, False, (False, False), [False, False]):
            notices.append(f"use_cuda_graph is switched off: {why}")
        return
    if isinstance(wish, bool):
        pair, why = (wish, wish), "user"
    elif wish is not None:
        pair, why = (wish[0], wish[1]), "user"
    else:
        own = [_records_itself(found[f"{path}_compile_config"].value) for path in ("varlen", "decode")]
        pair, why = (not own[0], not own[1]), f"attention is {facts.attention}"
        if any(own):
            why = "the compile mode records graphs itself"
    if pair[1] and not found["max_blocks_per_request"].value:
        pair, why = (pair[0], False), f"{why}; the decode path is off"
    found["use_cuda_graph"] = Resolved(pair, why)


def _records_itself(compile_config: Any) -> bool:
    if compile_config is None:
        return False
    if isinstance(compile_config, dict):
        return compile_config.get("mode") in OWN_GRAPHS
    return getattr(compile_config, "mode", None) in OWN_GRAPHS


def _decide_padding(config: ContinuousBatchingConfig, found: Found, notices: list[str]) -> None:
    """Intervals of the sizes steps are rounded up to, where anything is recorded or compiled for one size."""
    compiled = [found[f"{path}_compile_config"].value for path in ("varlen", "decode")]
    used = any(found["use_cuda_graph"].value) or any(one is not None for one in compiled)
    presets = {"q_padding_interval_size": Q_INTERVAL, "kv_padding_interval_size": KV_INTERVAL}
    for name, preset in presets.items():
        wish = getattr(config, name)
        if not used:
            why = "neither graphs nor compilation, so nothing is padded"
            if wish:
                notices.append(f"{name}={wish} has no effect: {why}")
            found[name] = Resolved(0, why)
        elif not wish:
            found[name] = Resolved(preset, "preset")

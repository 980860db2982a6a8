"""Where the FlashAttention kernels come from, and the one way the engine calls them.

Version 2 has a varlen function that reads pages through a block table, and one for queries of equal length. Version 3
has one function for both: with ``cu_seqlens_q`` its queries may differ in length. None is part of this package: they
come from ``flash-attn`` (version 3: from its ``hopper`` folder), or the ``kernels`` package fetches them from the hub.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from engine.run.buffers import Inputs

FLASH_2, FLASH_3 = "flash_attention_2", "flash_attention_3"

PAGE_MULTIPLE: Mapping[str, int] = {FLASH_2: 256, FLASH_3: 1}
"""Tokens a page must be a multiple of. Version 2 checks this before it runs; version 3 takes any page."""

HEAD_LIMIT = 256
"""Largest head both versions take."""

DTYPES = (torch.float16, torch.bfloat16)

_SHARED = ("q", "softmax_scale", "causal", "window_size", "softcap")
NEEDED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    FLASH_2: {
        "flash_attn_varlen_func": (
            *_SHARED, "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "block_table",
        ),
        "flash_attn_with_kvcache": (*_SHARED, "k_cache", "v_cache", "cache_seqlens", "block_table"),
    },
    FLASH_3: {
        "flash_attn_with_kvcache": (
            *_SHARED, "k_cache", "v_cache", "cache_seqlens", "page_table", "cu_seqlens_q", "max_seqlen_q",
        ),
    },
}  # fmt: skip
"""Functions of each version and the parameters they are called with, all by name."""

PACKAGES: Mapping[str, str] = {FLASH_2: "flash_attn", FLASH_3: "flash_attn_interface"}
HUB: Mapping[str, tuple[str, int]] = {
    FLASH_2: ("kernels-community/flash-attn2", 4),
    FLASH_3: ("kernels-community/flash-attn3", 1),
}
"""Repository and version of the builds the ``kernels`` package fetches."""


class FlashKernels(Protocol):
    """Causal attention over pages. ``source`` says in words where it comes from.

    Args of ``attend``:
        query: [tokens, heads, head_dim].
        keys, values: [1 + num_blocks, page_size, kv_heads, head_dim].
        inputs: tables and lengths of the step; ``group`` says whose.
        options: ``softmax_scale``, ``window_size`` and ``softcap`` as the kernels take them.

    Returns:
        [tokens, heads, head_dim]; rows of padding tokens hold anything.
    """

    @property
    def source(self) -> str: ...

    def attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        inputs: Inputs,
        group: int,
        options: dict[str, Any],
    ) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class Flash2:
    """FlashAttention-2: ``flash_attn_varlen_func``, and ``flash_attn_with_kvcache`` on the decode path."""

    varlen: Callable[..., Any]
    with_cache: Callable[..., Any]
    source: str

    def attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        inputs: Inputs,
        group: int,
        options: dict[str, Any],
    ) -> torch.Tensor:
        shape = inputs.shape
        if shape.path == "decode":
            out = self.with_cache(
                q=query.unsqueeze(1),
                k_cache=keys,
                v_cache=values,
                cache_seqlens=inputs.key_counts[group],
                block_table=inputs.tables[group],
                causal=True,
                **options,
            )
            return out.squeeze(1)
        return self.varlen(
            q=query,
            k=keys,
            v=values,
            cu_seqlens_q=inputs.query_ends,
            cu_seqlens_k=inputs.key_ends[group],
            max_seqlen_q=shape.longest,
            max_seqlen_k=shape.keys[group],
            block_table=inputs.tables[group],
            causal=True,
            **options,
        )


@dataclass(frozen=True, slots=True)
class Flash3:
    """FlashAttention-3: ``flash_attn_with_kvcache`` on both paths."""

    with_cache: Callable[..., Any]
    source: str

    def attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        inputs: Inputs,
        group: int,
        options: dict[str, Any],
    ) -> torch.Tensor:
        shared = {
            "k_cache": keys,
            "v_cache": values,
            "cache_seqlens": inputs.key_counts[group],
            "page_table": inputs.tables[group],
            "causal": True,
            **options,
        }
        if inputs.shape.path == "decode":
            return self.with_cache(q=query.unsqueeze(1), **shared).squeeze(1)
        return self.with_cache(q=query, cu_seqlens_q=inputs.query_ends, max_seqlen_q=inputs.shape.longest, **shared)


def missing_parameters(name: str, module: Any) -> str:
    """What a module lacks to serve as backend ``name``, in words; "" when it has all."""
    for function, wanted in NEEDED[name].items():
        found = getattr(module, function, None)
        if found is None:
            return f"it has no {function}"
        try:
            parameters = inspect.signature(found).parameters
        except (TypeError, ValueError):
            continue  # a compiled function that does not tell
        lacking = [parameter for parameter in wanted if parameter not in parameters]
        if lacking:
            return f"its {function} has no {', '.join(lacking)}"
    return ""


def kernels_from(name: str, module: Any, source: str) -> FlashKernels:
    """The kernels of backend ``name`` out of a module that has them."""
    if name == FLASH_2:
        return Flash2(module.flash_attn_varlen_func, module.flash_attn_with_kvcache, source)
    return Flash3(module.flash_attn_with_kvcache, source)


def find_kernels(name: str) -> FlashKernels | str:
    """The kernels of backend ``name`` from what is installed, or in words why there are none.

    The hub is asked only where the ``kernels`` package is installed and the own package of the kernels is not.
    """
    package = PACKAGES[name]
    reasons = []
    try:
        module = importlib.import_module(package)
        lack = missing_parameters(name, module)
        if not lack:
            return kernels_from(name, module, f"{package} {getattr(module, '__version__', '')}".strip())
        reasons.append(f"{package} is too old: {lack}")
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == package
        reasons.append(f"{package} is not installed" if absent else f"{package} cannot be imported: {error}")
    try:
        from kernels import get_kernel
    except ImportError:
        return "; ".join([*reasons, "nor is kernels"])
    repository, version = HUB[name]
    try:
        module = get_kernel(repository, version=version)
    except Exception as error:  # no network, no build for this torch and device, no such version
        return "; ".join([*reasons, f"kernels has no {repository} for this machine: {str(error).splitlines()[0]}"])
    lack = missing_parameters(name, module)
    if lack:
        return "; ".join([*reasons, f"{repository} does not do: {lack}"])
    return kernels_from(name, module, f"{repository} (kernels)")

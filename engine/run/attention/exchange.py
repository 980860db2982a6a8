"""The seam to ``transformers``: attention and mask functions under names of our own, and which settings choose them."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from engine.core.errors import EngineError
from engine.run.attention.context import Context

_KINDS = {"eager": "plain", "sdpa": "fused", "flash_attention_2": "tables2", "flash_attention_3": "tables3"}
"""Backends in registered names, because transformers runs checks of its own on names that hold "sdpa" or "flash"."""

_NOT_HONOURED = ("position_bias", "attention_bias", "sinks", "indices", "block_indices")
"""Arguments that change what a query sees and that the paged backends do not take."""


def settings_of(model: Any) -> list[Any]:
    """Every configuration in the model that chooses an attention function, parents before their parts."""
    found: dict[int, Any] = {}
    queue = [model.config, *(module.config for module in model.modules() if hasattr(module, "_attn_implementation"))]
    queue += [module.config for module in model.modules() if hasattr(type(module), "set_attn_implementation")]
    while queue:
        config = queue.pop(0)
        if id(config) in found:
            continue
        found[id(config)] = config
        queue += [part for key in config.sub_configs if (part := getattr(config, key, None)) is not None]
    return list(found.values())


def register(backend: str, attend: Callable[..., torch.Tensor], own: str, *, apart: bool = False) -> str:
    """Make ``attend`` known to ``transformers`` for models whose own attention is ``own``.

    Args:
        apart: ``torch.compile`` does not look into it. What it does depends on the batch in ways no compiler knows.

    Returns:
        The name it was registered under. The same arguments give the same name and an equal function.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    name = f"cbtui_paged_{_KINDS.get(backend, backend)}{'_apart' if apart else ''}_{own.encode().hex()}"
    function = _attention_function(attend, own)
    AttentionInterface.register(name, torch.compiler.disable(function) if apart else function)
    masks = AttentionMaskInterface()
    if own in masks:
        AttentionMaskInterface.register(name, masks[own])
    return name


def no_mask(device: torch.device) -> torch.Tensor:
    """A mask of four dimensions, which ``transformers`` passes on as it is instead of building one. Nobody reads it."""
    return torch.zeros(1, 1, 1, 1, device=device)


def _attention_function(attend: Callable[..., torch.Tensor], own: str) -> Callable[..., tuple[torch.Tensor, Any]]:
    """A function with the signature ``transformers`` calls, around one that takes rows.

    It gets query [1, heads, tokens, head_dim], key and value [1, kv_heads, tokens, head_dim], writes the new keys and
    values into the cache and returns [1, tokens, heads, head_dim].
    """

    def forward(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        paged: Context | None = None,
        **given: Any,
    ) -> tuple[torch.Tensor, Any]:
        if paged is None:
            return _own_function(module, own)(module, query, key, value, attention_mask, **given)
        for name in _NOT_HONOURED:
            if given.get(name) is not None:
                raise EngineError(f"{type(module).__name__} attends with {name}, which the paged cache does not know")
        if given.get("is_causal") is False:
            raise EngineError(f"{type(module).__name__} attends to later tokens, which a cache cannot hold yet")
        layer = paged.layer(module.layer_idx, given.get("sliding_window"))  # type: ignore[arg-type]
        layer.write(key[0].transpose(0, 1), value[0].transpose(0, 1))
        scale = given.get("scaling")
        if scale is None:
            scale = query.shape[-1] ** -0.5
        out = attend(layer, query[0].transpose(0, 1), scale, given.get("softcap"), given.get("s_aux"))
        return out.unsqueeze(0), None

    return forward


def _own_function(module: torch.nn.Module, own: str) -> Callable[..., tuple[torch.Tensor, Any]]:
    """What the module would have called. The written-out form belongs to each model's file."""
    from transformers import AttentionInterface

    plain = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    found = AttentionInterface().get_interface(own, plain)
    if found is None:
        raise EngineError(f"{type(module).__name__} has no attention of its own to fall back on")
    return found

"""Attention over the paged cache, one file per backend, and how a model is made to use it."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch

from engine.core.errors import ConfigError
from engine.run.attention.context import Context
from engine.run.attention.eager import attend as eager
from engine.run.attention.sdpa import attend as sdpa

BACKENDS: dict[str, Callable[..., torch.Tensor]] = {"eager": eager, "sdpa": sdpa}

_NAMES = {"eager": "cbtui_paged_plain", "sdpa": "cbtui_paged_fused"}
"""Names in transformers' registry, which runs checks of its own on names that hold "sdpa" or "flash"."""


def _interface(attend: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, None]]:
    """A function with the signature transformers calls, around one that takes rows.

    It gets query [1, heads, tokens, head_dim], key and value [1, kv_heads, tokens, head_dim], writes the new keys and
    values into the cache and returns [1, tokens, heads, head_dim].
    """

    def forward(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        paged: Context | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        if paged is None:
            raise RuntimeError(
                f"{type(module).__name__} was called outside the engine while its attention is set to the paged cache;"
                " stop the engine first"
            )
        layer = paged.layer(module.layer_idx)  # type: ignore[arg-type]
        layer.write(key[0].transpose(0, 1), value[0].transpose(0, 1))
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        out = attend(layer, query[0].transpose(0, 1), scale, softcap, s_aux)
        return out.unsqueeze(0), None

    return forward


@contextmanager
def paged_attention(model: Any, backend: str) -> Any:
    """Make ``model`` attend over the paged cache until the context ends, then give its own attention back.

    Raises:
        ConfigError: the backend does not exist, or the model's attention cannot be exchanged.
    """
    if backend not in BACKENDS:
        raise ConfigError(f"attention backend {backend!r} is not known; choose one of {', '.join(BACKENDS)}")
    from transformers import AttentionInterface

    name = _NAMES[backend]
    AttentionInterface.register(name, _interface(BACKENDS[backend]))
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    if model.config._attn_implementation != name:
        raise ConfigError(f"{type(model).__name__} does not let its attention be exchanged")
    try:
        yield
    finally:
        model.set_attn_implementation(before)

"""What the engine has to know about a model, read from its configuration and its modules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from engine.core.errors import ConfigError

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A decoder as the cache and the runner see it.

    Attributes:
        windows: per layer its sliding window in tokens, None for full attention.
        num_heads, kv_heads, head_dim, hidden_size, intermediate_size, vocab_size, num_layers: sizes.
        max_positions: longest sequence the positions allow, None when the model sets no limit.
        dtype, device: of the weights; the cache has the same.
        weight_bytes: bytes of all parameters.
    """

    windows: tuple[int | None, ...]
    num_heads: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_positions: int | None
    dtype: torch.dtype
    device: torch.device
    weight_bytes: int

    @property
    def num_layers(self) -> int:
        return len(self.windows)

    @property
    def page_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token in one layer."""
        return 2 * self.kv_heads * self.head_dim * self.dtype.itemsize


def text_config(model: Any) -> Any:
    """The decoder's configuration; models with several parts keep it one level down."""
    config = model.config
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def inspect_model(model: Any) -> ModelFacts:
    """Read the facts of a decoder-only model.

    Raises:
        ConfigError: the model has an encoder, or a layer whose attention the paged cache cannot hold.
    """
    config = text_config(model)
    if getattr(config, "is_encoder_decoder", False):
        raise ConfigError(
            f"{type(model).__name__} has an encoder; only decoder-only models can be batched continuously"
        )
    if getattr(config, "kv_lora_rank", None):
        raise ConfigError(
            f"{type(model).__name__} uses multi-head latent attention (kv_lora_rank={config.kv_lora_rank}), whose"
            " compressed cache has no pages here; choose a model with ordinary attention"
        )
    heads = config.num_attention_heads
    parameters = list(model.parameters())
    return ModelFacts(
        windows=_windows(config, type(model).__name__),
        num_heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        hidden_size=config.hidden_size,
        intermediate_size=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        vocab_size=config.vocab_size,
        max_positions=getattr(config, "max_position_embeddings", None),
        dtype=parameters[0].dtype,
        device=parameters[0].device,
        weight_bytes=sum(p.numel() * p.element_size() for p in parameters),
    )


def _windows(config: Any, name: str) -> tuple[int | None, ...]:
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        # Without a list of kinds, a model either slides everywhere (Mistral) or nowhere.
        return (window,) * config.num_hidden_layers
    for index, kind in enumerate(kinds):
        if kind not in (FULL, SLIDING):
            raise ConfigError(
                f"layer {index} of {name} is {kind!r}; the paged cache holds {FULL!r} and {SLIDING!r} layers only;"
                " choose a model made of these"
            )
    return tuple(window if kind == SLIDING else None for kind in kinds)


def layer_places(groups: Any) -> dict[int, tuple[int, int]]:
    """Model layer index -> (layer group, page of a block that is this layer's)."""
    return {layer: (group.index, page) for group in groups for page, layer in enumerate(group.layers)}


Notice = Callable[[str], None]
"""Takes one sentence about a choice that was made for the person."""

"""What the engine has to know about a model, read from its configuration and its modules."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from engine.core.errors import ConfigError

FULL, SLIDING = "full_attention", "sliding_attention"

_ADVICE = "choose a model made of ordinary attention layers"

_RECURRENT = ("Mamba", "DeltaNet", "LinearAttention", "LightningAttention", "ShortConv", "Recurrent", "Rwkv", "RWKV")
"""Parts of the class names of layers whose state is not a list of keys and values."""


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


def text_config(model: Any) -> Any:
    """The decoder's configuration; models with several parts keep it one level down."""
    config = model.config
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def inspect_model(model: Any) -> ModelFacts:
    """Read the facts of a decoder-only model.

    Raises:
        ConfigError: the model has an encoder, or a layer whose attention the paged cache cannot hold.
    """
    config, name = text_config(model), type(model).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise ConfigError(f"{name} has an encoder; only decoder-only models can be batched continuously")
    if getattr(config, "is_causal", True) is False or getattr(config, "use_bidirectional_attention", False):
        raise ConfigError(f"{name} attends to later tokens too; only causal models can be batched continuously")
    if getattr(config, "kv_lora_rank", None):
        raise ConfigError(
            f"{name} uses multi-head latent attention (kv_lora_rank={config.kv_lora_rank}), whose"
            " compressed cache has no pages here; choose a model with ordinary attention"
        )
    windows = _windows(config, name)
    heads = _size(config, "num_attention_heads", 0)
    kv_heads = _size(config, "num_key_value_heads", heads)
    head_dim = _size(config, "head_dim", config.hidden_size // max(heads, 1))
    _check_layers(model, len(windows), kv_heads, head_dim)
    parameters = list(model.parameters())
    return ModelFacts(
        windows=windows,
        num_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden_size=config.hidden_size,
        intermediate_size=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        vocab_size=config.vocab_size,
        max_positions=getattr(config, "max_position_embeddings", None),
        dtype=parameters[0].dtype,
        device=parameters[0].device,
        weight_bytes=sum(p.numel() * p.element_size() for p in parameters),
    )


def _size(config: Any, name: str, default: int) -> int:
    """A size all layers share; ``default`` where the configuration does not say."""
    try:
        return getattr(config, name, None) or default
    except Exception as error:  # raised by configurations in which the layers differ
        raise ConfigError(f"the layers of this {config.model_type} model differ in {name}; {_ADVICE}") from error


def _check_layers(model: Any, count: int, kv_heads: int, head_dim: int) -> None:
    """Every layer must attend, keep no other state, and have keys and values of the one shape the pages have.

    Raises:
        ConfigError: naming the layer, its class and what is wrong with it.
    """
    attending: set[int] = set()
    for path, module in model.named_modules():
        index, kind = getattr(module, "layer_idx", None), type(module).__name__
        if not isinstance(index, int) or index >= count:
            continue
        where = f"layer {index} of {type(model).__name__} ({kind}, {path})"
        if any(word in kind for word in _RECURRENT):
            raise ConfigError(f"{where} keeps a running state instead of keys and values; {_ADVICE}")
        if "Attention" not in kind:
            continue
        if _calls_interface(module):
            attending.add(index)
        for part, name in (("k_proj", "keys"), ("v_proj", "values")):
            size = getattr(getattr(module, part, None), "out_features", kv_heads * head_dim)
            if size != kv_heads * head_dim:
                raise ConfigError(
                    f"{where} makes {name} of {size} numbers a token, the other layers of {kv_heads} heads x"
                    f" {head_dim} = {kv_heads * head_dim}; {_ADVICE}"
                )
    missing = sorted(set(range(count)) - attending)
    if missing:
        raise ConfigError(
            f"layer {missing[0]} of {type(model).__name__} does not attend through transformers' AttentionInterface, so"
            " its attention cannot be exchanged; choose a model that does"
        )


def _calls_interface(module: Any) -> bool:
    """Whether an attention module looks its function up when called. True where its source cannot be read."""
    try:
        return "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(type(module).forward)
    except (OSError, TypeError):
        return True


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
                f" {_ADVICE}"
            )
    return tuple(window if kind == SLIDING else None for kind in kinds)


def layer_places(groups: Any) -> dict[int, tuple[int, int]]:
    """Model layer index -> (layer group, page of a block that is this layer's)."""
    return {layer: (group.index, page) for group in groups for page, layer in enumerate(group.layers)}

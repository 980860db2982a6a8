"""Reads a loaded ``transformers`` model into the plain description the fast forward pass works from.

Only architectures whose arithmetic is known line by line are read; everything else is refused with a reason, and the
caller runs the model's own modules instead.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class UnknownModel(ValueError):
    """The fast forward pass does not know this model; the message names what it stumbled over."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """How an architecture differs from Llama.

    Attributes:
        centered_norms: RMS norms multiply by 1 + weight.
        post_norms: each branch is normed again before it joins the residual stream.
        head_norms: queries and keys are normed per head before they are rotated.
        softcap: attention scores are capped (``config.attn_logit_softcapping``).
        activation_field: name of the activation in the config.
    """

    centered_norms: bool = False
    post_norms: bool = False
    head_norms: bool = False
    softcap: bool = False
    activation_field: str = "hidden_act"


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(),
    "mistral": Architecture(),
    "qwen2": Architecture(),
    "qwen3": Architecture(head_norms=True),
    "gemma": Architecture(centered_norms=True),
    "gemma2": Architecture(centered_norms=True, post_norms=True, softcap=True, activation_field="hidden_activation"),
    "gemma3_text": Architecture(
        centered_norms=True, post_norms=True, head_norms=True, activation_field="hidden_activation"
    ),
}

_ACTIVATIONS = {"silu": 0, "gelu_pytorch_tanh": 1}
_FIXED_ROTARY = {"default", "linear", "llama3", "yarn"}  # the others change with the length of the text


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One decoder layer. Norm weights are float32, with the 1 of centered norms added in."""

    qkv: tuple[nn.Linear, ...]
    out: nn.Linear
    gate_up: tuple[nn.Linear, ...]
    down: nn.Linear
    attn_norm: Tensor
    mlp_norm: Tensor
    attn_post_norm: Tensor | None
    mlp_post_norm: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    scale: float
    softcap: float
    rotary: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder. ``rotaries`` are (inverse frequencies [head_dim / 2], factor on cosine and sine)."""

    layers: tuple[LayerSpec, ...]
    rotaries: tuple[tuple[Tensor, float], ...]
    embedding: nn.Embedding
    head: nn.Linear
    final_norm: Tensor
    dtype: torch.dtype
    eps: float
    embedding_scale: float
    logit_softcap: float
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    activation: int

    @property
    def tied(self) -> bool:
        """True when the head's weight is the embedding's."""
        return self.head.weight is self.embedding.weight

    def linears(self) -> list[nn.Linear]:
        """Every linear layer, the head last."""
        per_layer = [[*layer.qkv, layer.out, *layer.gate_up, layer.down] for layer in self.layers]
        return [linear for linears in per_layer for linear in linears] + [self.head]


def read_spec(model: Any) -> ModelSpec:
    """Describes a model for the fast forward pass.

    Raises:
        UnknownModel: the architecture, an option of it, or the kind of a module is not known.
    """
    config = model.config
    kind = config.model_type
    arch = ARCHITECTURES.get(kind)
    package = "transformers.models." + kind.removesuffix("_text") + "."
    if (
        arch is None
        or not type(model).__module__.startswith(package)
        or not type(model).__name__.endswith("ForCausalLM")
    ):
        raise UnknownModel(f"architecture {type(model).__name__} ({kind}) is not known to it")
    if getattr(config, "use_bidirectional_attention", False):
        raise UnknownModel("the model attends in both directions")
    activation = getattr(config, arch.activation_field)
    if activation not in _ACTIVATIONS:
        raise UnknownModel(f"activation {activation!r} is not known to it")
    body = model.model
    rotaries, rotary_of = _rotaries(body.rotary_emb, config, len(body.layers))
    embedding, head = body.embed_tokens, model.lm_head
    scale = getattr(embedding, "embed_scale", None)
    attention = body.layers[0].self_attn
    spec = ModelSpec(
        layers=tuple(_layer(layer, arch, config, rotary_of[i]) for i, layer in enumerate(body.layers)),
        rotaries=rotaries,
        embedding=embedding,
        head=head,
        final_norm=_norm(body.norm, arch),
        dtype=head.weight.dtype,
        eps=float(config.rms_norm_eps),
        embedding_scale=1.0 if scale is None else float(scale.to(embedding.weight.dtype)),
        logit_softcap=float(getattr(config, "final_logit_softcapping", None) or 0.0),
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=attention.head_dim,
        activation=_ACTIVATIONS[activation],
    )
    _check(spec)
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        raise UnknownModel("the model has hooks, which only its own modules would call")
    return spec


def _layer(layer: Any, arch: Architecture, config: Any, rotary: int) -> LayerSpec:
    attention, mlp = layer.self_attn, layer.mlp
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    if arch.post_norms:
        norms += [layer.pre_feedforward_layernorm, layer.post_feedforward_layernorm]
    weights = [_norm(norm, arch) for norm in norms]
    return LayerSpec(
        qkv=(attention.q_proj, attention.k_proj, attention.v_proj),
        out=attention.o_proj,
        gate_up=(mlp.gate_proj, mlp.up_proj),
        down=mlp.down_proj,
        attn_norm=weights[0],
        mlp_norm=weights[2] if arch.post_norms else weights[1],
        attn_post_norm=weights[1] if arch.post_norms else None,
        mlp_post_norm=weights[3] if arch.post_norms else None,
        q_norm=_norm(attention.q_norm, arch) if arch.head_norms else None,
        k_norm=_norm(attention.k_norm, arch) if arch.head_norms else None,
        scale=float(attention.scaling),
        softcap=float(config.attn_logit_softcapping or 0.0) if arch.softcap else 0.0,
        rotary=rotary,
    )


def _norm(norm: Any, arch: Architecture) -> Tensor:
    weight: Tensor = norm.weight.detach().float()
    return (weight + 1.0 if arch.centered_norms else weight.clone()).contiguous()


def _rotaries(module: Any, config: Any, num_layers: int) -> tuple[tuple[tuple[Tensor, float], ...], list[int]]:
    """The distinct rotary tables, and which of them each layer uses."""
    if hasattr(module, "inv_freq"):
        names, prefixes, kinds = [""] * num_layers, [""], {"": module.rope_type}
    else:
        names = list(config.layer_types)
        prefixes = sorted(set(names))
        kinds = module.rope_type
    for kind in kinds.values():
        if kind not in _FIXED_ROTARY:
            raise UnknownModel(f"rotary embedding {kind!r} is not known to it")
    tables = []
    for prefix in prefixes:
        stem = f"{prefix}_" if prefix else ""
        tables.append(
            (getattr(module, f"{stem}inv_freq").detach().float(), float(getattr(module, f"{stem}attention_scaling")))
        )
    return tuple(tables), [prefixes.index(name) for name in names]


def _check(spec: ModelSpec) -> None:
    """Refuses what the kernels could not compute or what somebody else changed about the modules."""
    if spec.dtype not in (torch.float32, torch.bfloat16):
        raise UnknownModel(f"it computes in float32 and bfloat16, not in {str(spec.dtype).removeprefix('torch.')}")
    if any(2 * len(frequencies) != spec.head_dim for frequencies, _ in spec.rotaries):
        raise UnknownModel("only a part of each head is rotated")
    for linear in spec.linears():
        weight = linear.weight
        if type(linear) is not nn.Linear or "forward" in vars(linear):
            raise UnknownModel(f"a linear layer is not a plain nn.Linear but {type(linear).__name__}, or was changed")
        if weight.numel() == 0:
            raise UnknownModel("the weights are held by another engine; close it first")
        if weight.device.type != "cpu" or weight.dtype != spec.dtype or not weight.is_contiguous():
            raise UnknownModel("the weights are not all contiguous, on the CPU and of one type")
        if weight.shape[1] % 2:
            raise UnknownModel(f"a linear layer has an odd number of inputs ({weight.shape[1]})")
    if spec.head_dim % 2 or spec.heads % spec.kv_heads:
        raise UnknownModel(f"heads of {spec.head_dim} or groups {spec.heads}/{spec.kv_heads} do not divide evenly")

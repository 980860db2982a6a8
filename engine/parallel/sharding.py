"""Which part of a model a rank holds, and which numbers of ranks are possible."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.core.errors import ConfigError
from engine.run.facts import ModelFacts

SPLIT = "colwise"
"""The rule under which a projection's output stays split over the ranks, so that each holds whole heads."""


def tensor_mesh(model: Any) -> Any:
    """The one-dimensional mesh a model is split over, or None for a model in one piece.

    Raises:
        ConfigError: it is divided in another way than tensor parallelism.
    """
    mesh = getattr(model, "_device_mesh", None)
    if mesh is None:
        return None
    names = mesh.mesh_dim_names
    if names is None:
        return mesh if mesh.size() > 1 else None
    for name in names:
        if name != "tp" and mesh[name].size() > 1:
            raise ConfigError(
                f"{type(model).__name__} is divided over {mesh[name].size()} processes by {name!r}; only tensor"
                " parallelism is known here: load it with DistributedConfig(tp_size=N) alone"
            )
    if "tp" not in names or mesh["tp"].size() == 1:
        return None
    if getattr(model, "hf_device_map", None) and len(set(model.hf_device_map.values())) > 1:
        raise ConfigError(
            f"{type(model).__name__} has a device_map over several devices and is split by tensor "
            "parallelism too; use one of the two"
        )
    return mesh["tp"]


def splits_kv(plan: Mapping[str, str]) -> bool:
    """Whether a plan (module pattern -> rule) gives each rank its own KV heads; else all ranks attend with all heads.

    Raises:
        ConfigError: queries and keys are not split alike, so that their heads would not belong together.
    """
    rules = {
        name: any(key.rsplit(".", 1)[-1] == name and rule == SPLIT for key, rule in plan.items())
        for name in ("q_proj", "k_proj", "v_proj")
    }
    if len(set(rules.values())) > 1:
        told = ", ".join(f"{name} {'split' if split else 'whole'}" for name, split in rules.items())
        raise ConfigError(
            f"the tensor parallel plan of this model splits its heads unevenly ({told}); use another plan"
        )
    return rules["k_proj"]


def check_size(heads: int, kv_heads: int, size: int) -> None:
    """Every rank must hold whole KV heads, and as many as every other.

    Raises:
        ConfigError: with the sizes that are possible.
    """
    if kv_heads % size or heads % size:
        allowed = [n for n in range(1, kv_heads + 1) if kv_heads % n == 0 and heads % n == 0]
        raise ConfigError(
            f"{kv_heads} KV heads cannot be divided over {size} ranks; start as many processes as one of"
            f" {', '.join(map(str, allowed))}"
        )


def check_config(config: Any, size: int) -> None:
    """The same, from a model's configuration, before anything is loaded. Raises ConfigError."""
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    plan = getattr(text, "base_model_tp_plan", None) or {}
    heads = getattr(text, "num_attention_heads", 0)
    if splits_kv(plan):
        check_size(heads, getattr(text, "num_key_value_heads", None) or heads, size)


def own_part(model: Any, facts: ModelFacts, size: int) -> ModelFacts:
    """The facts of one rank's part of a model.

    Raises:
        ConfigError: the number of ranks does not divide the KV heads.
    """
    part = replace(facts, weight_bytes=sum(_own_bytes(p) for p in model.parameters()))
    if not splits_kv(model.tp_plan or {}):
        return part
    check_size(facts.num_heads, facts.kv_heads, size)
    inner = -(-facts.intermediate_size // size)
    return replace(part, num_heads=facts.num_heads // size, kv_heads=facts.kv_heads // size, intermediate_size=inner)


def _own_bytes(parameter: Any) -> int:
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return int(local.numel() * local.element_size())

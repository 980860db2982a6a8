"""The model's side of a blueprint: its facts, and the runner for it."""

from collections.abc import Callable
from typing import Any

from engine.core.config import ContinuousBatchingConfig, ResolvedConfig
from engine.core.layout import CacheLayout
from engine.core.paths import wants_compilation
from engine.core.sizing import Facts
from engine.memory import probe
from engine.run.assemble import assemble
from engine.run.attention.choice import choose_attention, has_sinks
from engine.run.facts import inspect_model, text_config
from engine.run.fast.choose import choose_forward
from engine.run.kv_store import KVStore
from engine.run.model_runner import ModelRunner
from engine.split import is_split


def attach(
    model: Any, config: ContinuousBatchingConfig
) -> tuple[Facts, Callable[[ResolvedConfig, CacheLayout, Any], Any], Any]:
    """Facts about ``model``, a function that builds its runner (on a cache kept from before, or None), and its eos ids.

    Raises:
        ConfigError: the model has a layer the cache cannot hold, or the forward pass asked for cannot run it.
    """
    if is_split(model):
        from engine.parallel.attach import attach_split

        return attach_split(model, config)
    model_facts = inspect_model(model)
    attention = choose_attention(
        getattr(model.config, "_attn_implementation", None),
        model_facts,
        page_size=config.page_size,
        auto_switch=config.auto_switch_to_flash,
        sinks=has_sinks(model),
    )
    choice = choose_forward(model, config.forward, compiles=wants_compilation(config))
    backend, why = attention.name, attention.reason
    if choice.kind == "fast":
        backend, why = "fast", "part of the compiled kernels"
    facts = probe(
        model,
        backend,
        model_facts,
        attention_reason=why,
        page_multiple=attention.page_multiple,
        has_decode_kernel=attention.kernels is not None,
        forward=choice.kind,
        forward_reason=choice.reason,
        forward_notice=choice.notice,
    )

    def make_runner(resolved: ResolvedConfig, layout: CacheLayout, store: Any) -> Any:
        store = store or KVStore(layout, model_facts)
        return ModelRunner(
            model,
            layout,
            model_facts,
            max_requests_per_batch=resolved.max_requests_per_batch.value,
            seed=resolved.seed.value or 0,
            forward=assemble(model, choice, attention, resolved, layout, store),
            store=store,
        )

    return facts, make_runner, getattr(text_config(model), "eos_token_id", None)

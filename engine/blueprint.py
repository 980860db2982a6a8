"""What an engine is built from: decided once, in the caller's thread, so that errors appear where they were caused."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.core.config import ContinuousBatchingConfig, ResolvedConfig, resolve
from engine.core.errors import ConfigError, RequestError
from engine.core.groups import group_layers
from engine.core.layout import CacheLayout, LayerGroup
from engine.core.request import Request
from engine.core.scheduler import Scheduler
from engine.core.sizing import Facts
from engine.generation import request_defaults
from engine.requests import Limits, RequestBuilder
from engine.split import is_split


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Everything decided before anything is allocated.

    Attributes:
        config: what runs, with reasons.
        layout: shape of the cache.
        builder: checks requests.
        tokenizer: or None.
        notices: sentences a person should read once; they were given as warnings too.
        make_runner: builds the runner of the model on the cache it is given, or on a new one for None.
        wanted: what was asked for. facts_without: facts as they are now, as if the engine of this blueprint were gone.
    """

    config: ResolvedConfig
    layout: CacheLayout
    builder: RequestBuilder
    tokenizer: Any
    notices: tuple[str, ...]
    make_runner: Callable[[Any], Any]
    wanted: ContinuousBatchingConfig
    facts_without: Callable[[], Facts]


@dataclass(frozen=True, slots=True)
class WorkloadHints:
    """What is known about the work to come; 0 means unknown. Lengths in tokens."""

    max_prompt_length: int = 0
    max_generated_length: int = 0
    num_requests: int = 0


def draw(
    model: Any,
    tokenizer: Any = None,
    generation_config: Any = None,
    config: Any = None,
    *,
    hints: WorkloadHints | None = None,
    facts: Facts | None = None,
    model_eos: Any = None,
) -> Blueprint:
    """Decide everything about an engine for ``model``.

    Args:
        config: a ``ContinuousBatchingConfig``, another object with its fields, or None for the defaults (or the one a
            generation config carries, which is deprecated).
        hints: about the work to come.
        facts: about model and machine, instead of asking them. Then ``model`` may be None and a runner must be given.
        model_eos: end-of-sequence ids of the model, with ``facts``.

    Raises:
        ConfigError: the configuration is not possible, or the model has a layer that is not supported (named).
    """
    if generation_config is None:
        generation_config = getattr(model, "generation_config", None)
    wanted = _config_of(config, generation_config)
    defaults, notices = request_defaults(generation_config, drop_unsupported=wanted.drop_unsupported_processors)
    make_runner: Callable[[ResolvedConfig, CacheLayout, Any], Any]
    measures = facts is None and not is_split(model)  # the ranks of a split model were asked once, all together
    if facts is None:
        from engine.attach import attach

        facts, make_runner, model_eos = attach(model, wanted)
    else:
        make_runner = _no_model
    facts = replace(_with_hints(facts, hints, defaults), compile_fallback=_compile_config(generation_config))
    resolved = resolve(wanted, facts)
    layout = layout_of(resolved, group_layers(facts.windows))
    limits = Limits(facts.vocab_size, facts.max_positions, _pool_tokens(layout, resolved))
    builder = RequestBuilder(
        limits,
        defaults,
        model_eos=model_eos,
        tokenizer=tokenizer,
        return_logprobs=resolved.return_logprobs.value,
        seed=resolved.seed.value,
    )
    notices += resolved.notices
    for notice in notices:
        warnings.warn(notice, UserWarning, stacklevel=3)
    known = facts

    def facts_without() -> Facts:
        if not measures:
            return known
        from engine.memory import without

        return without(known, resolved, model.device)

    def runner_on(store: Any) -> Any:
        return make_runner(resolved, layout, store)

    return Blueprint(resolved, layout, builder, tokenizer, notices, runner_on, wanted, facts_without)


def layout_of(config: ResolvedConfig, groups: tuple[LayerGroup, ...]) -> CacheLayout:
    """The shape of the cache of an engine with this configuration."""
    return CacheLayout(
        page_size=config.page_size.value,
        groups=groups,
        num_blocks=config.num_blocks.value * len(groups),
        host_blocks=config.host_blocks.value,
        block_bytes=config.block_bytes.value,
    )


def _config_of(config: Any, generation_config: Any) -> ContinuousBatchingConfig:
    if config is not None:
        return ContinuousBatchingConfig.from_any(config)
    inside = getattr(generation_config, "continuous_batching_config", None)
    if inside is None:
        return ContinuousBatchingConfig()
    warnings.warn(
        "continuous_batching_config inside a generation config is deprecated; pass it beside it",
        FutureWarning,
        stacklevel=4,
    )
    return ContinuousBatchingConfig.from_any(inside)


def _compile_config(generation_config: Any) -> Any:
    """The compile config a generation config brings; one that switches compilation off brings none."""
    if getattr(generation_config, "disable_compile", None):
        return None
    return getattr(generation_config, "compile_config", None)


def _with_hints(facts: Facts, hints: WorkloadHints | None, defaults: dict[str, Any]) -> Facts:
    names = ("do_sample", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids", "sequence_bias")
    processes = any(defaults.get(name) for name in names)
    if hints is None:
        return replace(facts, processes_logits=processes)
    longest = hints.max_prompt_length + hints.max_generated_length
    return replace(facts, processes_logits=processes, num_requests=hints.num_requests, longest_request=longest)


def _pool_tokens(layout: CacheLayout, config: ResolvedConfig) -> int:
    """Longest sequence the pool can hold alone, in tokens: what the scheduler would accept."""
    judge = Scheduler(layout, replace(config.scheduler_settings(), max_length=None))
    low, high = 1, max(2, layout.num_blocks * layout.page_size + 1)
    if config.max_length.value is not None:
        high = max(2, min(high, config.max_length.value))
    while low < high:
        middle = (low + high + 1) // 2
        try:
            judge.check(Request("probe", (0,), max_new_tokens=middle - 1))
        except RequestError:
            high = middle - 1
        else:
            low = middle
    return low


def _no_model(config: ResolvedConfig, layout: CacheLayout, store: Any) -> Any:
    raise ConfigError("there is no model to run; give the engine a model or a runner")

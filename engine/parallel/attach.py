"""A split model's side of a blueprint, on rank 0; and following, on all other ranks."""

import json
from collections.abc import Callable
from typing import Any

from engine.core.config import ContinuousBatchingConfig, ResolvedConfig
from engine.core.errors import ConfigError
from engine.core.layout import CacheLayout
from engine.core.sizing import Facts
from engine.memory import probe
from engine.parallel.follower import Doors, Follower
from engine.parallel.forward import SharedForward
from engine.parallel.frames import Kind
from engine.parallel.leader import LeadingRunner, Opening, smallest
from engine.parallel.ranks import Ranks, ranks_of
from engine.parallel.sharding import own_part, tensor_mesh
from engine.run.attention.choice import choose_attention
from engine.run.facts import ModelFacts, inspect_model, text_config
from engine.run.fast.choose import Choice, choose_forward
from engine.run.kv_store import KVStore
from engine.run.model_runner import ModelRunner

Attached = tuple[Facts, Callable[[ResolvedConfig, CacheLayout, Any], Any], Any]


def attach_split(model: Any, config: ContinuousBatchingConfig) -> Attached:
    """As ``engine.attach.attach``, for rank 0 of a split model; the other ranks take part by following.

    Raises:
        ConfigError: this rank follows, the heads cannot be divided so, or a forward pass was asked for that runs whole
            models only.
    """
    part = part_of(model)
    choice = _choice(model, config.forward)
    ranks = ranks_of(model, config.cpu_group_timeout)
    assert ranks is not None
    if not ranks.leads:
        raise ConfigError(f"rank {ranks.rank} follows rank 0; give it a manager as on rank 0, or call follow(model)")
    ranks.beat()
    with ranks.conversation():
        ranks.send(Kind.MEASURE, json.dumps(config.cpu_group_timeout).encode())
        facts = smallest(_probe(model, part, choice), ranks)

    def make_runner(resolved: ResolvedConfig, layout: CacheLayout, store: Any) -> Any:
        rows, backend = resolved.max_requests_per_batch.value, resolved.attention.value
        check = resolved.check_ranks.value
        opening = Opening(
            layout.page_size, layout.num_blocks, layout.host_blocks, rows, backend, check, reuse=store is not None
        )

        def make() -> tuple[ModelRunner, SharedForward]:
            cache = store or KVStore(layout, part)
            shared: Any = SharedForward(choice.make(layout, cache, backend), ranks, check=check)
            runner = ModelRunner(
                model,
                layout,
                part,
                backend=backend,
                max_requests_per_batch=rows,
                seed=resolved.seed.value or 0,
                forward=shared,
                store=cache,
            )
            return runner, shared

        return LeadingRunner(ranks, layout, opening, make)

    return facts, make_runner, getattr(text_config(model), "eos_token_id", None)


def follow(model: Any) -> None:
    """Serve rank 0 until it is gone. For a rank that has nothing else to do; a manager follows on a thread of its own.

    Raises:
        ConfigError: the model is not split, or cannot be run.
        RankError: some rank failed, or was lost in the middle of a session.
    """
    ranks = ranks_of(model, None)
    if ranks is None or ranks.leads:
        raise ConfigError("only ranks other than 0 of a split model can follow")
    follower(model, ranks).serve()


def follower(model: Any, ranks: Ranks, doors: Doors | None = None) -> Follower:
    """What serves rank 0 with this rank's part of ``model``."""
    part, choice = part_of(model), _choice(model, "auto")
    return Follower(ranks, part, lambda: _probe(model, part, choice), choice.make, doors)


def part_of(model: Any) -> ModelFacts:
    """The facts of this rank's part.

    Raises:
        ConfigError: the model cannot be run, or not on so many ranks.
    """
    return own_part(model, inspect_model(model), tensor_mesh(model).size())


def _choice(model: Any, wanted: str) -> Choice:
    """The forward pass of a part: the model's own modules, which know that they are split."""
    if wanted not in ("auto", "modules"):
        raise ConfigError(f"forward={wanted!r} runs whole models only, and this one is split over ranks; use 'auto'")
    size = tensor_mesh(model).size()
    choice = choose_forward(model, "modules")
    return Choice(
        choice.kind, f"split over {size} ranks: each runs its part of the model's own modules", "", choice.make
    )


def _probe(model: Any, part: ModelFacts, choice: Choice) -> Facts:
    setting = getattr(model.config, "_attn_implementation", None)
    attention = choose_attention(setting, part, auto_switch=False, find=lambda name: "not over several ranks")
    return probe(
        model,
        attention.name,
        part,
        attention_reason=attention.reason,
        compile_trouble="the model is split over ranks",
        forward=choice.kind,
        forward_reason=choice.reason,
        forward_notice=choice.notice,
    )

"""The public configuration: fields, defaults, ranges. What they become on a machine is in ``engine.core.config``."""

import difflib
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from engine.core.errors import ConfigError

POLICIES = ("fifo", "prefill_first")
FORWARDS = ("auto", "fast", "packed", "modules")
CHECKS = ("off", "sampled", "every")
MIN_PAGE_SIZE = 4


@dataclass(frozen=True, slots=True)
class FieldRule:
    """``ok`` tells whether a value is allowed, ``range`` says it in words, ``advice`` what to do instead."""

    ok: Callable[[Any], bool]
    range: str
    advice: str


def _int(low: int, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high


def _number(low: float, high: float, *, open_low: bool = False) -> Callable[[Any], bool]:
    def ok(value: Any) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return False
        return (low < value if open_low else low <= value) and value <= high

    return ok


def _or_none(ok: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda v: v is None or ok(v)


def _bool(value: Any) -> bool:
    return isinstance(value, bool)


def _graphs(value: Any) -> bool:
    pair = isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(v, bool) for v in value)
    return isinstance(value, bool) or pair


_SWITCH = FieldRule(_bool, "True or False", "pass a bool")
_AUTO_SWITCH = FieldRule(_or_none(_bool), "True, False or None", "None decides by device and attention")
_INTERVAL = FieldRule(_int(0), "an int >= 0 (tokens)", "0 uses the preset")
_COMPILE = FieldRule(
    lambda v: v is None or isinstance(v, Mapping) or hasattr(v, "to_dict"),
    "a dict or a CompileConfig",
    "for example {'mode': 'default', 'dynamic': True}",
)

RULES: Mapping[str, FieldRule] = {
    "page_size": FieldRule(_int(MIN_PAGE_SIZE), f"an int >= {MIN_PAGE_SIZE} (tokens)", "16 to 256 works well"),
    "num_blocks": FieldRule(_or_none(_int(1)), "an int >= 1 or None", "None sizes the pool from free memory"),
    "max_batch_tokens": FieldRule(_or_none(_int(1)), "an int >= 1 or None", "None sizes it from free memory"),
    "max_memory_percent": FieldRule(
        _or_none(_number(0, 1, open_low=True)), "a share in (0, 1] or None", "0.9 means 90 % of the free memory"
    ),
    "max_requests_per_batch": FieldRule(_or_none(_int(1)), "an int >= 1 or None", "None uses the number of prompts"),
    "max_blocks_per_request": FieldRule(_or_none(_int(0)), "an int >= 0 or None", "0 turns the decode fast path off"),
    "allow_block_sharing": _SWITCH,
    "use_async_batching": _AUTO_SWITCH,
    "use_cuda_graph": FieldRule(_or_none(_graphs), "a bool, a pair of bools (varlen, decode) or None", "None decides"),
    "q_padding_interval_size": _INTERVAL,
    "kv_padding_interval_size": _INTERVAL,
    "varlen_compile_config": _COMPILE,
    "decode_compile_config": _COMPILE,
    "default_compile_level": FieldRule(_int(0, 3), "an int from 0 to 3", "0 does not compile"),
    "scheduler_type": FieldRule(lambda v: v in POLICIES, f"one of {', '.join(POLICIES)}", "fifo is the default"),
    "safety_margin": FieldRule(_or_none(_number(0, 1)), "a share in [0, 1] or None", "0 turns the margin off"),
    "return_logprobs": _SWITCH,
    "seed": FieldRule(_or_none(_int(0, 2**63 - 1)), "an int from 0 to 2**63 - 1 or None", "None draws seeds"),
    "auto_switch_to_flash": _SWITCH,
    "cpu_offload_space": FieldRule(
        _or_none(_number(0, math.inf)), "GiB >= 0 or None", "0 turns offloading off, None sizes it by the threshold"
    ),
    "cpu_offload_space_safety_threshold": FieldRule(_number(0, 1), "a share in [0, 1]", "0.8 is the default"),
    "max_queue_size": FieldRule(_int(0), "an int >= 0", "0 means no limit"),
    "per_request_processors": _SWITCH,
    "drop_unsupported_processors": _SWITCH,
    "disable_nccl_graph_mixing": _SWITCH,
    "cpu_group_timeout": FieldRule(
        _or_none(_number(0, math.inf, open_low=True)), "seconds > 0 or None", "None waits without a limit"
    ),
    "skip_limit": FieldRule(_int(0), "an int >= 0 (steps)", "0 keeps strict arrival order"),
    "max_steps_without_decode": FieldRule(_int(1), "an int >= 1 (steps)", "16 is the default"),
    "reorder_requests": _SWITCH,
    "forward": FieldRule(lambda v: v in FORWARDS, f"one of {', '.join(FORWARDS)}", "auto takes the quickest"),
    "check_invariants": FieldRule(lambda v: v in CHECKS, f"one of {', '.join(CHECKS)}", "sampled is cheap"),
    "check_ranks": _SWITCH,
    "history_steps": FieldRule(_int(1), "an int >= 1 (steps)", "how many step records are kept for readers"),
}

DEPRECATED = ("use_default_compile_configs", "max_cached_graphs", "block_size")


@dataclass(kw_only=True, slots=True)
class ContinuousBatchingConfig:
    """What a user may set. None means "decide for me"; what was decided, and why, is in ``ResolvedConfig``.

    Attributes:
        page_size: tokens per page, at least 4; FlashAttention-2 reads pages of a multiple of 256.
        num_blocks: whole-model blocks of ``page_size`` tokens in the cache; None sizes it from free memory.
        max_batch_tokens: query tokens per step; None starts at 8192 and halves while memory is short, down to 256.
        max_memory_percent: share of the free memory the engine may use; None is 0.9, 0.8 with logits processing,
            and a quarter of the free RAM on a CPU.
        max_requests_per_batch: rows per step; None is the number of prompts when known, else 1024.
        max_blocks_per_request: width of the decode fast path's block table; 0 turns the fast path off.
        allow_block_sharing: prefix cache, and blocks shared between the sequences of one request.
        use_async_batching: plan the next step while the device computes the current one.
        use_cuda_graph: one bool, or a pair for the varlen and the decode path. Needs flash attention.
        q_padding_interval_size, kv_padding_interval_size: granularity of graph shapes in tokens; 0 uses 64 and 16384.
        varlen_compile_config, decode_compile_config: how each path is compiled: arguments of ``torch.compile`` as a
            dict, or a ``transformers`` ``CompileConfig``.
        default_compile_level: 0 (no compilation) to 3, for paths without a compile config of their own: 1 compiles for
            any size, 2 tries out more kernels, 3 does so for each rounded size.
        scheduler_type: ``"fifo"`` or ``"prefill_first"``.
        safety_margin: share of the pool new prompts must leave free; None is 0.15 for fifo and 0 for prefill_first.
        return_logprobs: return the raw log-probability of each generated token.
        seed: seed of the requests that bring none; None draws one for each.
        auto_switch_to_flash: use flash attention instead of eager or sdpa where it is installed.
        cpu_offload_space: host memory for swapped-out blocks in GiB; None sizes it by the threshold below.
        cpu_offload_space_safety_threshold: share of the free host memory that swapping may take at most.
        max_queue_size: requests that may wait before ``add_request`` blocks; 0 is no limit.
        per_request_processors: accepted for compatibility: every request always has its own sampling values.
        drop_unsupported_processors: warn about generation settings the engine lacks instead of refusing them.
        disable_nccl_graph_mixing: for CUDA graphs in tensor parallel runs.
        cpu_group_timeout: seconds a rank of a split model may be waited for; None waits without a limit.
        check_ranks: compare the index tensors of all ranks in each step of a split model.
        skip_limit: steps in a row the head of the queue may be overtaken because it does not fit; 0 is strict.
        max_steps_without_decode: ``prefill_first`` lets decodes run at the latest after this many steps.
        reorder_requests: ``add_requests`` sorts prompts for prefix hits (results keep the order of submission).
        forward: what computes a step on a CPU: ``"fast"`` (compiled kernels, packed weights), ``"packed"`` (the model's
            modules, weights packed by oneDNN) or ``"modules"``; ``"auto"`` takes the first of these that works.
        check_invariants: count the engine's bookkeeping anew after ``"every"`` step, ``"sampled"`` (every 64th step
            while watched), or ``"off"``. What is broken holds a watched engine, and fails one that nobody watches.
        history_steps: step records kept for readers of the tap.
        use_default_compile_configs, max_cached_graphs, block_size: deprecated; they warn, and the first and the last
            set ``default_compile_level`` and ``page_size``.

    Raises:
        ConfigError: unknown field (with the nearest known name) or a value out of range.
    """

    page_size: int = 256
    num_blocks: int | None = None
    max_batch_tokens: int | None = None
    max_memory_percent: float | None = None
    max_requests_per_batch: int | None = None
    max_blocks_per_request: int | None = None
    allow_block_sharing: bool = True
    use_async_batching: bool | None = None
    use_cuda_graph: bool | tuple[bool, bool] | None = None
    q_padding_interval_size: int = 0
    kv_padding_interval_size: int = 0
    varlen_compile_config: Any = None
    decode_compile_config: Any = None
    default_compile_level: int = 0
    scheduler_type: str = "fifo"
    safety_margin: float | None = None
    return_logprobs: bool = False
    seed: int | None = None
    auto_switch_to_flash: bool = True
    cpu_offload_space: float | None = 0.0
    cpu_offload_space_safety_threshold: float = 0.8
    max_queue_size: int = 0
    per_request_processors: bool = False
    drop_unsupported_processors: bool = True
    disable_nccl_graph_mixing: bool = True
    cpu_group_timeout: float | None = 300.0
    skip_limit: int = 0
    max_steps_without_decode: int = 16
    reorder_requests: bool = True
    forward: str = "auto"
    check_invariants: str = "sampled"
    check_ranks: bool = False
    history_steps: int = 1024
    use_default_compile_configs: bool | None = None
    max_cached_graphs: int | None = None
    block_size: int | None = None

    def __new__(cls, **values: Any) -> Self:
        for name in values:
            if name not in RULES and name not in DEPRECATED:
                raise unknown_field(name)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.block_size is not None:
            warnings.warn("block_size is deprecated, use page_size", FutureWarning, stacklevel=3)
            self.page_size, self.block_size = self.block_size, None
        if self.use_default_compile_configs is not None:
            level = 3 if self.use_default_compile_configs else 0
            warnings.warn(
                f"use_default_compile_configs is deprecated, use default_compile_level={level}",
                FutureWarning,
                stacklevel=3,
            )
            self.default_compile_level, self.use_default_compile_configs = level, None
        if self.max_cached_graphs is not None:
            warnings.warn("max_cached_graphs is deprecated and has no effect", FutureWarning, stacklevel=3)
            self.max_cached_graphs = None
        self.validate()

    def validate(self) -> None:
        """Raises ConfigError naming the first field whose value is out of range."""
        for name in RULES:
            check_field(name, getattr(self, name))

    @classmethod
    def from_any(cls, config: Any) -> Self:
        """This kind of configuration from another object with the same field names, for example ``transformers``' own.

        Raises:
            TypeError: ``config`` is no dataclass of configuration fields.
            ConfigError: a value is out of range.
        """
        if isinstance(config, cls):
            return config
        if not hasattr(config, "__dataclass_fields__") or not hasattr(config, "page_size"):
            raise TypeError(f"expected a ContinuousBatchingConfig but got {type(config).__name__}")
        names = [spec.name for spec in fields(config) if spec.name in RULES]
        return cls(**{name: getattr(config, name) for name in names})


def check_field(name: str, value: Any) -> None:
    """Raises ConfigError when ``value`` is not allowed for the field, or there is no such field."""
    if name not in RULES:
        raise unknown_field(name)
    rule = RULES[name]
    if not rule.ok(value):
        raise ConfigError(f"{name}={value!r} is not allowed: it must be {rule.range}; {rule.advice}")


def unknown_field(name: str) -> ConfigError:
    """The error for a field nobody knows, with the nearest known name."""
    near = difflib.get_close_matches(name, [*RULES, *DEPRECATED], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known fields: {', '.join(RULES)}"
    return ConfigError(f"unknown configuration field {name!r}; {hint}")

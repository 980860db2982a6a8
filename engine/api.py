"""The entry points: generate a batch, or get a manager. Functions that take the model instead of methods of it."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from engine.blueprint import WorkloadHints
from engine.core.request import GenerationOutput
from engine.delivery import child_ids
from engine.inputs import prompt_rows, token_ids
from engine.manager import CACHED_NAME, ContinuousBatchingManager

logger = logging.getLogger(__name__)


def init_continuous_batching(
    model: Any,
    generation_config: Any = None,
    continuous_batching_config: Any = None,
    workload_hints: WorkloadHints | None = None,
    *,
    tokenizer: Any = None,
) -> ContinuousBatchingManager:
    """A manager for ``model``, not started; the one kept by an earlier session if there is one.

    Args:
        generation_config: defaults of every request; the model's own when None.
        continuous_batching_config: how to run; None decides everything by model and machine.
        workload_hints: about the work to come.
        tokenizer: for prompts given as text, for stop strings, and for the text of outputs.

    Raises:
        ConfigError: the configuration is not possible here, or the model has a layer that is not supported.
    """
    kept = getattr(model, CACHED_NAME, None)
    if isinstance(kept, ContinuousBatchingManager):
        if any(given is not None for given in (generation_config, continuous_batching_config, tokenizer)):
            logger.warning(
                "the manager kept on this model is used again, with the configuration it has; "
                "destroy_cached_continuous_batching_manager drops it"
            )
        return kept
    return ContinuousBatchingManager(
        model, generation_config, continuous_batching_config, workload_hints, tokenizer=tokenizer
    )


def destroy_cached_continuous_batching_manager(model: Any) -> None:
    """Destroy the manager an earlier session kept on ``model``; nothing happens when there is none."""
    kept = getattr(model, CACHED_NAME, None)
    if isinstance(kept, ContinuousBatchingManager):
        kept.destroy()


@contextlib.contextmanager
def continuous_batching_context_manager(
    model: Any,
    generation_config: Any = None,
    block: bool = True,
    timeout: float | None = None,
    continuous_batching_config: Any = None,
    persistent_manager: bool = False,
    warmup: bool = True,
    workload_hints: WorkloadHints | None = None,
    *,
    tokenizer: Any = None,
) -> Iterator[ContinuousBatchingManager]:
    """A started manager; it is stopped on leaving, and destroyed unless it is persistent.

    Leaving normally finishes what was accepted. Leaving by an exception ends it at once.

    Args:
        block, timeout: how to wait for the end, see ``ContinuousBatchingManager.stop``.
        persistent_manager: keep manager, cache and buffers on the model for the next session.
        warmup: prepare what can be prepared before the first request.

    Raises:
        ConfigError: as ``init_continuous_batching``.
    """
    manager = init_continuous_batching(
        model, generation_config, continuous_batching_config, workload_hints, tokenizer=tokenizer
    )
    if warmup and not manager.warmed_up:
        manager.warmup()
    manager.start()
    hard = True
    try:
        yield manager
        hard = False
    finally:
        if manager.is_running():
            manager.stop(block=block, timeout=timeout, keep_for_next_session=persistent_manager, hard_stop=hard)
        if not persistent_manager and (block or not manager.is_running()):
            manager.destroy()


def generate_batch(
    model: Any,
    inputs: Any,
    generation_config: Any = None,
    continuous_batching_config: Any = None,
    record_timestamps: bool = False,
    progress_bar: bool = False,
    persistent_manager: bool = False,
    warmup: bool = True,
    *,
    tokenizer: Any = None,
    max_new_tokens: int | None = None,
    **sampling: Any,
) -> dict[str, GenerationOutput]:
    """Run all prompts and return their outputs.

    Args:
        inputs: prompts: a list of token id lists, a tensor [b, n], a tokenizer's output, or (with ``tokenizer``) texts.
        record_timestamps: keep the time of each generated token.
        progress_bar: show one on standard error.
        sampling: for all requests, as in ``ContinuousBatchingManager.add_request``.

    Returns:
        Request id → output in the order of ``inputs``, the further sequences of a prompt right after its first. A
        request that failed is among them, with its ``error``.

    Raises:
        TypeError, RequestError: a prompt or a value is refused; nothing was run.
        ConfigError: as ``init_continuous_batching``.
    """
    prompts = [token_ids(prompt, tokenizer) for prompt in prompt_rows(inputs)]
    if not prompts:
        return {}
    defaults = generation_config if generation_config is not None else getattr(model, "generation_config", None)
    copies = sampling.get("num_return_sequences") or getattr(defaults, "num_return_sequences", None) or 1
    total = len(prompts) * copies
    longest_output = max_new_tokens if max_new_tokens is not None else getattr(defaults, "max_new_tokens", None)
    # A manager that is kept will see other work than this, so it is not made to measure.
    hints = None if persistent_manager else WorkloadHints(max(map(len, prompts)), longest_output or 0, total)
    context = continuous_batching_context_manager(
        model,
        generation_config,
        continuous_batching_config=continuous_batching_config,
        persistent_manager=persistent_manager,
        warmup=warmup,
        workload_hints=hints,
        tokenizer=tokenizer,
    )
    found: dict[str, GenerationOutput] = {}
    with context as manager, _progress(total, progress_bar) as advance:
        ids = manager.add_requests(
            prompts, max_new_tokens=max_new_tokens, record_timestamps=record_timestamps, **sampling
        )
        wanted = [name for request_id in ids or () for name in child_ids(request_id, copies)]
        missing = set(wanted)
        while missing and (output := manager.get_result()) is not None:
            if output.is_finished() and output.request_id in missing:
                found[output.request_id] = output
                missing.discard(output.request_id)
                advance()
    return {name: found[name] for name in wanted if name in found}


@contextlib.contextmanager
def _progress(total: int, shown: bool) -> Iterator[Any]:
    """A function to call once per finished request."""
    if not shown:
        yield lambda: None
        return
    from tqdm import tqdm  # type: ignore[import-untyped]

    with tqdm(total=total, desc=f"{total} requests", unit="request") as bar:
        yield lambda: bar.update(1)

"""The forward pass an engine runs, put together from everything that was decided about it."""

from functools import partial
from typing import Any

from engine.core.config import ResolvedConfig
from engine.core.layout import CacheLayout
from engine.run.attention.choice import FLASH_NAMES, AttentionChoice
from engine.run.compiled import compiled_models, is_static
from engine.run.fast.choose import Choice
from engine.run.forward import Forward, ModulesForward
from engine.run.graphs import CudaRecorder, Graphs, Recorder
from engine.run.kv_store import KVStore
from engine.run.shapes import PATHS, Shapes
from engine.run.static_forward import StaticForward
from engine.run.upload import recorded_event


def assemble(
    model: Any,
    choice: Choice,
    attention: AttentionChoice,
    resolved: ResolvedConfig,
    layout: CacheLayout,
    store: KVStore,
    *,
    recorder: Recorder | None = None,
) -> Forward:
    """The forward pass for a cache.

    Args:
        choice: who computes a step where no flash kernels do.
        recorder: records graphs instead of the device.
    """
    compiled = compiled_models(model, resolved)
    static = frozenset(path for path in compiled if is_static(getattr(resolved, f"{path}_compile_config").value))
    if attention.kernels is None:
        if compiled:
            shapes = shapes_for(resolved, layout, static) if static else None
            return ModulesForward(model, layout, store, attention.name, compiled=compiled, shapes=shapes)
        return choice.make(layout, store, attention.name)
    device = store.keys[0].device
    graphed = frozenset(path for path, on in zip(PATHS, resolved.use_cuda_graph.value, strict=True) if on)
    if graphed and recorder is None:
        recorder = CudaRecorder(device)
    return StaticForward(
        model,
        layout,
        store,
        attention.name,
        kernels=attention.kernels,
        shapes=shapes_for(resolved, layout, graphed | static),
        graphs=Graphs(recorder) if recorder is not None else None,
        graphed=graphed,
        compiled=compiled,
        event=partial(recorded_event, device) if device.type == "cuda" else None,
    )


def shapes_for(resolved: ResolvedConfig, layout: CacheLayout, padded: frozenset[str]) -> Shapes:
    """Sizes of an engine's steps; ``padded`` paths are rounded up."""
    full = sum(group.window is None for group in layout.groups)
    longest = layout.num_blocks // max(1, full) * layout.page_size
    if resolved.max_length.value is not None:
        longest = min(longest, resolved.max_length.value)
    # Without tables on the device any step of single tokens is a decode step.
    pages = resolved.max_blocks_per_request.value
    if resolved.attention.value not in FLASH_NAMES:
        pages = -(-longest // layout.page_size)
    return Shapes(
        layout,
        max_tokens=resolved.max_batch_tokens.value,
        max_rows=resolved.max_requests_per_batch.value,
        max_keys=longest,
        decode_pages=pages,
        padded=padded,
        q_interval=resolved.q_padding_interval_size.value,
        kv_interval=resolved.kv_padding_interval_size.value,
    )

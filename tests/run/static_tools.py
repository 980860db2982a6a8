"""Builds the forward pass of the GPU path on the CPU: stand-ins for the kernels, recordings that are calls."""

from collections.abc import Callable
from typing import Any

from engine.core.groups import group_layers
from engine.core.layout import CacheLayout
from engine.run.attention.flash_kernels import FLASH_2, FLASH_3, FlashKernels, kernels_from
from engine.run.facts import inspect_model
from engine.run.graphs import Graphs
from engine.run.kv_store import KVStore
from engine.run.shapes import PATHS, Shapes
from engine.run.static_forward import StaticForward
from tests.run.flash_standins import flash_2, flash_3


def standin(backend: str, page_multiple: int = 1) -> tuple[FlashKernels, dict[str, int]]:
    """Kernels of a backend, and the numbers of their calls."""
    module = flash_2(page_multiple) if backend == FLASH_2 else flash_3()
    assert backend in (FLASH_2, FLASH_3)
    return kernels_from(backend, module, "stand-in"), module.calls


class CallRecorder:
    """Records work by remembering it, as a graph remembers addresses and numbers and nothing else.

    Args:
        fail_at: number of the recording, from 1, that fails.
    """

    def __init__(self, fail_at: int = 0) -> None:
        self.fail_at, self.recorded, self.replayed = fail_at, 0, 0

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.recorded += 1
        if self.recorded == self.fail_at:
            raise RuntimeError("operation not permitted when stream is capturing\nand more lines")
        work()

        def again() -> None:
            self.replayed += 1
            work()

        return again


def static_forward(
    model: Any,
    layout: CacheLayout,
    store: KVStore,
    backend: str = FLASH_2,
    *,
    decode_pages: int = 12,
    graphed: tuple[str, ...] = (),
    recorder: CallRecorder | None = None,
    max_tokens: int = 64,
    max_rows: int = 16,
    q_interval: int = 8,
    kv_interval: int = 16,
    sets: int = 2,
    compiled: Any = None,
    padded: tuple[str, ...] | None = None,
) -> StaticForward:
    shapes = Shapes(
        layout,
        max_tokens=max_tokens,
        max_rows=max_rows,
        max_keys=160,
        decode_pages=decode_pages,
        padded=frozenset(graphed if padded is None else padded),
        q_interval=q_interval,
        kv_interval=kv_interval,
    )
    assert set(graphed) <= set(PATHS)
    return StaticForward(
        model, layout, store, backend,
        kernels=standin(backend)[0], shapes=shapes, sets=sets, compiled=compiled,
        graphs=Graphs(recorder or CallRecorder()) if graphed else None, graphed=frozenset(graphed),
    )  # fmt: skip


def parts_of(model: Any, *, page_size: int = 4, blocks: int = 300, host_blocks: int = 0) -> tuple[CacheLayout, KVStore]:
    """A layout for the model, and a store filled with NaN."""
    facts = inspect_model(model)
    layout = CacheLayout(page_size, group_layers(facts.windows), blocks, host_blocks)
    store = KVStore(layout, facts)
    for tensor in (*store.keys, *store.values):
        tensor.fill_(float("nan"))
    return layout, store


def runner_options(model: Any, *, page_size: int = 4, blocks: int = 300, host_blocks: int = 0, **more: Any) -> Any:
    """For ``tests.run.drive.drive``: a runner over the static forward pass, with the same layout as drive makes."""
    layout, store = parts_of(model, page_size=page_size, blocks=blocks, host_blocks=host_blocks)
    return {"forward": static_forward(model, layout, store, **more), "store": store}

"""MPS and XPU run the portable path: nothing that only CUDA has is reached there."""

import ast
from pathlib import Path

import psutil
import pytest
import torch

import engine
import engine.attach  # all that a run imports is there before anything is taken away
from engine.memory import _device_memory
from engine.run.kv_store import KVStore
from engine.typical import typical_choices
from tests.engine.test_same_text import tokens_of, workload
from tests.run.static_tools import parts_of
from tests.tiny import tiny_model

ROOT = Path(engine.__file__).parent
CUDA_ONLY = {
    "memory.py": {"_device_memory"},
    "models/devices.py": {"available_devices", "choose_device", "free_bytes", "_auto_dtype"},
    "parallel/launch.py": {"join"},
    "run/attention/choice.py": {"usable_kernels"},
    "run/graphs.py": {"CudaRecorder"},
    "run/upload.py": {"recorded_event"},
}
"""Where ``torch.cuda`` is used; every one of them asks for the device first, or is only made for a CUDA device."""


def uses_of_cuda(path: Path) -> set[str]:
    """Top-level functions and classes in which a function or class of ``torch.cuda`` is called."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and "torch.cuda." in ast.unparse(inner.func):
                found.add(getattr(node, "name", "?"))
    return found


def test_cuda_is_called_in_few_places():
    found = {str(path.relative_to(ROOT)): uses_of_cuda(path) for path in ROOT.rglob("*.py")}
    assert {name: uses for name, uses in found.items() if uses} == CUDA_ONLY


@pytest.fixture(scope="module")
def model():
    return tiny_model("gemma3")


@pytest.fixture
def no_cuda(model, monkeypatch):
    """Whatever belongs to CUDA raises. The model comes first: importing transformers reads annotations."""

    def bomb(*_, **__):
        raise AssertionError("this belongs to CUDA")

    for name in ("Event", "Stream", "current_stream", "graph", "graph_pool_handle", "mem_get_info",
                 "memory_reserved", "memory_allocated", "get_device_capability", "synchronize"):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, bomb)
    monkeypatch.setattr(torch.Tensor, "pin_memory", bomb)


@pytest.mark.filterwarnings("ignore:max_requests_per_batch")
@pytest.mark.parametrize("config", [{}, {"use_async_batching": True, "num_blocks": 12, "cpu_offload_space": 0.001}])
def test_a_run_reaches_nothing_of_cuda(model, no_cuda, config):
    found = tokens_of(model, workload(4, 6), forward="modules", page_size=4, safety_margin=0.0, **config)
    assert len(found) >= 6


@pytest.mark.parametrize("device", ["mps", "xpu"])
def test_what_is_decided_there_is_the_portable_path(no_cuda, device):
    config = typical_choices(torch.device(device), torch.bfloat16)
    assert (config.attention.value, config.use_cuda_graph.value) == ("sdpa", (False, False))
    assert config.use_async_batching.value is False and config.max_blocks_per_request.value == 0
    assert config.page_size.value == 256
    assert config.use_cuda_graph.reason == f"needs a CUDA device, this is {device}"
    assert config.notices == ()


def test_memory_is_asked_where_it_is(no_cuda, monkeypatch):
    host = psutil.virtual_memory()
    assert _device_memory(torch.device("mps"), host) == (host.available, host.total)
    asked = []

    def info(device):
        asked.append(device)
        return 5_000, 9_000

    monkeypatch.setattr(torch.xpu, "mem_get_info", info, raising=False)
    monkeypatch.setattr(torch.xpu, "memory_reserved", lambda device: 700, raising=False)
    monkeypatch.setattr(torch.xpu, "memory_allocated", lambda device: 200, raising=False)
    assert _device_memory(torch.device("xpu", 1), host) == (5_500, 9_000)
    assert asked == [torch.device("xpu", 1)]


class _Elsewhere(torch.Tensor):
    """Says that it is on another device than the CPU, where blocks go one by one instead of by an index."""

    @property
    def device(self):
        return torch.device("xpu")

    @staticmethod
    def __torch_function__(func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if func is _Elsewhere.device.fget:
                return torch.device("xpu")
            return func(*args, **(kwargs or {}))


def test_blocks_go_to_the_host_and_back_one_by_one(no_cuda):
    layout, store = parts_of(tiny_model("gemma2"), host_blocks=4)
    _, twin = parts_of(tiny_model("gemma2"), host_blocks=4)
    assert store.host is not None and not store.host.is_pinned()
    generator = torch.Generator().manual_seed(0)
    for one, two in zip((*store.keys, *store.values), (*twin.keys, *twin.values), strict=True):
        one.copy_(torch.randn(one.shape, generator=generator))
        two.copy_(one)
    for name in ("keys", "values"):
        setattr(store, name, [tensor.as_subclass(_Elsewhere) for tensor in getattr(store, name)])
    assert isinstance(store, KVStore) and store.keys[0].device.type == "xpu"
    store._index = lambda ids: torch.tensor(ids)
    for each in (store, twin):
        each._offload(((2, 0), (7, 3)))
        each._restore(((3, 9), (0, 1)))
    for one, two in zip((*store.keys, *store.values), (*twin.keys, *twin.values), strict=True):
        assert torch.equal(torch.Tensor(one), two)
    assert layout.host_blocks == 4

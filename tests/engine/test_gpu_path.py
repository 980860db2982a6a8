"""The engine as it would be on a GPU, on the CPU: decided for a GPU, run by stand-ins for its kernels and graphs."""

import random
from dataclasses import replace
from typing import Any

import pytest

from engine import ContinuousBatchingConfig, Engine
from engine.blueprint import Blueprint, draw
from engine.memory import probe
from engine.run.assemble import assemble
from engine.run.attention.choice import AttentionChoice
from engine.run.attention.flash_kernels import FLASH_2, FLASH_3
from engine.run.facts import inspect_model
from engine.run.fast.choose import Choice
from engine.run.kv_store import KVStore
from engine.run.model_runner import ModelRunner
from tests.engine.test_same_text import BASE, run_wishes, tokens_of, workload
from tests.run.late import LateRunner
from tests.run.static_tools import CallRecorder, standin
from tests.tiny import tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:max_requests_per_batch")


def gpu_blueprint(model: Any, backend: str, **config: Any) -> Blueprint:
    """What would be decided for this model on a CUDA device."""
    facts = replace(probe(model, backend, has_decode_kernel=True), device="cuda", has_graphs=True)
    return draw(model, config=ContinuousBatchingConfig(**{**BASE, **config}), facts=facts)


class GpuRunner:
    """Builds the runner of a GPU blueprint. ``depth`` counts open steps, ``recorder`` recordings."""

    def __init__(self, model: Any, backend: str) -> None:
        self.model, self.backend = model, backend
        self.recorder = CallRecorder()
        self.late: LateRunner | None = None

    def __call__(self, blueprint: Blueprint) -> LateRunner:
        facts, config, layout = inspect_model(self.model), blueprint.config, blueprint.layout
        store = KVStore(layout, facts)
        for tensor in (*store.keys, *store.values):
            tensor.fill_(float("nan"))
        attention = AttentionChoice(self.backend, "", standin(self.backend)[0])
        nobody = Choice("modules", "", "", None)  # type: ignore[arg-type]
        forward = assemble(self.model, nobody, attention, config, layout, store, recorder=self.recorder)
        rows = config.max_requests_per_batch.value
        runner = ModelRunner(self.model, layout, facts, forward=forward, store=store, max_requests_per_batch=rows)
        self.late = LateRunner(runner)
        return self.late


def run(model: Any, wishes: Any, backend: str, arrivals: Any = None, **config: Any) -> tuple[dict, GpuRunner]:
    made = GpuRunner(model, backend)
    engine = Engine(model, runner=made, blueprint=gpu_blueprint(model, backend, **config))
    return run_wishes(engine, wishes, arrivals), made


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def expected(model):
    return tokens_of(model, workload(2, 14))


TIGHT = {"page_size": 4, "num_blocks": 14, "safety_margin": 0.0, "max_batch_tokens": 9}
SETTINGS: dict[str, dict[str, Any]] = {
    "decided": {},
    "in step": {"use_async_batching": False},
    "no graphs": {"use_cuda_graph": False, "use_async_batching": True},
    "narrow tables": {"max_blocks_per_request": 2},
    "no decode path": {"max_blocks_per_request": 0},
    "small intervals": {"q_padding_interval_size": 3, "kv_padding_interval_size": 5},
    "recomputed": TIGHT,
    "offloaded, prefill first": {**TIGHT, "cpu_offload_space": 0.001, "scheduler_type": "prefill_first"},
}


@pytest.mark.parametrize("backend", [FLASH_2, FLASH_3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_everything_together_gives_the_same_tokens(model, expected, backend, setting):
    config = SETTINGS[setting]
    got, made = run(model, workload(2, 14), backend, random.Random(setting), **config)
    assert got == expected
    assert made.late is not None
    assert made.late.most == (1 if config.get("use_async_batching") is False else 2)
    assert bool(made.recorder.replayed) == config.get("use_cuda_graph", True)

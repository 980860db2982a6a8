"""What only a CUDA device can show. Left out by default: ``pytest -m gpu``. Each test names its twin for the CPU."""

import copy
import random
from functools import partial
from typing import Any

import pytest
import torch

from engine import ConfigError, ContinuousBatchingConfig, Engine
from engine.core.groups import group_layers
from engine.core.layout import CacheLayout
from engine.run.attention import eager
from engine.run.attention.choice import usable_kernels
from engine.run.attention.context import Context
from engine.run.attention.flash import attend
from engine.run.attention.flash_kernels import FLASH_2, FLASH_3, FlashKernels, find_kernels
from engine.run.buffers import StepBuffers
from engine.run.facts import inspect_model
from engine.run.kv_store import KVStore
from engine.run.shapes import DECODE, PATHS, VARLEN, Shapes
from engine.run.upload import recorded_event
from tests.engine.test_same_text import BASE
from tests.run.test_flash import HEADS, WIDTH, random_scene
from tests.tiny import VOCAB, reference, tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:max_requests_per_batch"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
PAGE = {FLASH_2: 256, FLASH_3: 16}
NEW = 16


def model_on(dtype: torch.dtype, kind: str = "gemma2") -> Any:
    return tiny_model(kind, head_dim=16).to("cuda", dtype)


def kernels_of(backend: str) -> FlashKernels:
    found = usable_kernels(backend, inspect_model(model_on(torch.bfloat16)), False, None, find_kernels)
    if isinstance(found, str):
        pytest.skip(f"{backend} {found}")
    return found


def prompts_of(kind: str) -> list[list[int]]:
    rng = random.Random(kind)
    return [[rng.randrange(VOCAB) for _ in range(n)] for n in (1, 5, 12, 30)]


def run(model: Any, prompts: list[list[int]], **config: Any) -> tuple[Engine, dict[str, Any]]:
    """The engine, closed, and its outputs by request."""
    engine = Engine(model, config=ContinuousBatchingConfig(**{**BASE, **config}))
    engine.warmup()
    for i, prompt in enumerate(prompts):
        engine.submit(prompt, f"r{i}", max_new_tokens=NEW, logprobs=0)
    engine.run_until_idle()
    outputs = {output.request_id: output for output in engine.take_outputs() if output.is_finished()}
    engine.close()
    assert {output.error for output in outputs.values()} == {None}
    return engine, outputs


@pytest.mark.parametrize("backend", [FLASH_2, FLASH_3])
@pytest.mark.parametrize("padded", [frozenset(), frozenset(PATHS)])
@pytest.mark.parametrize("path", [VARLEN, DECODE])
def test_the_kernels_equal_eager_over_poisoned_pages(backend, padded, path):
    """Twin: test_flash.test_random_tables_windows_and_caps_equal_eager."""
    kernels, rng = kernels_of(backend), random.Random(f"{backend} {path}")
    for _ in range(20):
        window, softcap = rng.choice([None, 1, 3, 8, 17, 300]), rng.choice([None, 4.0])
        layout, store, batch, query = random_scene(rng, window, PAGE[backend], only_decodes=path == DECODE)
        for name in ("keys", "values"):
            rounded = [tensor.bfloat16() for tensor in getattr(store, name)]
            setattr(store, name, [tensor.float() for tensor in rounded])
            setattr(store, f"flat_{name}", [tensor.float().flatten(0, 1) for tensor in rounded])
        query = query.bfloat16()
        want = eager(Context(batch, store, {0: (0, 0)}).layer(0, window), query.float(), 0.4, softcap, None)
        for name in ("keys", "values"):
            moved = [tensor.to("cuda", torch.bfloat16) for tensor in getattr(store, name)]
            setattr(store, name, moved)
            setattr(store, f"flat_{name}", [tensor.flatten(0, 1) for tensor in moved])
        shapes = Shapes(
            layout, max_tokens=160, max_rows=9, max_keys=9 * PAGE[backend], decode_pages=8 if path == DECODE else 0,
            padded=padded, q_interval=8,
        )  # fmt: skip
        device = torch.device("cuda")
        buffers = StepBuffers(layout, device, shapes, event=partial(recorded_event, device))
        shape = shapes.of(batch.starts, batch.lengths, len(batch.samples))
        inputs = buffers.send(buffers.fill(batch, shape))
        asked = torch.cat([query, torch.randn(shape.tokens - len(query), HEADS, WIDTH).bfloat16()]).cuda()
        layer = Context(inputs, store, {0: (0, 0)}, kernels).layer(0, window)
        got = attend(layer, asked, 0.4, softcap, None)[: len(query)].float().cpu()
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("config", [{}, {"use_async_batching": True}, {"cpu_offload_space": 0.001, "num_blocks": 14}])
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_tokens_equal_generate(kind, config):
    """Twin: test_parity, and test_async for a step in flight."""
    model = tiny_model(kind).to("cuda")
    prompts = prompts_of(kind)
    _, outputs = run(model, prompts, **{"page_size": 4, "num_blocks": 200, "safety_margin": 0.0, **config})
    expected = [reference(model, prompt, NEW) for prompt in prompts]
    assert [outputs[f"r{i}"].generated_tokens for i in range(len(prompts))] == expected


def check_against_exact(model: Any, prompts: list[list[int]], outputs: dict[str, Any]) -> None:
    """Every token is, within what bfloat16 rounds away, the likeliest one, and its log-probability is right."""
    exact = copy.deepcopy(model).to("cpu", torch.float32)
    exact.set_attn_implementation("eager")
    for i, prompt in enumerate(prompts):
        output = outputs[f"r{i}"]
        text = torch.tensor([[*prompt, *output.generated_tokens]])
        with torch.no_grad():
            rows = exact(input_ids=text).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        chosen = rows.gather(1, text[0, len(prompt) :, None])[:, 0]
        assert (rows.amax(-1) - chosen).max() < 0.25
        torch.testing.assert_close(torch.tensor(output.logprobs), chosen, rtol=0.05, atol=0.15)


@pytest.mark.parametrize("backend", [FLASH_2, FLASH_3])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"use_cuda_graph": False, "use_async_batching": False},
        {"use_async_batching": False},
        {"max_blocks_per_request": 0},
        {"q_padding_interval_size": 4, "kv_padding_interval_size": 64},
        {"default_compile_level": 1},
    ],
    ids=["decided", "plain", "graphs", "no decode path", "small intervals", "compiled"],
)
def test_everything_together(backend, config):
    """Twin: test_gpu_path.test_everything_together_gives_the_same_tokens; for compilation test_compiled."""
    kernels_of(backend)
    model = model_on(torch.bfloat16)
    model.config._attn_implementation = backend
    prompts = prompts_of("gemma2")
    engine, outputs = run(model, prompts, page_size=PAGE[backend], **config)
    assert engine.config.attention.value == backend
    check_against_exact(model, prompts, outputs)


@pytest.mark.parametrize("backend", ["sdpa", FLASH_2, FLASH_3])
def test_a_launch_waits_for_nothing(backend):
    """Twin: test_graphs.TestBuffers, and every test over a LateRunner."""
    if backend != "sdpa":
        kernels_of(backend)
    model = model_on(torch.bfloat16, "llama")
    model.config._attn_implementation = backend
    config = {"page_size": PAGE.get(backend, 16), "auto_switch_to_flash": False, "use_async_batching": True}
    engine = Engine(model, config=ContinuousBatchingConfig(**{**BASE, **config}))
    engine.warmup()
    options = [{}, {"temperature": 1.0, "top_p": 0.9}, {"temperature": 0.7, "top_k": 5}, {"logit_bias": {3: 1.0}}]
    for i, more in enumerate(options):
        engine.submit([1, 2, 3 + i], f"r{i}", max_new_tokens=12, seed=i, **more)
    for _ in range(4):
        engine.step()  # libraries are set up, and decode steps are recorded
    launch = engine.runner.launch

    def strict(plan: Any) -> Any:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return launch(plan)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    engine.runner.launch = strict  # type: ignore[method-assign]
    engine.run_until_idle()
    outputs = [output for output in engine.take_outputs() if output.is_finished()]
    engine.close()
    assert [output.error for output in outputs] == [None] * len(options)


def test_what_cannot_be_recorded_runs_without(caplog):
    """Twin: test_graphs.test_what_cannot_be_recorded_runs_without."""
    backend = next((name for name in (FLASH_3, FLASH_2) if not isinstance(find_kernels(name), str)), None)
    if backend is None:
        pytest.skip("no flash kernels are installed")
    kernels_of(backend)
    model = model_on(torch.bfloat16, "llama")
    model.config._attn_implementation = backend
    model.model.layers[0].register_forward_pre_hook(lambda module, given: given[0].sum().item() and None)
    prompts = prompts_of("llama")
    _, outputs = run(model, prompts, page_size=PAGE[backend])
    assert "CUDA graphs are switched off" in caplog.text
    check_against_exact(model, prompts, outputs)


def test_the_host_pool_is_page_locked():
    """Twin: test_runner.test_blocks_survive_the_way_to_the_host_and_back."""
    facts = inspect_model(model_on(torch.bfloat16))
    store = KVStore(CacheLayout(16, group_layers(facts.windows), 8, host_blocks=4), facts)
    assert store.host is not None and store.host.is_pinned()


def test_too_much_is_refused_with_the_sum():
    """Twin: test_resolve.TestMemory, and test_gpu_memory for the store."""
    model = model_on(torch.bfloat16)
    with pytest.raises(ConfigError, match=r"KV cache .* free on cuda"):
        Engine(model, config=ContinuousBatchingConfig(num_blocks=10**9))
    facts = inspect_model(model)
    with pytest.raises(MemoryError, match=r"the cache does not fit: .* GiB; lower num_blocks or page_size"):
        KVStore(CacheLayout(256, group_layers(facts.windows), 10**8), facts)


def test_what_is_decided_fits():
    """Twin: test_resolve.TestMemory.test_what_was_decided_fits_into_what_may_be_used."""
    model = model_on(torch.bfloat16)
    free, _ = torch.cuda.mem_get_info()
    before = torch.cuda.memory_allocated()
    engine = Engine(model, config=ContinuousBatchingConfig(max_memory_percent=0.5))
    engine.warmup()
    engine.submit(list(range(50)), "r", max_new_tokens=5)
    engine.run_until_idle()
    assert torch.cuda.max_memory_allocated() - before <= 0.55 * free
    engine.close()

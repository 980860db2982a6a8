"""The flash path against the eager one, with stand-ins for the kernels."""

import importlib
import inspect
import random

import numpy as np
import pytest
import torch

from engine.core.layout import CacheLayout, LayerGroup
from engine.core.request import Request
from engine.run.attention import eager
from engine.run.attention.context import Context
from engine.run.attention.flash import attend
from engine.run.attention.flash_kernels import FLASH_2, FLASH_3, NEEDED, PACKAGES, missing_parameters
from engine.run.batch import Batch
from engine.run.buffers import StepBuffers
from engine.run.facts import ModelFacts
from engine.run.kv_store import KVStore
from engine.run.shapes import DECODE, VARLEN, Shapes
from tests.run.drive import drive, output
from tests.run.flash_standins import flash_2, flash_3
from tests.run.static_tools import runner_options, standin
from tests.tiny import VOCAB, reference, tiny_model

HEADS, KV_HEADS, WIDTH = 6, 2, 8
BACKENDS = (FLASH_2, FLASH_3)
CPU = torch.device("cpu")


def random_scene(rng: random.Random, window: int | None, page: int, *, only_decodes: bool):
    """A ragged batch over a cache in which every slot a kernel has no business with is NaN.

    What lies behind the window is recycled: those table entries are 0, the trash block, which is NaN too.
    """
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    count = rng.randrange(1, 7)
    lengths = [1 if only_decodes or rng.random() < 0.4 else rng.randrange(1, 23) for _ in range(count)]
    starts = [rng.randrange(0, 5 * page) for _ in range(count)]
    pages = [-(-(start + length) // page) for start, length in zip(starts, lengths, strict=True)]
    layout = CacheLayout(page, (LayerGroup(0, window, (0,)),), sum(pages) + 5)
    facts = ModelFacts((window,), HEADS, KV_HEADS, WIDTH, 48, 96, 97, None, torch.float32, CPU, 0)
    store = KVStore(layout, facts)
    for tensor in (*store.keys, *store.values):
        tensor.fill_(float("nan"))
    order = (torch.randperm(sum(pages) + 4, generator=generator) + 1).tolist()
    table = np.zeros((count, max(pages) + 2), np.int32)
    for i in range(count):
        oldest = 0 if window is None else max(0, starts[i] - window + 1)
        for p in range(oldest // page, pages[i]):
            block = table[i, p] = order.pop()
            for store_ in (store.keys[0], store.values[0]):
                written = min(page, starts[i] + lengths[i] - p * page)
                store_[block, :written] = torch.randn(written, KV_HEADS, WIDTH, generator=generator)
    tokens = sum(lengths)
    batch = Batch(
        layout, CPU, np.zeros(tokens, np.int64), np.array(starts), np.array(lengths), [table],
        np.ones(count, bool),
    )  # fmt: skip
    query = torch.randn(tokens, HEADS, WIDTH, generator=generator)
    return layout, store, batch, query


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("padded", [frozenset(), frozenset((VARLEN, DECODE))])
@pytest.mark.parametrize("path", [VARLEN, DECODE])
def test_random_tables_windows_and_caps_equal_eager(backend, padded, path):
    rng = random.Random(f"{backend} {sorted(padded)} {path}")
    kernels, calls = standin(backend)
    for _ in range(60):
        window = rng.choice([None, None, 1, 3, 8, 17])
        softcap = rng.choice([None, 4.0])
        page = rng.choice([4, 8, 16])
        layout, store, batch, query = random_scene(rng, window, page, only_decodes=path == DECODE)
        decode_pages = 6 if path == DECODE else 0
        shapes = Shapes(
            layout, max_tokens=160, max_rows=9, max_keys=9 * page, decode_pages=decode_pages, padded=padded,
            q_interval=rng.choice([1, 8]), kv_interval=rng.choice([1, 32]),
        )  # fmt: skip
        buffers = StepBuffers(layout, CPU, shapes)
        for tensor in (*buffers._device.values(), *(t for host in buffers._host for t in host.values())):
            tensor.fill_(7)  # leftovers of steps before
        shape = shapes.of(batch.starts, batch.lengths, len(batch.samples))
        inputs = buffers.send(buffers.fill(batch, shape))
        assert shape.path == path
        want = eager(Context(batch, store, {0: (0, 0)}).layer(0, window), query, 0.4, softcap, None)
        padding = torch.randn(shape.tokens - len(query), HEADS, WIDTH)
        layer = Context(inputs, store, {0: (0, 0)}, kernels).layer(0, window)
        got = attend(layer, torch.cat([query, padding]), 0.4, softcap, None)[: len(query)]
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert sum(calls.values()) == 60
    used = {FLASH_2: {VARLEN: "flash_attn_varlen_func", DECODE: "flash_attn_with_kvcache"},
            FLASH_3: {VARLEN: "varlen", DECODE: "equal lengths"}}[backend][path]  # fmt: skip
    assert calls[used] == 60


def test_the_standins_are_strict():
    """A NaN inside a row's keys shows even behind the mask, and rows of nobody hold NaN."""
    module = flash_2(1)
    keys = torch.zeros(2, 4, 1, 8)
    keys[1, 0] = float("nan")
    ends = torch.tensor([0, 1], dtype=torch.int32)
    out = module.flash_attn_varlen_func(
        torch.ones(2, 1, 8), keys, keys, ends, 3 * ends, 1, 3, causal=True, window_size=(0, 0),
        block_table=torch.tensor([[1]], dtype=torch.int32),
    )  # fmt: skip
    assert out.isnan().all()
    with pytest.raises(AssertionError, match="block size"):
        standin(FLASH_2, 256)[0].varlen(
            torch.ones(1, 1, 8), keys, keys, ends, ends, 1, 1, block_table=torch.tensor([[1]], dtype=torch.int32)
        )


def test_sinks_are_refused():
    from engine.core.errors import EngineError

    with pytest.raises(EngineError, match="sinks"):
        attend(None, torch.zeros(1, 1, 8), 1.0, None, torch.zeros(1))


KINDS = ("llama", "mistral", "gemma2", "gemma3")
NEW = 24


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    model = tiny_model(request.param)
    rng = random.Random(request.param)
    prompts = [[rng.randrange(VOCAB) for _ in range(n)] for n in (1, 5, 12, 30)]
    return model, prompts, [reference(model, prompt, NEW) for prompt in prompts]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("decode_pages", [0, 3, 20])
def test_models_equal_generate(case, backend, depth, decode_pages):
    """3 pages of 4 tokens are too narrow for long requests, so decode steps change paths on the way."""
    model, prompts, answers = case
    options = runner_options(model, backend=backend, decode_pages=decode_pages)
    requests = [Request(f"r{i}", tuple(prompt), max_new_tokens=NEW) for i, prompt in enumerate(prompts)]
    ended = drive(model, requests, budget=17, depth=depth, backend=backend, runner_options=options)
    assert [output(ended[f"r{i}"]) for i in range(len(prompts))] == answers


def test_pages_of_256_tokens(case):
    model, prompts, answers = case
    options = runner_options(model, page_size=256, blocks=60)
    requests = [Request(f"r{i}", tuple(prompt), max_new_tokens=NEW) for i, prompt in enumerate(prompts)]
    ended = drive(model, requests, page_size=256, blocks=60, budget=20, runner_options=options)
    assert [output(ended[f"r{i}"]) for i in range(len(prompts))] == answers


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_standins_have_the_parameters_that_are_used(backend):
    module = flash_2() if backend == FLASH_2 else flash_3()
    assert missing_parameters(backend, module) == ""
    for function in NEEDED[backend]:
        whole = vars(module).pop(function)
        assert missing_parameters(backend, module) == f"it has no {function}"
        setattr(module, function, lambda q, k: None)
        assert "block_table" in missing_parameters(backend, module) or "page_table" in missing_parameters(
            backend, module
        )
        setattr(module, function, whole)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_standins_have_the_parameters_of_the_installed_kernels(backend):
    try:
        installed = importlib.import_module(PACKAGES[backend])
    except ImportError as error:
        pytest.skip(f"{PACKAGES[backend]} cannot be imported: {error}")
    ours = flash_2() if backend == FLASH_2 else flash_3()
    for function in NEEDED[backend]:
        theirs = inspect.signature(getattr(installed, function)).parameters
        mine = inspect.signature(getattr(ours, function)).parameters
        assert list(mine) == list(theirs)
        assert [p.default for p in mine.values()] == [p.default for p in theirs.values()]

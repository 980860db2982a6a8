"""What the tests of the fast path share."""

import random
from typing import Any

import numpy as np
import pytest

from engine.core.groups import group_layers
from engine.core.layout import CacheLayout
from engine.core.request import Request, SamplingParams
from engine.run.batch import Batch
from engine.run.facts import inspect_model
from engine.run.fast.build import BuildError, load_kernels
from engine.run.fast.choose import choose_forward
from engine.run.kv_store import KVStore
from tests.run.drive import drive, output
from tests.tiny import VOCAB, tiny_model

PAGE = 8
"""Page size of ``logits_of``."""
KINDS = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3")


def need_kernels(*dtypes: Any) -> None:
    """Skips the test where the kernels cannot be compiled."""
    for dtype in dtypes:
        try:
            load_kernels(dtype)
        except BuildError as error:
            pytest.skip(f"no kernels: {error}")


def with_biases(model: Any) -> Any:
    """Biases start as zeros, which would hide a bias that is left out."""
    import torch

    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Linear) and module.bias is not None:
                module.bias.copy_(0.3 * torch.randn(module.bias.shape, generator=generator))
    return model


def model_of(kind: str, **overrides: Any) -> Any:
    return with_biases(tiny_model(kind, **overrides))


def prompts_of(kind: str, lengths: tuple[int, ...]) -> list[list[int]]:
    rng = random.Random(kind)
    return [[rng.randrange(VOCAB) for _ in range(n)] for n in lengths]


def run(
    model: Any,
    prompts: list[list[int]],
    new: int,
    wanted: str,
    *,
    page_size: int = 4,
    blocks: int = 300,
    host_blocks: int = 0,
    sampling: SamplingParams | None = None,
    **options: Any,
) -> tuple[list[list[int]], dict[str, Any]]:
    """The new tokens of every prompt with one kind of forward pass, and the sequences by name."""
    facts = inspect_model(model)
    layout = CacheLayout(page_size, group_layers(facts.windows), blocks, host_blocks)
    store = KVStore(layout, facts)
    forward = choose_forward(model, wanted).make(layout, store, "sdpa")
    how = sampling or SamplingParams()
    requests = [Request(f"r{i}", tuple(prompt), max_new_tokens=new, sampling=how) for i, prompt in enumerate(prompts)]
    ended = drive(
        model,
        requests,
        page_size=page_size,
        blocks=blocks,
        host_blocks=host_blocks,
        runner_options={"forward": forward, "store": store},
        **options,
    )
    return [output(ended[f"r{i}"]) for i in range(len(prompts))], ended


def logits_of(model: Any, prompts: list[list[int]], wanted: str, chunk: int) -> list[Any]:
    """Logits of the last token of every chunk, teacher-forced: per prompt float32 [chunks, vocabulary]."""
    import torch

    facts = inspect_model(model)
    groups = group_layers(facts.windows)
    pages = max(len(prompt) for prompt in prompts) // PAGE + 1
    layout = CacheLayout(PAGE, groups, len(prompts) * pages * len(groups))
    store = KVStore(layout, facts)
    for tensor in (*store.keys, *store.values):
        tensor.fill_(float("nan"))
    order = np.random.default_rng(0).permutation(layout.num_blocks).astype(np.int32) + 1
    tables = order.reshape(len(groups), len(prompts), pages)
    forward = choose_forward(model, wanted).make(layout, store, "sdpa")
    found: list[list[Any]] = [[] for _ in prompts]
    try:
        for start in range(0, max(map(len, prompts)), chunk):
            live = [i for i, prompt in enumerate(prompts) if len(prompt) > start]
            pieces = [prompts[i][start : start + chunk] for i in live]
            batch = Batch(
                layout,
                facts.device,
                np.array([token for piece in pieces for token in piece]),
                np.full(len(live), start, np.int64),
                np.array([len(piece) for piece in pieces], np.int64),
                [np.ascontiguousarray(table[live]) for table in tables],
                np.ones(len(live), bool),
            )
            with torch.inference_mode():
                rows = forward(batch)
            for i, row in zip(live, rows, strict=True):
                found[i].append(row.float().clone())  # the next step writes over it
    finally:
        forward.close()
    return [torch.stack(rows) for rows in found]

"""bfloat16: every logit within tolerance of the exact one, and the weights come back as they were."""

import gc

import numpy as np
import pytest
import torch

from engine.core.errors import ConfigError
from engine.core.groups import group_layers
from engine.core.layout import CacheLayout
from engine.run.batch import Batch
from engine.run.facts import inspect_model
from engine.run.fast.choose import choose_forward
from engine.run.kv_store import KVStore
from tests.run.fast_tools import KINDS, model_of, need_kernels, prompts_of

PAGE = 8


def logits_of(model, prompts: list[list[int]], wanted: str, chunk: int) -> list[torch.Tensor]:
    """Logits of the last token of every chunk, teacher-forced: per prompt float32 [chunks, vocabulary]."""
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
    found: list[list[torch.Tensor]] = [[] for _ in prompts]
    try:
        for start in range(0, max(map(len, prompts)), chunk):
            live = [i for i, prompt in enumerate(prompts) if len(prompt) > start]
            pieces = [prompts[i][start : start + chunk] for i in live]
            batch = Batch(
                layout,
                facts.device,
                torch.tensor([token for piece in pieces for token in piece]),
                np.full(len(live), start, np.int64),
                np.array([len(piece) for piece in pieces], np.int64),
                [np.ascontiguousarray(table[live]) for table in tables],
                np.ones(len(live), bool),
            )
            with torch.inference_mode():
                rows = forward(batch)
            for i, row in zip(live, rows, strict=True):
                found[i].append(row.float())
    finally:
        forward.close()
    return [torch.stack(rows) for rows in found]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 5, 64])
@pytest.mark.parametrize("head_dim", [8, 64])
def test_bfloat16_logits_are_as_near_to_the_truth_as_those_of_the_modules(kind, chunk, head_dim):
    need_kernels(torch.bfloat16)
    model = model_of(kind, head_dim=head_dim).to(torch.bfloat16)
    prompts = prompts_of(kind, (3, 30, 41))
    got = logits_of(model, prompts, "fast", chunk)
    theirs = logits_of(model, prompts, "modules", chunk)
    exact = logits_of(model.float(), prompts, "modules", chunk)
    for ours, modules, truth in zip(got, theirs, exact, strict=True):
        tolerance = 2 * (modules - truth).abs().max() + 0.05
        assert (ours - truth).abs().max() <= tolerance
        best = truth.topk(2).values
        clear = best[:, 0] - best[:, 1] > 2 * tolerance
        assert torch.equal(ours.argmax(-1)[clear], truth.argmax(-1)[clear])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 7])
def test_float32_logits_are_those_of_the_modules(kind, chunk):
    need_kernels(torch.float32)
    model, prompts = model_of(kind, head_dim=64), prompts_of(kind, (3, 30))
    for ours, modules in zip(
        logits_of(model, prompts, "fast", chunk), logits_of(model, prompts, "modules", chunk), strict=True
    ):
        assert torch.allclose(ours, modules, rtol=1e-4, atol=2e-4)


@pytest.fixture(params=["fast", "packed"])
def held(request):
    """(model, its weights before, a forward pass that holds it)."""
    if request.param == "fast":
        need_kernels(torch.float32)
    model = model_of("gemma3", tie_word_embeddings=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    facts = inspect_model(model)
    layout = CacheLayout(PAGE, group_layers(facts.windows), 12)
    return model, before, choose_forward(model, request.param).make(layout, KVStore(layout, facts), "sdpa")


def same(model, before) -> bool:
    return all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_close_brings_every_weight_back_in_the_same_parameters(held):
    model, before, forward = held
    parameters = dict(model.named_parameters())
    assert any(p.numel() == 0 for p in parameters.values()), "nothing was moved: memory would double"
    forward.close()
    assert all(dict(model.named_parameters())[name] is p for name, p in parameters.items())
    assert same(model, before)
    assert not any("forward" in vars(module) for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_taken_twice_the_weights_may_change_in_between(held):
    model, before, forward = held
    forward.close()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    forward.take()
    forward.close()
    assert all(
        torch.equal(tensor, 2 * before[name]) for name, tensor in model.state_dict().items() if "inv_freq" not in name
    )


def test_a_pass_from_outside_finds_the_weights(held):
    model, before, forward = held
    ids = torch.tensor([[1, 2, 3]])
    got = model(input_ids=ids).logits
    forward.close()
    assert same(model, before)
    assert torch.equal(got, model(input_ids=ids).logits)


def test_state_dict_finds_the_weights(held):
    model, before, forward = held
    assert same(model, before)
    forward.close()


def test_dropped_without_close_nothing_is_lost(held):
    model, before, forward = held
    del forward, held
    gc.collect()
    assert same(model, before)


def test_a_second_engine_on_the_model_is_told(held):
    model, _, forward = held
    if type(forward).__name__ == "NativeForward":
        with pytest.raises(ConfigError, match="another engine"):
            choose_forward(model, "fast")
    forward.close()

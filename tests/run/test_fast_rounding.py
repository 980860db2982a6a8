"""bfloat16: every logit within tolerance of the exact one, and the weights come back as they were."""

import gc

import pytest
import torch

from engine.core.errors import ConfigError
from engine.core.groups import group_layers
from engine.core.layout import CacheLayout
from engine.run.facts import inspect_model
from engine.run.fast.choose import choose_forward
from engine.run.kv_store import KVStore
from tests.run.fast_tools import KINDS, PAGE, logits_of, model_of, need_kernels, prompts_of


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

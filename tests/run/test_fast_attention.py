"""Attention over texts longer than one run of packed keys, one tile of queries and one window.

Every slot nobody has written holds NaN, and the blocks of the texts lie scattered among each other.
"""

import pytest
import torch

from tests.run.fast_tools import logits_of, model_of, need_kernels, prompts_of

LONG = {"head_dim": 64, "max_position_embeddings": 2048}
SHAPES = [
    pytest.param("llama", {}, id="full"),
    pytest.param("mistral", {"sliding_window": 300}, id="a window longer than a run"),
    pytest.param("mistral", {"sliding_window": 5}, id="a window of a few tokens"),
    pytest.param("gemma2", {"sliding_window": 100}, id="windows, caps"),
    pytest.param("gemma3", {"sliding_window": 257}, id="windows, norms of heads"),
    pytest.param("qwen2", {"num_attention_heads": 10, "num_key_value_heads": 2, "hidden_size": 40}, id="five a group"),
    pytest.param("llama", {"num_key_value_heads": 4, "head_dim": 80}, id="no groups, heads of 80"),
    pytest.param("llama", {"head_dim": 10}, id="heads of 10"),
]
TEXTS = (701, 3, 290)
"""Lengths of texts that run together; none ends where a chunk, a run or a page does."""


def case(kind, overrides):
    model = model_of(kind, **{**LONG, **overrides})
    return model, prompts_of(kind, TEXTS)


@pytest.mark.parametrize(("kind", "overrides"), SHAPES)
@pytest.mark.parametrize("chunk", [40, 256, 257, 701])
def test_float32_logits_are_those_of_the_modules(kind, overrides, chunk):
    need_kernels(torch.float32)
    model, prompts = case(kind, overrides)
    ours, modules = (logits_of(model, prompts, wanted, chunk) for wanted in ("fast", "modules"))
    for mine, theirs in zip(ours, modules, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(("kind", "overrides"), SHAPES)
@pytest.mark.parametrize("chunk", [64, 257])
def test_bfloat16_logits_are_as_near_to_the_truth_as_those_of_the_modules(kind, overrides, chunk):
    need_kernels(torch.bfloat16)
    model, prompts = case(kind, overrides)
    model = model.to(torch.bfloat16)
    ours, modules = (logits_of(model, prompts, wanted, chunk) for wanted in ("fast", "modules"))
    exact = logits_of(model.float(), prompts, "modules", chunk)
    for mine, theirs, truth in zip(ours, modules, exact, strict=True):
        assert (mine - truth).abs().max() <= 2 * (theirs - truth).abs().max() + 0.05


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_changes_nothing(threads):
    """Tiles depend on the threads; what a query sees and in which order its keys go by does not, except in windows."""
    need_kernels(torch.float32)
    model, prompts = case("llama", {})
    want = logits_of(model, prompts, "fast", 257)
    torch.set_num_threads(threads)
    try:
        got = logits_of(model, prompts, "fast", 257)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_each_text_is_answered_as_if_it_were_alone():
    need_kernels(torch.float32)
    model, prompts = case("gemma2", {"sliding_window": 100})
    together = logits_of(model, prompts, "fast", 257)
    for index, prompt in enumerate(prompts):
        (alone,) = logits_of(model, [prompt], "fast", 257)
        assert torch.allclose(alone, together[index], rtol=1e-4, atol=2e-4)

"""The fast and the packed forward pass give the tokens of ``model.generate``, in float32, whatever the cache is like.

The cache is full of NaN before anything is written, and so is every block nobody owns before every step.
"""

import pytest
import torch

from engine.core.groups import group_layers
from engine.run.facts import inspect_model
from tests.run.fast_tools import KINDS, model_of, need_kernels, prompts_of, run
from tests.tiny import reference

NEW = 30
LENGTHS = (1, 4, 7, 12, 25)


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    model = model_of(request.param)
    prompts = prompts_of(request.param, LENGTHS)
    return model, prompts, [reference(model, prompt, NEW) for prompt in prompts]


@pytest.fixture(params=["fast", "packed"])
def wanted(request):
    if request.param == "fast":
        need_kernels(torch.float32)
    return request.param


@pytest.mark.parametrize("page_size", [4, 16])
@pytest.mark.parametrize("budget", [6, 17, 512])
def test_tokens_equal_generate(case, wanted, page_size, budget):
    model, prompts, answers = case
    assert run(model, prompts, NEW, wanted, page_size=page_size, budget=budget)[0] == answers


def test_tokens_equal_generate_with_a_step_in_flight(case, wanted):
    model, prompts, answers = case
    assert run(model, prompts, NEW, wanted, budget=11, depth=1)[0] == answers


@pytest.mark.parametrize("host_blocks", [0, 200])
def test_tokens_equal_generate_under_preemption(case, wanted, host_blocks):
    model, prompts, answers = case
    blocks = sum(14 if group.window is None else 6 for group in group_layers(inspect_model(model).windows))
    got, ended = run(model, prompts, NEW, wanted, budget=12, blocks=blocks, host_blocks=host_blocks)
    assert got == answers
    assert sum(seq.preemptions for seq in ended.values()) > 0


def test_tokens_equal_generate_with_a_warm_prefix_cache(case, wanted):
    model, prompts, answers = case
    got, ended = run(model, prompts * 2, NEW, wanted, budget=30, settings={"max_requests_per_batch": 2})
    assert got == answers * 2
    assert sum(seq.cached_tokens for seq in ended.values()) > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param({"head_dim": 64}, id="heads that fill whole registers"),
        pytest.param({"head_dim": 80}, id="heads that do not"),
        pytest.param(
            {"num_attention_heads": 14, "num_key_value_heads": 2, "hidden_size": 56}, id="seven heads a group"
        ),
        pytest.param({"num_attention_heads": 4, "num_key_value_heads": 4}, id="no groups"),
        pytest.param({"hidden_size": 36, "intermediate_size": 70, "head_dim": 10}, id="sizes that divide by nothing"),
        pytest.param({"tie_word_embeddings": True}, id="tied head"),
    ],
)
def test_tokens_equal_generate_for_all_kinds_of_shapes(kind, shape):
    need_kernels(torch.float32)
    model = model_of(kind, **shape)
    prompts = prompts_of(kind, (2, 19))
    answers = [reference(model, prompt, 12) for prompt in prompts]
    assert run(model, prompts, 12, "fast", budget=13)[0] == answers


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_long_texts_are_split_and_joined(kind, threads):
    """Longer than what one tile, one run of packed keys and one thread's share of a text hold."""
    need_kernels(torch.float32)
    window = {} if kind == "llama" else {"sliding_window": 300}
    model = model_of(kind, head_dim=64, max_position_embeddings=2048, **window)
    prompts = prompts_of(kind, (700, 3))
    answers = [reference(model, prompt, 8) for prompt in prompts]
    torch.set_num_threads(threads)
    assert run(model, prompts, 8, "fast", page_size=16, budget=512, blocks=400)[0] == answers


@pytest.mark.parametrize(
    "rope",
    [
        {
            "rope_type": "llama3",
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        {"rope_type": "yarn", "original_max_position_embeddings": 64},
        {"rope_type": "linear"},
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_scaled_rotary_embeddings(rope):
    need_kernels(torch.float32)
    model = model_of("llama", rope_parameters={"rope_theta": 10000.0, "factor": 4.0, **rope})
    prompts = prompts_of("llama", (40,))
    assert run(model, prompts, 20, "fast")[0] == [reference(model, prompts[0], 20)]


@pytest.mark.weights
@pytest.mark.parametrize("wanted", ["fast", "packed"])
@pytest.mark.parametrize(("page_size", "budget"), [(16, 24), (256, 512)])
def test_smollm2_equals_generate(smollm2_dir, wanted, page_size, budget):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if wanted == "fast":
        need_kernels(torch.float32)
    model = AutoModelForCausalLM.from_pretrained(smollm2_dir, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir)
    texts = ("The capital of France is", "def fibonacci(n):", "Once upon a time there was a small boat that")
    prompts = [tokenizer(text)["input_ids"] for text in texts]
    answers = [reference(model, prompt, 24, eos_token_id=None, pad_token_id=0) for prompt in prompts]
    assert run(model, prompts, 24, wanted, page_size=page_size, budget=budget, blocks=60, spoil=None)[0] == answers

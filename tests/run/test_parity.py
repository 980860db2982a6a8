"""Same tokens as ``model.generate`` gives for each prompt alone, in float32, whatever cache and chunks look like."""

import copy
import random

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from engine.core.request import Request
from engine.run.forward import ModulesForward
from tests.run.drive import drive, output
from tests.tiny import VOCAB, reference, tiny_model

KINDS = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3")
NEW = 30
"""Long enough for windows of 6 tokens to wrap several times over pages of 4."""


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    """(model, prompts, what generate answers)."""
    model = tiny_model(request.param)
    rng = random.Random(request.param)
    prompts = [[rng.randrange(VOCAB) for _ in range(n)] for n in (1, 4, 7, 12, 25)]
    return model, prompts, [reference(model, prompt, NEW) for prompt in prompts]


def requests_of(prompts: list[list[int]]) -> list[Request]:
    return [Request(f"r{i}", tuple(prompt), max_new_tokens=NEW) for i, prompt in enumerate(prompts)]


def check(case, **options) -> dict:
    model, prompts, answers = case
    ended = drive(model, requests_of(prompts), **options)
    assert [output(ended[f"r{i}"]) for i in range(len(prompts))] == answers
    return ended


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("page_size", [4, 16])
@pytest.mark.parametrize("budget", [6, 17, 512])
def test_tokens_equal_generate(case, backend, page_size, budget):
    check(case, backend=backend, page_size=page_size, budget=budget)


@pytest.mark.parametrize("depth", [0, 1])
def test_tokens_equal_generate_when_prompts_come_first(case, depth):
    check(case, budget=9, depth=depth, settings={"policy": "prefill_first"})


def test_tokens_equal_generate_with_a_step_in_flight(case):
    check(case, budget=11, depth=1)


@pytest.mark.parametrize("depth", [0, 1])
def test_tokens_equal_generate_when_caches_are_dropped_and_computed_again(case, depth):
    ended = check(case, budget=12, depth=depth, blocks=_tight(case[0]))
    assert sum(seq.preemptions for seq in ended.values()) > 0


@pytest.mark.parametrize("depth", [0, 1])
def test_tokens_equal_generate_when_caches_move_to_the_host_and_back(case, depth):
    ended = check(case, budget=12, depth=depth, blocks=_tight(case[0]), host_blocks=200)
    assert sum(seq.preemptions for seq in ended.values()) > 0
    assert all(seq.recomputed == 0 for seq in ended.values())


def test_tokens_equal_generate_with_a_warm_prefix_cache(case):
    model, prompts, answers = case
    twice = [Request(f"r{i}", tuple(prompt), max_new_tokens=NEW) for i, prompt in enumerate(prompts * 2)]
    ended = drive(model, twice, budget=30, settings={"max_requests_per_batch": 2})
    assert [output(ended[f"r{i}"]) for i in range(len(twice))] == answers * 2
    assert sum(seq.cached_tokens for seq in ended.values()) > 0


def _tight(model) -> int:
    """The smallest pool the longest request fits in: 14 pages of full layers, 6 of windows with a chunk of 12."""
    from engine.core.groups import group_layers
    from engine.run.facts import inspect_model

    return sum(14 if group.window is None else 6 for group in group_layers(inspect_model(model).windows))


@pytest.mark.parametrize("prompt_length", range(1, 25))
def test_every_prompt_length_around_a_window(prompt_length):
    """Prompts whose length is 0, 1 and window-1 beyond a multiple of the window are among these."""
    model = tiny_model("mistral")
    prompt = [(7 * i + prompt_length) % VOCAB for i in range(prompt_length)]
    ended = drive(model, [Request("r", tuple(prompt), max_new_tokens=14)], budget=10, blocks=6)
    assert output(ended["r"]) == reference(model, prompt, 14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_one_plain_pass(monkeypatch, kind, backend, dtype):
    """Every row the sampler gets, against the model's own pass over the whole text in float32."""
    rows: list[torch.Tensor] = []
    inner = ModulesForward.__call__

    def spy(self, batch):
        logits = inner(self, batch)
        rows.extend(logits.float().clone())
        return logits

    monkeypatch.setattr(ModulesForward, "__call__", spy)
    exact = tiny_model(kind)
    model = copy.deepcopy(exact).to(dtype)
    exact.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    prompt = [(11 * i + 3) % VOCAB for i in range(19)]
    ended = drive(model, [Request("r", tuple(prompt), max_new_tokens=12)], backend=backend, budget=7)
    with torch.no_grad():
        expected = exact(input_ids=torch.tensor([ended["r"].tokens[:-1]])).logits[0, len(prompt) - 1 :]
    assert len(rows) == 12
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    assert (torch.stack(rows) - expected).abs().max() <= tolerance * expected.abs().max()


OTHERS: dict[str, dict] = {
    "gpt2": {"num_key_value_heads": 4},  # positions are learned, keys and values come from one projection
    "gpt_neox": {"num_key_value_heads": 4},  # rotates a part of each head
    "gpt_oss": {"head_dim": 8, "sliding_window": 6, "num_local_experts": 4, "num_experts_per_tok": 2},  # sinks
    "cohere2": {"sliding_window": 6, "num_hidden_layers": 4},  # no positions in its full layers
    "exaone4": {"sliding_window": 6, "num_hidden_layers": 4},
    "olmo2": {},  # norms queries and keys over all heads
    "phi3": {"sliding_window": 6},
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_other_architectures_equal_generate(kind, backend):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {"vocab_size": VOCAB, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = AutoConfig.for_model(
        kind, **{**sizes, **special, "num_key_value_heads": 2, "initializer_range": 0.3, **OTHERS[kind]}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    prompts = [[5, 9, 3], list(range(1, 18))]
    ended = drive(
        model, [Request(f"r{i}", tuple(p), max_new_tokens=14) for i, p in enumerate(prompts)], backend=backend, budget=8
    )
    assert [output(ended[f"r{i}"]) for i in range(2)] == [reference(model, prompt, 14) for prompt in prompts]


@pytest.fixture(scope="module")
def smollm2(smollm2_dir):
    """(model, prompts, what generate answers in 8 tokens)."""
    model = AutoModelForCausalLM.from_pretrained(smollm2_dir, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir)
    texts = ("The capital of France is", "def fibonacci(n):", "Once upon a time there was a small boat that")
    prompts = [tokenizer(text)["input_ids"] for text in texts]
    torch.set_num_threads(2)
    return model, prompts, [reference(model, prompt, 8, eos_token_id=None, pad_token_id=0) for prompt in prompts]


@pytest.mark.weights
@pytest.mark.parametrize(("backend", "page_size", "budget"), [("eager", 16, 256), ("sdpa", 4, 24), ("sdpa", 16, 256)])
def test_smollm2_equals_generate(smollm2, backend, page_size, budget):
    torch.set_num_threads(2)
    model, prompts, answers = smollm2
    requests = [Request(f"r{i}", tuple(prompt), max_new_tokens=8) for i, prompt in enumerate(prompts)]
    ended = drive(model, requests, backend=backend, page_size=page_size, budget=budget, spoil=None)
    assert [output(ended[f"r{i}"]) for i in range(len(prompts))] == answers

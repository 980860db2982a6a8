"""Same text always: with a seed, a request gives the same tokens in any company, order and configuration."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine import ContinuousBatchingConfig, Engine
from engine.core.invariants import check
from tests.tiny import VOCAB, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:max_requests_per_batch")

BASE = {"page_size": 8, "num_blocks": 64, "max_batch_tokens": 64, "max_requests_per_batch": 16}


@dataclass(frozen=True)
class Wish:
    """One request of a workload."""

    name: str
    prompt: list[int]
    options: dict[str, Any] = field(default_factory=dict)


def workload(seed: int, count: int) -> list[Wish]:
    """Requests of every kind; a third of them begin alike."""
    rng = random.Random(seed)
    shared = [rng.randrange(VOCAB) for _ in range(13)]
    wishes = []
    for n in range(count):
        own = [rng.randrange(VOCAB) for _ in range(rng.randrange(1, 24))]
        options: dict[str, Any] = {"max_new_tokens": rng.randrange(3, 14), "seed": rng.randrange(1000)}
        if rng.random() < 0.7:
            options |= {"temperature": rng.choice([0.5, 1.0, 1.5])}
            options |= rng.choice([{}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.02}])
        options |= rng.choice(
            [{}, {}, {"repetition_penalty": 1.3}, {"presence_penalty": 0.5}, {"frequency_penalty": 0.4},
             {"no_repeat_ngram_size": 2}, {"min_new_tokens": 3, "eos_token_id": [1, 2, 3, 4, 5]}]
        )  # fmt: skip
        if rng.random() < 0.2:
            options["num_return_sequences"] = 2
        wishes.append(Wish(f"w{n}", shared + own if rng.random() < 0.35 else own, options))
    return wishes


def tokens_of(
    model, wishes, *, arrivals: random.Random | None = None, runner: Any = None, **config
) -> dict[str, list[int]]:
    """Runs wishes together (spread over the steps when ``arrivals`` is given); tokens by output id."""
    engine = Engine(model, config=ContinuousBatchingConfig(**{**BASE, **config}), runner=runner)
    return run_wishes(engine, wishes, arrivals)


def run_wishes(engine: Engine, wishes: Iterable[Wish], arrivals: random.Random | None = None) -> dict[str, list[int]]:
    """The same on an engine, which is closed afterwards."""
    try:
        for wish in wishes:
            engine.submit(wish.prompt, wish.name, **wish.options)
            while arrivals is not None and arrivals.random() < 0.5:
                engine.step()
        engine.run_until_idle()
        assert check(engine.scheduler) == []
        outputs = [output for output in engine.take_outputs() if output.is_finished()]
        assert all(output.error is None for output in outputs)
        return {output.request_id: output.generated_tokens for output in outputs}
    finally:
        engine.close()


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def alone(model):
    """Each wish by itself, with an empty cache."""
    found: dict[str, list[int]] = {}
    for wish in workload(0, 14):
        found |= tokens_of(model, [wish])
    return found


VARIATIONS = {
    "together": {},
    "small pages": {"page_size": 4, "num_blocks": 128},
    "large pages": {"page_size": 32},
    "small chunks": {"max_batch_tokens": 5},
    "prefill first": {"scheduler_type": "prefill_first", "max_batch_tokens": 16},
    "async": {"use_async_batching": True, "max_batch_tokens": 16},
    "no sharing": {"allow_block_sharing": False},
    "few rows": {"max_requests_per_batch": 2},
    "recomputed": {"page_size": 4, "num_blocks": 12, "safety_margin": 0.0},
    "offloaded": {"page_size": 4, "num_blocks": 12, "safety_margin": 0.0, "cpu_offload_space": 0.001},
    "tight and async": {"page_size": 4, "num_blocks": 12, "use_async_batching": True, "max_batch_tokens": 7},
    "out of order": {"page_size": 4, "num_blocks": 14, "skip_limit": 3},
}


@pytest.mark.parametrize("variation", VARIATIONS)
def test_the_text_of_a_request_depends_on_nothing_but_itself(model, alone, variation):
    rng = random.Random(variation)
    wishes = workload(0, 14)
    rng.shuffle(wishes)
    assert tokens_of(model, wishes, arrivals=rng, **VARIATIONS[variation]) == alone


@pytest.mark.parametrize("order", range(5))
def test_a_seed_beside_requests_without_one(model, order):
    wishes = [Wish("seeded", [3, 1, 4, 1, 5], {"max_new_tokens": 12, "temperature": 1.0, "seed": 42})]
    wishes += [Wish(f"free{n}", [9 + n] * (n + 3), {"max_new_tokens": 9, "temperature": 1.0}) for n in range(5)]
    expected = tokens_of(model, wishes[:1])["seeded"]
    random.Random(order).shuffle(wishes)
    assert tokens_of(model, wishes, page_size=4, num_blocks=14)["seeded"] == expected


def test_with_an_engine_seed_all_of_them_repeat(model):
    wishes = [Wish(f"r{n}", [9 + n] * (n + 3), {"max_new_tokens": 9, "temperature": 1.0}) for n in range(5)]
    first, again, other = (tokens_of(model, wishes, seed=seed) for seed in (7, 7, 8))
    assert first == again != other


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
def test_random_workloads_under_random_configurations(kind, seed):
    model, rng = tiny_model(kind, seed=seed), random.Random(seed)
    wishes = workload(seed, 30)
    expected = tokens_of(model, wishes, num_blocks=512)
    for _ in range(4):
        config = {
            "page_size": rng.choice([4, 8, 16]), "num_blocks": rng.choice([16, 24, 60]),
            "max_batch_tokens": rng.randrange(4, 60), "max_requests_per_batch": rng.randrange(2, 16),
            "scheduler_type": rng.choice(["fifo", "prefill_first"]), "use_async_batching": rng.random() < 0.5,
            "cpu_offload_space": rng.choice([0.0, 0.001]), "skip_limit": rng.choice([0, 4]),
        }  # fmt: skip
        rng.shuffle(wishes)
        assert tokens_of(model, wishes, arrivals=rng, **config) == expected, config

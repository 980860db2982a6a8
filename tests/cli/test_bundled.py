"""The models that come with the package: small, safe, described, and able to say something readable."""

import json
import re

import pytest
import torch

from engine import ContinuousBatchingConfig, continuous_batching_context_manager
from engine.core.errors import LoadError
from engine.loading import Loaded, chat_prompt, load
from engine.models import BUNDLED, fetch_known, remove_known

LARGEST = 8_000_000


@pytest.fixture(scope="module", params=BUNDLED)
def loaded(request: pytest.FixtureRequest) -> Loaded:
    return load(request.param, dtype="float32", device="cpu")


def answers(loaded: Loaded, asks: list[str], **config: object) -> list[str]:
    """What the model says to each, greedily, all in one engine."""
    with continuous_batching_context_manager(
        loaded.model, tokenizer=loaded.tokenizer, continuous_batching_config=ContinuousBatchingConfig(**config)
    ) as manager:
        names = [
            manager.add_request(chat_prompt(loaded.tokenizer, ask), max_new_tokens=300, do_sample=False) for ask in asks
        ]
        outputs = {output.request_id: output for output in (manager.get_result() for _ in names)}
    assert all(str(outputs[name].finish_reason) == "eos" for name in names)
    return [loaded.tokenizer.decode(outputs[name].generated_tokens, skip_special_tokens=True) for name in names]


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_model_is_small_safe_and_described(name):
    files = {file.name: file for file in BUNDLED[name].folder.iterdir()}
    assert sum(file.stat().st_size for file in files.values()) <= LARGEST
    assert {file.suffix for file in files.values()} <= {".json", ".jinja", ".safetensors", ".md"}
    card = files["README.md"].read_text()
    for fact in ("Apache-2.0", "seed", "steps", "loss", "seconds", "tokens in the data", "SmolLM2-135M-Instruct"):
        assert fact in card, fact


def test_the_two_differ_in_their_attention():
    layers = {
        name: json.loads((model.folder / "config.json").read_text()).get("layer_types")
        for name, model in BUNDLED.items()
    }
    assert set(layers["demo"] or ["full_attention"]) == {"full_attention"}
    assert set(layers["demo-hybrid"]) == {"full_attention", "sliding_attention"}


def test_it_answers_in_the_shape_of_the_prompt(loaded):
    story, items, talk, bread = answers(
        loaded,
        [
            "Tell me a story about a brave dog who builds a boat.",
            "List five fruits.",
            "Write a short dialogue between a cat and a dog about lunch.",
            "What is a bridge?",
        ],
    )
    assert "dog" in story and "boat" in story and story.count(".") >= 4 and story.isascii()
    assert re.fullmatch(r"(\d\. [A-Za-z' ,-]+\n?){5}", items)
    lines = talk.split("\n")
    assert len(lines) == 6 and {line.split(":")[0] for line in lines} == {"Cat", "Dog"}
    assert bread.startswith("A bridge") and bread.endswith(".")


def test_pages_chunks_and_windows_do_not_change_what_it_says(loaded):
    """A prompt far longer than the window, in a pool that has to preempt, against the model's own generate."""
    before = "Read this first. " + "One day the small fox went far away from home. " * 9
    asks = [f"{before}\nTell me a story about {who}." for who in ("a shy owl", "an old goat", "a girl named Mia")]
    expected = []
    for ask in asks:
        ids = chat_prompt(loaded.tokenizer, ask)
        with torch.inference_mode():
            whole = loaded.model.generate(torch.tensor([ids]), max_new_tokens=300, do_sample=False)[0]
        expected.append(loaded.tokenizer.decode(whole[len(ids) :], skip_special_tokens=True))
    assert answers(loaded, asks, page_size=16, num_blocks=40, max_batch_tokens=48) == expected


def test_a_bundled_model_is_neither_fetched_nor_removed():
    assert fetch_known("demo") == BUNDLED["demo"].folder
    with pytest.raises(LoadError, match="comes with this package"):
        remove_known("demo")
    assert BUNDLED["demo"].folder.is_dir()

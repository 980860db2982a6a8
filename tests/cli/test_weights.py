"""The command on real weights: SmolLM2-135M gives what ``model.generate`` gives, with its chat template."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.loading import chat_prompt
from tests.cli.conftest import Result
from tests.tiny import reference

pytestmark = pytest.mark.weights
PROMPTS = ("What is the capital of France?", "Name three rivers in Europe.")


def test_chat_answers_equal_each_prompt_alone(here: Callable[..., Result], smollm2_dir: Path) -> None:
    given = [part for text in PROMPTS for part in ("--prompt", text)]
    result = here(
        *("generate", "--model", smollm2_dir, "--json", "--device", "cpu", "--dtype", "float32"),
        *("--max-new-tokens", "12", "--num-blocks", "64", "--page-size", "16", "--max-batch-tokens", "16", *given),
    )
    assert result.returncode == 0, result.stderr
    records = [json.loads(line) for line in result.stdout.splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir)
    model = AutoModelForCausalLM.from_pretrained(smollm2_dir, dtype=torch.float32, attn_implementation="eager").eval()
    for record, text in zip(records, PROMPTS, strict=True):
        assert record["tokens"] == reference(model, chat_prompt(tokenizer, text), 12)
    assert "Paris" in records[0]["text"]

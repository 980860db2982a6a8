"""Folders with tiny models, and crews to run them."""

from pathlib import Path

import pytest

from tests.parallel.crew import Crew
from tests.tiny import tiny_model


@pytest.fixture(scope="session")
def crew(tmp_path_factory) -> Crew:
    return Crew(tmp_path_factory.mktemp("crew"))


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[tuple[str, int], str]:
    """(kind, KV heads) -> folder of a tiny model with so many."""
    root: Path = tmp_path_factory.mktemp("models")
    made = {}
    for kind in ("llama", "gemma2"):
        for kv_heads in (2, 4):
            path = root / f"{kind}{kv_heads}"
            tiny_model(kind, num_key_value_heads=kv_heads).save_pretrained(path)
            made[kind, kv_heads] = str(path)
    return made

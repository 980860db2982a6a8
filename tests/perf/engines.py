"""Engines to watch: scripted ones without a model, and a real one from a folder."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.blueprint import draw
from engine.core.options import ContinuousBatchingConfig
from engine.core.plan import StepPlan, StepResult
from engine.core.sizing import Facts
from engine.manager import ContinuousBatchingManager

VOCABULARY = 32_000
GIB = 1024**3
FACTS = Facts(
    device="cpu", windows=(None,) * 30, kv_heads=3, head_dim=64, num_heads=9, hidden_size=576, intermediate_size=1536,
    vocab_size=VOCABULARY, item_bytes=2, max_positions=1 << 20, attention="sdpa", weight_bytes=GIB // 4,
    free_bytes=8 * GIB, total_bytes=16 * GIB, host_free_bytes=8 * GIB,
)  # fmt: skip
POOL = {"page_size": 16, "num_blocks": 1024, "max_batch_tokens": 256, "max_requests_per_batch": 64}
"""For scripted engines: room for 32 requests of 500 tokens."""


class ScriptedRunner:
    """Gives made-up tokens, after a time that a step is to take.

    Args:
        seconds: of a step's forward pass.
        busy: pass them in pure Python, holding the interpreter's lock as long as it is allowed to; else let go of it,
            as a model does.
    """

    def __init__(self, seconds: float = 0.0, busy: bool = False) -> None:
        self.seconds, self.busy = seconds, busy

    def launch(self, plan: StepPlan) -> StepResult:
        tokens = [(piece.seq.key * 31 + piece.start * 7) % VOCABULARY for piece in plan.slices if piece.samples]
        return StepResult(tokens)

    def collect(self, ticket: StepResult) -> StepResult:
        if self.busy:
            end = time.perf_counter() + self.seconds
            while time.perf_counter() < end:
                pass
        elif self.seconds:
            time.sleep(self.seconds)
        return ticket

    def close(self) -> None:
        """There is nothing to give back."""


class Words:
    """A tokenizer for scripted engines: a few letters for each id."""

    eos_token_id = None
    all_special_ids: tuple[int, ...] = ()
    chat_template = None

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [sum(map(ord, word)) % VOCABULARY for word in text.split()]}

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(f" {chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676 % 26)}" for i in ids)


@dataclass(frozen=True, slots=True)
class Watched:
    """As what loading returns."""

    name: str
    tokenizer: Any
    model: Any = None


def scripted(seconds: float, busy: bool) -> tuple[Callable[[], Watched], Callable[[Watched], Any]]:
    """How to load nothing, and how to make a manager that runs on a ``ScriptedRunner``."""

    def make(loaded: Watched) -> ContinuousBatchingManager:
        blueprint = draw(None, loaded.tokenizer, None, ContinuousBatchingConfig(**POOL), facts=FACTS)
        return ContinuousBatchingManager(None, runner=ScriptedRunner(seconds, busy), blueprint=blueprint)

    return (lambda: Watched("scripted", Words())), make


def real(folder: str, dtype: str, threads: int) -> tuple[Callable[[], Watched], Callable[[Watched], Any]]:
    """How to load a model folder, and how to make a manager for it."""

    def load() -> Watched:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        return Watched(folder.rstrip("/").rsplit("/", 1)[-1], AutoTokenizer.from_pretrained(folder), model)

    def make(loaded: Watched) -> ContinuousBatchingManager:
        config = ContinuousBatchingConfig(page_size=32, num_blocks=512, max_batch_tokens=512)
        manager = ContinuousBatchingManager(loaded.model, tokenizer=loaded.tokenizer, config=config)
        manager.warmup()
        return manager

    return load, make

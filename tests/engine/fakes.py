"""An engine without a model: tokens are a pure function of prompt, seed, child and position."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from engine.blueprint import Blueprint, WorkloadHints, draw
from engine.core.options import ContinuousBatchingConfig
from engine.core.plan import StepPlan, StepResult
from engine.core.request import Sequence
from engine.core.sizing import Facts
from engine.loop import Engine
from engine.manager import ContinuousBatchingManager

VOCAB = 97
GIB = 1024**3
SMALL = {"page_size": 4, "num_blocks": 32, "max_batch_tokens": 12, "max_requests_per_batch": 8}


def fake_facts(**changed: Any) -> Facts:
    """A small model on a CPU with plenty of memory."""
    values: dict[str, Any] = {
        "device": "cpu", "windows": (None, None), "kv_heads": 2, "head_dim": 8, "num_heads": 4, "hidden_size": 32,
        "intermediate_size": 64, "vocab_size": VOCAB, "item_bytes": 4, "max_positions": 512, "attention": "sdpa",
        "weight_bytes": 100_000, "free_bytes": 8 * GIB, "total_bytes": 16 * GIB, "host_free_bytes": 8 * GIB,
    }  # fmt: skip
    return Facts(**{**values, **changed})


def fake_blueprint(
    *,
    tokenizer: Any = None,
    generation_config: Any = None,
    facts: Facts | None = None,
    model_eos: Any = None,
    hints: WorkloadHints | None = None,
    **config: Any,
) -> Blueprint:
    """What an engine without a model is built from; a small pool unless ``config`` says otherwise."""
    return draw(
        None,
        tokenizer,
        generation_config,
        ContinuousBatchingConfig(**{**SMALL, **config}),
        facts=facts or fake_facts(),
        model_eos=model_eos,
        hints=hints,
    )


def expected(prompt: tuple[int, ...] | list[int], count: int, *, seed: int | None = None, child: int = 0) -> list[int]:
    """The tokens a ``FakeRunner`` gives for a prompt; greedy requests have no seed here."""
    return [_token(tuple(prompt), seed, child, position) for position in range(count)]


def _token(prompt: tuple[int, ...], seed: int | None, child: int, position: int) -> int:
    digest = hashlib.blake2b(repr((prompt, seed, child, position)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % VOCAB


def fake_token(seq: Sequence, position: int) -> int:
    sampling = seq.request.sampling
    seed = None if sampling.is_greedy else sampling.seed
    return _token(seq.request.prompt_ids, seed, seq.child, position)


class FakeRunner:
    """Answers every plan at once.

    Args:
        token_of: (sequence, position) → token, instead of the usual function.
        fail_at: number of the launch, from 1, that raises.
        nan: request id → position at which its row is not finite.
        gate: when given, ``collect`` waits for it, as a slow device would.
    """

    def __init__(
        self,
        *,
        token_of: Callable[[Sequence, int], int] = fake_token,
        fail_at: int | None = None,
        nan: Mapping[str, int] | None = None,
        gate: threading.Event | None = None,
    ) -> None:
        self.token_of, self.fail_at, self.nan, self.gate = token_of, fail_at, nan or {}, gate
        self.launches = 0
        self.plans: list[StepPlan] = []
        self.closed = 0
        self.collecting = threading.Event()

    def launch(self, plan: StepPlan) -> StepResult:
        self.launches += 1
        self.plans.append(plan)
        if self.launches == self.fail_at:
            raise RuntimeError("the forward pass broke")
        result = StepResult()
        wants_logprobs = any(piece.seq.request.sampling.logprobs >= 0 for piece in plan.slices if piece.samples)
        result.logprobs = [] if wants_logprobs else None
        for row, piece in enumerate([piece for piece in plan.slices if piece.samples]):
            broken = self.nan.get(piece.seq.request.request_id) == piece.position
            token = -1 if broken else self.token_of(piece.seq, piece.position)
            result.tokens.append(token)
            if broken:
                result.failures[row] = "non-finite logits"
            if result.logprobs is not None:
                result.logprobs.append(-float(token) / VOCAB)
        return result

    def collect(self, ticket: StepResult) -> StepResult:
        self.collecting.set()
        if self.gate is not None:
            self.gate.wait()
        return ticket

    def close(self) -> None:
        self.closed += 1


def fake_engine(runner: Any = None, **wanted: Any) -> Engine:
    """An engine to step by hand."""
    return Engine(None, runner=runner or FakeRunner(), blueprint=fake_blueprint(**wanted))


def fake_manager(runner: Any = None, **wanted: Any) -> ContinuousBatchingManager:
    """A manager that was not started."""
    return ContinuousBatchingManager(None, runner=runner or FakeRunner(), blueprint=fake_blueprint(**wanted))


class CharTokenizer:
    """Token n is the n-th text of a list; unknown ids decode to ``<n>``."""

    eos_token_id = None
    all_special_ids: tuple[int, ...] = ()

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [self.pieces.index(character) for character in text]}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(self.pieces[i] if i < len(self.pieces) else f"<{i}>" for i in ids)

"""``cbtui bench``: how quick the engine is with this model on this machine, in about a minute."""

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from cbtui.options import Choices
from cbtui.show import LoadLine, StatusLine
from cbtui.start import ask_fetch, load_model, plan_engine


@dataclass(frozen=True, slots=True)
class Case:
    """So many prompts of so many tokens, each continued by so many."""

    rows: int
    prompt_tokens: int
    new_tokens: int


CASES = (Case(1, 32, 64), Case(8, 32, 64), Case(32, 32, 64), Case(64, 32, 32), Case(32, 256, 16), Case(4, 1024, 16))


@dataclass(frozen=True, slots=True)
class Found:
    """What one case gave.

    Attributes:
        tokens_per_s: generated tokens over the whole time, prompts included.
        prompt_per_s: prompt tokens per second until the last request had its first token.
        first_p50_ms, first_p95_ms: from the start to a request's first token.
        gap_p50_ms, gap_p95_ms: between two tokens of a request.
    """

    tokens_per_s: float
    prompt_per_s: float
    first_p50_ms: float
    first_p95_ms: float
    gap_p50_ms: float
    gap_p95_ms: float


def bench(choices: Choices, *, as_json: bool = False, clock: Callable[[], float] = time.perf_counter) -> int:
    """Measures and prints a table, or one JSON object.

    Args:
        clock: seconds; what loading and making ready take is counted from the beginning of loading.

    Returns:
        0.

    Raises:
        LoadError, ConfigError, EngineError: as they come.
    """
    import torch

    from engine.manager import ContinuousBatchingManager

    began = clock()
    with LoadLine() as line:
        loaded = load_model(choices, line, ask_fetch)
    load = clock() - began
    blueprint = plan_engine(loaded, choices.config)
    manager = ContinuousBatchingManager(loaded.model, blueprint=blueprint)
    manager.warmup()
    ready = clock() - began
    manager.start()
    try:
        limit = loaded.facts.max_positions
        cases = [case for case in CASES if limit is None or case.prompt_tokens + case.new_tokens <= limit]
        results = []
        with StatusLine() as status:
            for number, case in enumerate(cases, 1):
                status.show(f"{number}/{len(cases)}: {case.rows} prompts of {case.prompt_tokens} tokens")
                results.append((case, measure(manager, case, loaded.facts.vocab_size)))
    finally:
        manager.stop(block=True, timeout=30.0, hard_stop=True)
    facts = {
        "model": loaded.name,
        "dtype": str(loaded.facts.dtype).removeprefix("torch."),
        "device": str(loaded.facts.device),
        "threads": torch.get_num_threads(),
        "forward": blueprint.config.forward.value,
        "load_s": load,
        "ready_s": ready,
        "memory_mib": psutil.Process().memory_info().rss / 2**20,
    }
    if as_json:
        json.dump({**facts, "results": [{**asdict(case), **asdict(found)} for case, found in results]}, sys.stdout)
        print()
    else:
        print("\n".join(_table(facts, results)))
    return 0


def measure(manager: Any, case: Case, vocab_size: int) -> Found:
    """One case: prompts of random ids, greedy, no end of sequence."""
    rng = random.Random(case.rows)
    prompts = [
        [rng.randrange(vocab_size // 8, vocab_size) for _ in range(case.prompt_tokens)] for _ in range(case.rows)
    ]
    began = time.perf_counter()
    names = manager.add_requests(
        prompts, max_new_tokens=case.new_tokens, record_timestamps=True, eos_token_id=-1, temperature=0.0
    )
    times = {output.request_id: output.timestamps for output in _ended(manager, len(prompts))}
    ended = time.perf_counter()
    manager.clear_prefix_cache()
    first = sorted(times[name][0] - began for name in names)
    gaps = sorted(b - a for name in names for a, b in zip(times[name], times[name][1:], strict=False))
    return Found(
        case.rows * case.new_tokens / (ended - began),
        case.rows * case.prompt_tokens / first[-1],
        *(1e3 * percentile(first, share) for share in (0.5, 0.95)),
        *(1e3 * percentile(gaps, share) for share in (0.5, 0.95)),
    )


def _ended(manager: Any, count: int) -> list[Any]:
    from engine.core.errors import EngineError

    outputs: list[Any] = []
    while len(outputs) < count:
        output = manager.get_result()
        if output is None or output.error:
            raise EngineError(output.error if output else str(manager.status.error))
        outputs.append(output)
    return outputs


def percentile(values: Sequence[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


COLUMNS = ("prompts", "of", "new", "tokens/s", "prompt/s", "first p50 ms", "p95 ms", "gap p50 ms", "p95 ms")


def _table(facts: dict[str, Any], results: Sequence[tuple[Case, Found]]) -> list[str]:
    lines = [
        f"{facts['model']}, {facts['dtype']} on {facts['device']}, {facts['threads']} threads,"
        f" forward={facts['forward']}; loaded after {facts['load_s']:.1f} s,"
        f" ready after {facts['ready_s']:.1f} s, {facts['memory_mib']:.0f} MiB",
        "".join(f"{title:>{_width(title)}}" for title in COLUMNS),
    ]
    for case, found in results:
        numbers = (*(f"{n}" for n in asdict(case).values()), *(f"{n:.0f}" for n in asdict(found).values()))
        lines.append("".join(f"{n:>{_width(title)}}" for n, title in zip(numbers, COLUMNS, strict=True)))
    return lines


def _width(title: str) -> int:
    return max(7, len(title) + 2)

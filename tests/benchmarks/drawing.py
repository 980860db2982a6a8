"""What drawing tokens costs, by PyTorch and by the kernels: ``python -m tests.benchmarks.drawing``.

Both draw the same rows in turns, with the caches emptied before each as a forward pass empties them. Printed per kind
of sampling: milliseconds a step (median of the wall clock), and how many times quicker the kernels are.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from engine.core.request import SamplingParams
from engine.run.fast.build import load_kernels
from engine.run.fast.drawing import Drawing
from engine.run.fast.team import Team
from engine.run.noise import step_key
from engine.run.sampler import Draw, draw_rows

KINDS: dict[str, dict[str, Any]] = {
    "temperature": {},
    "top-k 50": {"top_k": 50},
    "top-p 0.95": {"top_p": 0.95},
    "top-k 50, top-p 0.95": {"top_k": 50, "top_p": 0.95},
    "min-p 0.05": {"min_p": 0.05},
}
CACHES = 64 << 20
"""Bytes written between two drawings; more than the caches hold."""


def logits_of(rows: int, vocabulary: int) -> torch.Tensor:
    """Made-up logits: most lie close together, a few stand out."""
    made = 2.5 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0))
    made[:, :20] += torch.linspace(0, 15, 20)
    return made


def timed(draw: Draw, logits: torch.Tensor, params: SamplingParams, cold: torch.Tensor) -> float:
    rows = list(range(len(logits)))
    cold.add_(1)
    began = time.perf_counter()
    with torch.inference_mode():
        draw(logits, rows, [params] * len(rows), [step_key(row, 1) for row in rows])
    return 1e3 * (time.perf_counter() - began)


def main(say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32, help="rows of a step (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=49_152, help="logits of a row (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: %(default)s")
    parser.add_argument("--repeat", type=int, default=15, help="drawings of each kind (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    library = load_kernels(torch.float32)
    team = Team(library)
    ways: dict[str, Draw] = {"PyTorch": draw_rows, "kernels": Drawing(library, team)}
    logits, cold = logits_of(options.rows, options.vocabulary), torch.zeros(CACHES // 4)
    say(f"{options.rows} rows of {options.vocabulary} logits, {options.threads} threads")
    for kind, fields in KINDS.items():
        params = SamplingParams(do_sample=True, temperature=0.8, **fields)
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.repeat):
            for name, draw in ways.items():
                taken[name].append(timed(draw, logits, params, cold))
        slow, quick = (statistics.median(taken[name]) for name in ways)
        say(f"{kind:24}PyTorch {slow:7.2f} ms   kernels {quick:7.2f} ms   {slow / quick:5.1f} x")
    team.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

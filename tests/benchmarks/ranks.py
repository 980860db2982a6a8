"""A split model measured: speed, the bytes of a plan, and how long each rank waits.

    python -m tests.benchmarks.ranks MODEL
    torchrun --nproc-per-node 3 -m tests.benchmarks.ranks MODEL

Eight prompts of 32 tokens, 24 new tokens each. One process runs the model's own modules, as each of several does.
"""

import argparse
import random
import time
from statistics import median
from typing import Any

from engine import ContinuousBatchingConfig, Engine
from engine.core.observe import StepRecord
from engine.loading import load
from engine.parallel.launch import launched
from engine.split import follows

ROWS, PROMPT, NEW = 8, 32, 24


def main() -> None:
    """Prints a few lines on rank 0."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = load(arguments.model, dtype="float32").model
    if follows(model):
        from engine.parallel.attach import follow

        follow(model)
        return
    records, seconds = _run(model)
    launch = launched()
    print(f"{1 if launch is None else launch.size} processes, {arguments.threads} threads each")
    decodes = [r for r in records if r.slices and all(r.slices[i].query == 1 for i in range(len(r.slices)))]
    prompts = [r for r in records if r.slices and r not in decodes]
    print(f"{ROWS * NEW / seconds:.1f} tokens/s")
    for name, some in (("prompts", prompts), ("decodes", decodes)):
        took, size = (median(values) for values in zip(*((r.spans.total, r.plan_bytes) for r in some), strict=True))
        print(f"{name}: {len(some)} steps, median {took * 1000:.1f} ms, plan {size:.0f} bytes")
    for waits in zip(*(record.ranks for record in decodes[1:]), strict=True):
        plan, tensors = (median(getattr(wait, name) for wait in waits) * 1000 for name in ("plan", "tensors"))
        print(f"rank {waits[0].rank}: waits {plan:.1f} ms for the plan, {tensors:.1f} ms for tensors (medians)")


def _run(model: Any) -> tuple[list[StepRecord], float]:
    draw = random.Random(0)
    config = ContinuousBatchingConfig(page_size=16, num_blocks=256, max_batch_tokens=256, forward="modules")
    engine = Engine(model, config=config)
    engine.submit([1, 2, 3], max_new_tokens=2)
    engine.run_until_idle()
    engine.tap.attach()
    for _ in range(ROWS):
        engine.submit([draw.randrange(10, 40_000) for _ in range(PROMPT)], max_new_tokens=NEW, eos_token_id=-1)
    began = time.perf_counter()
    engine.run_until_idle()
    seconds = time.perf_counter() - began
    records, _ = engine.tap.read(after_step=0)
    engine.close()
    return list(records), seconds


if __name__ == "__main__":
    main()

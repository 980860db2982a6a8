"""What the scheduler costs per step, without a model: ``python -m tests.benchmarks.steps``.

Every row decodes, a long line waits behind. Printed per number of rows, in microseconds: plan, apply, their sum beside
the target of 25 + 3 per row, and, for a watched run, what recording adds to both (watched) and what making and
publishing the record costs (publish). Processor time of the thread, so that a busy machine disturbs less; garbage
collection is in it.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence as Numbers
from time import thread_time as clock

from engine.core.groups import group_layers
from engine.core.layout import CacheLayout, SchedulerSettings
from engine.core.plan import StepResult
from engine.core.request import Request
from engine.core.scheduler import Scheduler
from engine.core.tap import Tap

PAGE_SIZE = 16
PROMPT = 24


def loaded(rows: int, waiting: int, windows: Numbers[int | None]) -> Scheduler:
    """A scheduler in which ``rows`` sequences decode and ``waiting`` more wait for a row."""
    groups = group_layers(windows)
    layout = CacheLayout(PAGE_SIZE, groups, num_blocks=(rows + 1) * 64 * len(groups))
    settings = SchedulerSettings(max_batch_tokens=max(8192, rows * PROMPT), max_requests_per_batch=rows)
    scheduler = Scheduler(layout, settings)
    for number in range(rows + waiting):
        prompt = tuple((number * 7 + i * 13) % 30_000 for i in range(PROMPT))
        scheduler.add(Request(f"r{number}", prompt, max_new_tokens=900))
    step(scheduler)
    return scheduler


def step(scheduler: Scheduler) -> tuple[float, float]:
    """One step with made-up tokens; seconds of ``plan`` and of ``apply``."""
    before = clock()
    plan = scheduler.plan()
    planned = clock()
    result = StepResult([7 + piece.start % 5 for piece in plan.slices if piece.samples])
    back = clock()
    scheduler.apply(plan, result, back)
    return planned - before, clock() - back


def measure(rows: int, waiting: int, steps: int, windows: Numbers[int | None]) -> dict[str, float]:
    """Microseconds per step, the mean over ``steps`` steps, so that new pages and published blocks are in it."""
    scheduler = loaded(rows, waiting, windows)
    plans, applies = zip(*[step(scheduler) for _ in range(steps)], strict=True)
    scheduler.observe(True)
    tap = Tap(capacity=64)
    watched, published = [], []
    for number in range(steps):
        watched.append(sum(step(scheduler)))
        before = clock()
        tap.publish(scheduler.take_events().record(float(number)))
        published.append(clock() - before)
    mean = statistics.fmean
    return {
        "plan": mean(plans) * 1e6,
        "apply": mean(applies) * 1e6,
        "watched": mean(watched) * 1e6,
        "publish": mean(published) * 1e6,
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.steps", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=160, help="steps measured per line (10 pages of tokens)")
    parser.add_argument("--repeat", type=int, default=3, help="the best of this many runs is printed")
    options = parser.parse_args(arguments)
    kinds = {"full": [None] * 4, "hybrid": [64, None, 64, None]}
    print(f"{options.waiting} waiting; µs of processor time a step, best of {options.repeat} runs")
    print(f"{'layers':>7} {'rows':>5} {'plan':>8} {'apply':>8} {'sum':>8} {'target':>8} {'watched':>8} {'publish':>8}")
    for kind, windows in kinds.items():
        for rows in options.rows:
            runs = [measure(rows, options.waiting, options.steps, windows) for _ in range(options.repeat)]
            best = {name: min(run[name] for run in runs) for name in runs[0]}
            total = best["plan"] + best["apply"]
            print(
                f"{kind:>7} {rows:>5} {best['plan']:>8.1f} {best['apply']:>8.1f} {total:>8.1f} {25 + 3 * rows:>8} "
                f"{best['watched'] - total:>8.1f} {best['publish']:>8.1f}"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()

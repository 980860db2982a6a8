"""What watching costs, measured on the real monitor in a terminal: ``python -m tests.perf.ui``.

Scripted engines stand in for a model, so nothing is downloaded; ``--model FOLDER`` watches a real one where 32 requests
run. Processor time is that of the monitor's own threads, so a busy machine disturbs it little; times from a key to the
paint and the event loop's lateness are wall-clock, and a busy machine makes them longer. Prints a table and writes a
JSON file.
"""

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import dataclass
from typing import Any

import psutil

from tests.perf import checks

SIZES = {"200x60": (200, 60), "80x24": (80, 24)}


@dataclass(frozen=True, slots=True)
class Target:
    """A measured figure, what it means, and the most it may be (None is only told)."""

    name: str
    about: str
    most: float | None
    unit: str


TARGETS = (
    Target("cpu_percent", "32 running: the monitor's threads", 10.0, "% of a core"),
    Target("frames_per_s", "32 running: frames", None, "per s"),
    Target("steps_per_s", "32 running: engine steps", None, "per s"),
    Target("kb_per_frame", "written per frame, mean", 20.0, "kB"),
    Target("kb_per_frame_most", "written per frame, most", None, "kB"),
    Target("lag_p95_ms", "event loop late, p95", 5.0, "ms"),
    Target("busy_lag_p95_ms", "event loop late, p95, engine in pure Python", 25.0, "ms"),
    Target("key_ms", "key to paint, running", 80.0, "ms"),
    Target("paused_key_ms", "key to paint, paused", 80.0, "ms"),
    Target("paused_bytes", "written while paused", 0.0, "bytes"),
    Target("paused_cpu_percent", "paused: the monitor's threads", None, "% of a core"),
    Target("scrub_ms", "jump to any kept step, p95, frame composed", 30.0, "ms"),
    Target("scrub_cpu_ms", "of it, processor time, p95", None, "ms"),
    Target("scrub_kept_steps", "steps kept for it", None, ""),
    Target("first_frame_s", "first frame after process start", 0.7, "s"),
    Target("torch_before_frame", "torch imported before it (1 is yes)", 0.0, ""),
    Target("exit_s", "q to the end of the process", 1.0, "s"),
    Target("memory_pace", "memory: engine steps", None, "per s"),
    Target("history_bytes_per_step", "bytes that the history counts, per step", None, "bytes"),
    Target("bytes_per_counted", "memory that a counted byte takes", None, "bytes"),
    Target("bytes_per_step_full", "growth per step with a full history", None, "bytes"),
    Target("small_history_mb", "growth with a history of 1 MiB, measured", None, "MB"),
    Target("hour_mb", "growth in 1 h at 100 steps/s, from these", 80.0, "MB"),
    Target("history_minutes", "of that hour, what is kept", None, "min"),
    Target("memory_steps", "steps driven for that", None, ""),
)


def say(text: str) -> None:
    """Progress, on standard error."""
    print(f"  {text}", file=sys.stderr, flush=True)


def measure(size: tuple[int, int], options: argparse.Namespace) -> dict[str, float]:
    """All figures of one terminal size."""
    engine: dict[str, Any] = {"seconds": 0.03}
    if options.model is not None:
        engine = {"engine": "real", "model": options.model, "dtype": options.dtype, "threads": options.threads}
    found = checks.running(size, options.seconds, say, engine)
    found |= checks.busy(size, options.seconds, say)
    found |= checks.held(size, options.seconds, say)
    found |= checks.first_frame(size, options.model, say)
    if options.steps:
        found |= checks.memory(size, options.steps, say)
    return found


def table(results: dict[str, dict[str, float]]) -> str:
    """Rows of figures, columns of sizes, with the target and whether it is met."""
    lines = [f"{'':<46}" + "".join(f"{name:>17}" for name in results) + f"{'target':>10}  unit"]
    for target in TARGETS:
        cells = ""
        for found in results.values():
            value = found.get(target.name)
            verdict = "" if target.most is None or value is None else " yes" if value <= target.most else "  no"
            cells += f"{'--' if value is None else f'{value:,.2f}':>13}{verdict:<4}"
        most = "" if target.most is None else f"{target.most:g}"
        lines.append(f"{target.about:<46}{cells}{most:>10}  {target.unit}")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Where this was measured."""
    return {
        "cores": psutil.cpu_count(logical=False), "python": platform.python_version(), "system": platform.platform(),
        "load": os.getloadavg()[0], "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.ui", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--model", help="watch a model folder instead of a scripted engine while 32 requests run")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--steps", type=int, default=60_000, help="for the growth of memory; 0 leaves it out")
    parser.add_argument("--json", default="perf-ui.json", help="where the figures are written")
    options = parser.parse_args(arguments)
    before = machine()
    results = {name: measure(SIZES[name], options) for name in options.sizes}
    report = {
        "machine": before, "options": vars(options), "results": results,
        "targets": {target.name: target.most for target in TARGETS if target.most is not None},
    }  # fmt: skip
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=2)
    print(table(results))
    print(f"load when it began {before['load']:.1f} on {before['cores']} cores; written to {options.json}")


if __name__ == "__main__":
    main()

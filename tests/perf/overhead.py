"""How much slower an engine is that is watched: ``python -m tests.perf.overhead --model FOLDER``.

Two processes hold the same model: one runs the engine alone, one the whole monitor in a terminal of 200x60. They run
the same prompts in turns (alone, watched, watched, alone, …), so that both meet the same machine; with ``--rounds``
both are started anew, because where a process's memory lies matters too. Told are the median loss of tokens per second
over the pairs with its quartiles, and what depends less on other programs: processor time per token, of the whole
process and of the engine's thread, and what the monitor's threads take.
"""

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import psutil

from tests.perf.terminal import TerminalError
from tests.perf.ui import machine, say
from tests.perf.watched import Program

ENGINE_THREAD = "continuous-batching"
SCREEN = ("MainThread", "textual-output", "textual-input", "cbtui-ask")
"""Threads of the monitor."""
MOST_LOSS = 3.0
"""Percent of tokens per second that watching may cost."""


def prompts_of(count: int, vocabulary: int) -> list[list[int]]:
    """Made-up prompts of 16 to 64 tokens."""
    draw = random.Random(count)
    return [
        [draw.randrange(vocabulary // 8, vocabulary // 2) for _ in range(draw.randint(16, 64))] for _ in range(count)
    ]


def measure(programs: dict[str, Program], requests: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Pairs of runs: name of the program -> what it answered."""
    prompts = prompts_of(requests, options.vocabulary)
    for program in programs.values():
        program.ask("run", prompts=prompts, new_tokens=8)
    pairs = []
    for number in range(options.pairs):
        order = list(programs) if number % 2 == 0 else list(programs)[::-1]
        pairs.append(
            {name: programs[name].ask("run", prompts=prompts, new_tokens=options.new_tokens) for name in order}
        )
        rates = {name: pairs[-1][name]["tokens"] / pairs[-1][name]["seconds"] for name in programs}
        say(f"{requests} requests, pair {number + 1} of {options.pairs}: "
            + ", ".join(f"{name} {rate:.0f} tokens/s" for name, rate in rates.items()))  # fmt: skip
    return pairs


def summary(pairs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Medians over the pairs."""
    lost = [100 * (1 - _rate(pair["watched"]) / _rate(pair["alone"])) for pair in pairs]
    quarters = statistics.quantiles(lost, n=4) if len(lost) > 1 else [lost[0]] * 3

    def middle(name: str, of: Any) -> float:
        return statistics.median(of(pair[name]) for pair in pairs)

    def thread(run: dict[str, Any]) -> float:
        return run["threads"].get(ENGINE_THREAD, 0.0) / run["tokens"] * 1e6

    return {
        "alone_tokens_per_s": middle("alone", _rate),
        "watched_tokens_per_s": middle("watched", _rate),
        "loss_percent": statistics.median(lost),
        "loss_percent_low": quarters[0],
        "loss_percent_high": quarters[2],
        "alone_cpu_us_per_token": middle("alone", lambda run: run["process"] / run["tokens"] * 1e6),
        "watched_cpu_us_per_token": middle("watched", lambda run: run["process"] / run["tokens"] * 1e6),
        "alone_engine_thread_us_per_token": middle("alone", thread),
        "watched_engine_thread_us_per_token": middle("watched", thread),
        "engine_thread_more_percent": statistics.median(
            100 * (thread(pair["watched"]) / thread(pair["alone"]) - 1) for pair in pairs
        ),
        "screen_percent_of_a_core": middle(
            "watched", lambda run: 100 * sum(run["threads"].get(name, 0.0) for name in SCREEN) / run["seconds"]
        ),
    }


def _rate(run: dict[str, Any]) -> float:
    return run["tokens"] / run["seconds"]


def table(results: dict[str, dict[str, float]]) -> str:
    """One block of lines for each number of requests."""
    lines = []
    for requests, found in results.items():
        loss, spread = found["loss_percent"], found["loss_percent_high"] - found["loss_percent_low"]
        verdict = "yes" if loss <= MOST_LOSS else "no"
        if spread > 2 * MOST_LOSS:
            verdict = "cannot be said, other programs move it by more"
        lines += [
            f"{requests} requests: {found['alone_tokens_per_s']:.0f} tokens/s alone, "
            f"{found['watched_tokens_per_s']:.0f} watched",
            f"  lost {loss:.1f} % (quartiles {found['loss_percent_low']:.1f} … {found['loss_percent_high']:.1f}), "
            f"target {MOST_LOSS:g} %: {verdict}",
            f"  processor time per token: {found['alone_cpu_us_per_token']:.0f} µs alone, "
            f"{found['watched_cpu_us_per_token']:.0f} µs watched; of the engine's thread "
            f"{found['alone_engine_thread_us_per_token']:.0f} and {found['watched_engine_thread_us_per_token']:.0f} µs "
            f"(median of the pairs {found['engine_thread_more_percent']:+.1f} %)",
            f"  the monitor's threads take {found['screen_percent_of_a_core']:.1f} % of a core",
        ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.overhead", description=__doc__)
    parser.add_argument("--model", required=True, help="a folder with config, safetensors and tokenizer")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--requests", type=int, nargs="+", default=[6, 32])
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--pairs", type=int, default=6, help="in each round")
    parser.add_argument("--rounds", type=int, default=2, help="starts of both processes")
    parser.add_argument("--vocabulary", type=int, default=32_000, help="prompts are ids below half of this")
    parser.add_argument("--json", default="perf-overhead.json", help="where the figures are written")
    options = parser.parse_args(arguments)
    before = machine()
    pairs: dict[str, list[dict[str, Any]]] = {str(count): [] for count in options.requests}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}: loading twice")
        settings = {"engine": "real", "model": options.model, "dtype": options.dtype, "threads": options.threads}
        with Program(**settings, monitor=False) as alone, Program(**settings) as watched:
            watched.until_ready()
            for count in options.requests:
                pairs[str(count)] += measure({"alone": alone, "watched": watched}, count, options)
                results = {count: summary(found) for count, found in pairs.items() if found}
                report = {"machine": before, "options": vars(options), "results": results, "pairs": pairs}
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(report, file, indent=2)
    print(table(results))
    print(f"load when it began {before['load']:.1f}, now {os.getloadavg()[0]:.1f}; written to {options.json}")


if __name__ == "__main__":
    try:
        main()
    except TerminalError as error:
        sys.exit(f"overhead: {error}")

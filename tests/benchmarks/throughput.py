"""Engines side by side on the same prompts: ``python -m tests.benchmarks.throughput --model FOLDER``.

Each engine runs in a process of its own and keeps its model between jobs. The repetitions take turns (every engine
runs a workload once before any runs it again), because a machine's speed drifts. Engines that are not there are left
out, and that is said.
"""

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import EngineSpec, Run, Worker, WorkerError, agreement, summary
from tests.benchmarks.workloads import Workload, workloads

OURS = ("ours", "watched", "packed", "modules", "compiled")
ENGINES = (*OURS, "single", "padded", "batch", "vllm", "vllm-compiled", "llama")
COLUMNS = (
    ("tokens/s", "tokens_per_s", "{:.0f}"),
    ("from", "lowest", "{:.0f}"),
    ("to", "highest", "{:.0f}"),
    ("first p50 s", "first_p50_s", "{:.2f}"),
    ("first p95 s", "first_p95_s", "{:.2f}"),
    ("gap p50 ms", "gap_p50_ms", "{:.1f}"),
    ("gap p95 ms", "gap_p95_ms", "{:.1f}"),
    ("peak MiB", "peak_mib", "{:.0f}"),
)


def specs(options: argparse.Namespace, vocabulary: dict[str, Workload]) -> tuple[list[EngineSpec], list[str]]:
    """The engines that can be tried, and a sentence for each that cannot."""
    longest = max(workload.longest for workload in vocabulary.values())
    config = {"page_size": 32, "max_batch_tokens": options.batch_tokens}
    known = {
        "ours": EngineSpec("ours", "ours", settings={"forward": "auto", "config": config}),
        "watched": EngineSpec("watched", "ours", settings={"forward": "auto", "config": config, "watched": True}),
        "packed": EngineSpec("packed", "ours", settings={"forward": "packed", "config": config}),
        "modules": EngineSpec("modules", "ours", settings={"forward": "modules", "config": config}),
        "compiled": EngineSpec(
            "compiled", "ours", settings={"forward": "auto", "config": {**config, "default_compile_level": 1}}
        ),
        "single": EngineSpec("single", "plain", settings={"way": "single"}, only=4),
        "padded": EngineSpec("padded", "plain", settings={"way": "padded"}),
        "batch": EngineSpec("batch", "plain", settings={"way": "batch", "config": json.loads(options.batch_config)}),
        "llama": EngineSpec("llama", "llama_server", settings={"server": options.llama, "gguf": options.gguf}),
    }
    for name, eager in (("vllm", True), ("vllm-compiled", False)):
        settings = {"eager": eager, "longest": longest + 16}
        known[name] = EngineSpec(name, "vllm_engine", options.vllm or sys.executable, settings)
    missing = []
    if not options.vllm:
        missing += [f"{name}: give --vllm, a Python that has it" for name in ("vllm", "vllm-compiled")]
    if not (options.llama and options.gguf):
        missing.append("llama: give --llama, the path of llama-server, and --gguf, the same model as a file")
    absent = {line.split(":")[0] for line in missing}
    wanted = options.engines.split(",")
    for name in wanted:
        if name not in known:
            raise SystemExit(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")
    return [known[name] for name in wanted if name not in absent], [m for m in missing if m.split(":")[0] in wanted]


@dataclass(slots=True)
class Results:
    """What was measured so far: engine and workload -> runs, and what could not be."""

    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    start_up: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def measure(options: argparse.Namespace, chosen: dict[str, Workload]) -> Results:
    """All repetitions of all workloads on all engines, taking turns."""
    engines, missing = specs(options, chosen)
    results = Results(missing=missing)
    workers: list[Worker] = []
    settings = {"model": str(options.model), "dtype": options.dtype, "threads": options.threads}
    try:
        for spec in engines:
            say(f"starting {spec.name}")
            try:
                worker = Worker(spec, settings)
            except WorkerError as error:
                results.missing.append(f"{spec.name}: {error}")
                continue
            workers.append(worker)
            results.about[spec.name], results.start_up[spec.name] = worker.about, worker.start_up
        for workload in chosen.values():
            for repetition in range(options.repeat):
                for worker in workers:
                    one(worker, workload, repetition, results)
    finally:
        for worker in workers:
            worker.close()
    return results


def one(worker: Worker, workload: Workload, repetition: int, results: Results) -> None:
    """One job, and what it gave; a failure is noted once."""
    name = worker.spec.name
    note = f"{name} {workload.name}: failed"
    if any(line.startswith(note) for line in results.missing):
        return
    say(f"{workload.name} {workload.about}, {repetition + 1}: {name} …")
    try:
        run = worker.run(workload)
    except WorkerError as error:
        results.missing.append(f"{note}: {error}")
        return
    results.runs.setdefault((name, workload.name), []).append(run)
    say(f"{workload.name}, {repetition + 1}: {name} {run.rate:.0f} tokens/s")


def table(results: Results, chosen: dict[str, Workload], *, compare: str = "ours") -> str:
    """One table per workload, with the ratio of ``compare`` to each engine and how many prompts have its tokens."""
    lines = []
    for workload in chosen.values():
        lines += ["", f"{workload.name}: {workload.about}, {workload.new_tokens} new tokens each", ""]
        lines.append("| engine | " + " | ".join(title for title, _, _ in COLUMNS) + f" | {compare} is | same tokens |")
        lines.append("|---|" + "---:|" * (len(COLUMNS) + 2))
        own = results.runs.get((compare, workload.name))
        for (engine, name), runs in results.runs.items():
            if name != workload.name:
                continue
            found = summary(runs)
            ratio = f"{summary(own)['tokens_per_s'] / found['tokens_per_s']:.2f} ×" if own else ""
            same = f"{agreement(runs[0].tokens, own[0].tokens):.0%}" if own else ""
            cells = [form.format(found[key]) for _, key, form in COLUMNS]
            lines.append(f"| {engine} | " + " | ".join(cells) + f" | {ratio} | {same} |")
    lines += ["", "Ready after: " + ", ".join(f"{name} {took:.1f} s" for name, took in results.start_up.items())]
    lines += [f"{name}: {about}" for name, about in results.about.items()]
    return "\n".join(lines + [f"Left out: {line}" for line in results.missing])


def as_json(results: Results, options: argparse.Namespace) -> dict[str, Any]:
    found = [
        {"engine": engine, "workload": workload, "repetitions": len(runs), **summary(runs)}
        for (engine, workload), runs in results.runs.items()
    ]
    return {
        "machine": {"processor": processor(), "cores": os.cpu_count(), "threads": options.threads},
        "dtype": options.dtype,
        "model": Path(options.model).name,
        "engines": results.about,
        "start_up_s": results.start_up,
        "results": found,
        "left_out": results.missing,
    }


def processor() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of the model")
    parser.add_argument(
        "--engines", default="ours,single,padded,batch,vllm,vllm-compiled,llama", help=", ".join(ENGINES)
    )
    parser.add_argument("--workloads", default="W1,W2,W3,W4,W5")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of everything")
    parser.add_argument("--scale", type=float, default=1.0, help="shortens prompts and outputs, for trying things out")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch-tokens", type=int, default=1024, help="max_batch_tokens of this project's engine")
    parser.add_argument("--batch-config", default="{}", help="fields of transformers' ContinuousBatchingConfig, JSON")
    parser.add_argument("--vllm", help="Python interpreter of an environment with vLLM")
    parser.add_argument("--llama", help="path of llama-server")
    parser.add_argument("--gguf", help="the model as a GGUF file of the same precision")
    parser.add_argument("--json", help="write the results here")
    options = parser.parse_args()
    vocabulary = json.loads((Path(options.model) / "config.json").read_text())["vocab_size"]
    every = workloads(vocabulary, options.scale)
    chosen = {name: every[name] for name in options.workloads.split(",")}
    results = measure(options, chosen)
    print(table(results, chosen))
    if options.json:
        Path(options.json).write_text(json.dumps(as_json(results, options), indent=1))


if __name__ == "__main__":
    main()

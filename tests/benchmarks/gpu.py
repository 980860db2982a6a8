"""Everything that needs a GPU, in one go: ``python -m tests.benchmarks.gpu --model FOLDER``.

First the tests marked ``gpu``, then this project's engine on the device, one part of the GPU path after the other
switched on: portable attention, flash kernels, graphs, planning ahead, compilation.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch

from tests.benchmarks.measure import ROOT, EngineSpec, Worker, WorkerError
from tests.benchmarks.throughput import Results, as_json, one, say, table
from tests.benchmarks.workloads import workloads

SETTINGS: dict[str, dict[str, object]] = {
    "sdpa": {"auto_switch_to_flash": False, "use_async_batching": False},
    "sdpa+async": {"auto_switch_to_flash": False, "use_async_batching": True},
    "flash": {"use_cuda_graph": False, "use_async_batching": False},
    "flash+graphs": {"use_async_batching": False},
    "flash+graphs+async": {},
    "flash+compiled": {"default_compile_level": 1},
}
"""Fields of the configuration for each row of the table. The last but one is what is decided by itself."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of the model")
    parser.add_argument("--settings", default=",".join(SETTINGS), help=", ".join(SETTINGS))
    parser.add_argument("--workloads", default="D1,D32,D64,W1,W2,W3,W4")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of everything")
    parser.add_argument("--scale", type=float, default=1.0, help="shortens prompts and outputs")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="write the results here")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit(f"there is no CUDA device (torch {torch.__version__})")
    tests = subprocess.run([sys.executable, "-m", "pytest", "-m", "gpu", "-q"], cwd=ROOT, check=False)
    vocabulary = json.loads((Path(options.model) / "config.json").read_text())["vocab_size"]
    every = workloads(vocabulary, options.scale)
    chosen = {name: every[name] for name in options.workloads.split(",")}
    results = Results()
    for name in options.settings.split(","):  # one after the other: two engines do not share a device's memory
        fields = {"max_batch_tokens": 2048, **SETTINGS[name]}
        settings = {"model": options.model, "dtype": options.dtype, "threads": options.threads, "device": "cuda"}
        say(f"starting {name}")
        try:
            spec = EngineSpec(name, "ours", settings={"forward": "auto", "config": fields})
            worker = Worker(spec, settings)
        except WorkerError as error:
            results.missing.append(f"{name}: {error}")
            continue
        results.about[name], results.start_up[name] = worker.about, worker.start_up
        try:
            for workload in chosen.values():
                for repetition in range(options.repeat):
                    one(worker, workload, repetition, results)
        finally:
            worker.close()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; tests ended with {tests.returncode}")
    print(table(results, chosen, compare="flash+graphs+async"))
    if options.json:
        found = {**as_json(results, options), "device": torch.cuda.get_device_name(), "tests": tests.returncode}
        Path(options.json).write_text(json.dumps(found, indent=1))
    raise SystemExit(tests.returncode)


if __name__ == "__main__":
    main()

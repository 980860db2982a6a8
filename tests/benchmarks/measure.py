"""Runs jobs on engines in other processes and takes the numbers."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.workloads import Workload

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """How an engine is started.

    Attributes:
        name: as in ``--engines`` and in the tables.
        module: of ``tests.benchmarks.workers``.
        python: interpreter of the environment it is installed in.
        settings: first line of its input, beside model, dtype and threads.
        only: share of a workload's prompts that is run, for engines that would take an hour.
    """

    name: str
    module: str
    python: str = sys.executable
    settings: dict[str, Any] = field(default_factory=dict)
    only: int | None = None


class WorkerError(RuntimeError):
    """An engine could not be started, or a job failed."""


class Worker:
    """An engine in a process of its own, kept between jobs."""

    def __init__(self, spec: EngineSpec, settings: dict[str, Any]) -> None:
        self.spec = spec
        self._log = tempfile.TemporaryFile("w+")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(
            [spec.python, "-m", f"tests.benchmarks.workers.{spec.module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        answer = self._ask({**settings, **spec.settings})
        self.start_up, self.about = float(answer["ready"]), str(answer["about"])

    def _ask(self, line: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended; the empty answer below says so
        text = self._process.stdout.readline()
        if not text:
            self._log.seek(0)
            last = [line.strip() for line in self._log.read().splitlines() if line.strip()][-1:]
            raise WorkerError(f"ended with code {self._process.wait()}: {' '.join(last)}")
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def run(self, workload: Workload) -> "Run":
        """One job. Raises WorkerError."""
        prompts = workload.prompts[: self.spec.only]
        with _Memory(self._process.pid) as memory:
            answer = self._ask({"prompts": prompts, "new_tokens": workload.new_tokens})
        return Run(answer["seconds"], answer["tokens"], answer["times"], memory.peak)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class _Memory:
    """Largest memory of a process and its children while the context lasts, in bytes.

    Proportional set size where the system tells it (pages shared by several processes count once), else resident.
    """

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "_Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, self._now())
            if self._done.wait(0.25):
                return

    def _now(self) -> int:
        total = 0
        try:
            for process in (self._root, *self._root.children(recursive=True)):
                info = process.memory_full_info()
                total += getattr(info, "pss", info.rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return 0
        return total


@dataclass(frozen=True, slots=True)
class Run:
    """One job of one engine. ``times`` are seconds from its start, per prompt and token."""

    seconds: float
    tokens: list[list[int]]
    times: list[list[float]]
    peak_bytes: int

    @property
    def generated(self) -> int:
        return sum(map(len, self.tokens))

    @property
    def rate(self) -> float:
        """Generated tokens per second of the whole job, prompts included."""
        return self.generated / self.seconds

    def first_tokens(self) -> list[float]:
        return sorted(times[0] for times in self.times if times)

    def gaps(self) -> list[float]:
        """Seconds between the tokens of one prompt, over all prompts."""
        return sorted(b - a for times in self.times for a, b in pairwise(times))


def percentile(values: Sequence[float], share: float) -> float:
    """Of sorted values; 0 when there are none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Medians over the repetitions, with the smallest and largest rate."""

    def middle(of: Callable[[Run], float]) -> float:
        return statistics.median(of(run) for run in runs)

    rates = [run.rate for run in runs]
    return {
        "tokens_per_s": statistics.median(rates),
        "lowest": min(rates),
        "highest": max(rates),
        "first_p50_s": middle(lambda run: percentile(run.first_tokens(), 0.5)),
        "first_p95_s": middle(lambda run: percentile(run.first_tokens(), 0.95)),
        "gap_p50_ms": middle(lambda run: 1e3 * percentile(run.gaps(), 0.5)),
        "gap_p95_ms": middle(lambda run: 1e3 * percentile(run.gaps(), 0.95)),
        "peak_mib": max(run.peak_bytes for run in runs) / 2**20,
    }


def agreement(tokens: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> float:
    """Share of prompts whose tokens are the reference's, over those both have."""
    pairs = list(zip(tokens, reference, strict=False))
    return sum(list(a) == list(b) for a, b in pairs) / len(pairs) if pairs else 0.0

"""The watched program: the real monitor on an engine that is told what to do, answering questions on a socket.

``python -m tests.perf.probe SETTINGS`` with SETTINGS as JSON: socket (file descriptor), engine ("scripted" or "real"),
seconds and busy of scripted steps, model, dtype, threads of a real one, requests to keep running, new_tokens of each,
monitor (false: the engine alone), lateness (look how
late the event loop is, which takes some tenths of a percent of a core). Questions and answers are JSON objects, one a
line; see ``Probe``.
"""

import asyncio
import json
import os
import random
import resource
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from cbtui.app import MonitorApp
from cbtui.launch import LaunchOptions
from cbtui.run import run_monitor

BEAT = 0.02
"""Seconds between two looks at how late the event loop is."""
ENGINE_THREAD = "continuous-batching"


class Feeder:
    """Keeps a number of requests running, from a thread of its own."""

    def __init__(self, manager: Any, requests: int, new_tokens: int) -> None:
        self._manager, self._requests, self._new_tokens = manager, requests, new_tokens
        self._made = 0
        threading.Thread(target=self._feed, name="feeder", daemon=True).start()

    def _feed(self) -> None:
        draw = random.Random(5)
        while self._manager.status.state not in ("stopped", "failed"):
            last = self._manager.tap.latest
            ended = 0 if last is None else last.counters.finished
            for _ in range(self._requests - (self._made - ended)):
                # the first ones begin in the middle of their lives, so that they do not all end together
                left = self._new_tokens if self._made >= self._requests else draw.randint(2, self._new_tokens)
                self._manager.add_request([draw.randrange(2, 30_000) for _ in range(24)], max_new_tokens=left)
                self._made += 1
            time.sleep(0.05)


class Probe:
    """Answers questions about this process.

    Commands (``do``): "sample": processor seconds by thread, memory, steps, lateness of the event loop since the last
    sample in ms; "scrub" with ``times``: ms that random jumps through the kept history take, frame included, and
    how many of them the processor worked for it;
    "limit" with ``bytes``: a smaller history; "run" with ``prompts`` and ``new_tokens``: seconds and processor seconds
    of one workload.
    """

    def __init__(self, manager: Any = None, app: MonitorApp | None = None) -> None:
        self.manager, self.app = manager, app
        self.late: list[float] = []
        self._process = psutil.Process()
        self._runs = 0

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        return getattr(self, question["do"])(**{k: v for k, v in question.items() if k != "do"})

    def sample(self) -> dict[str, Any]:
        state = None if self.app is None else self.app.session.state
        late, self.late = self.late, []
        return {
            "at": time.monotonic(),
            "threads": _thread_seconds(),
            "process": sum(self._process.cpu_times()[:2]),
            "rss": self._process.memory_info().rss,
            "step": 0 if state is None else state.step,
            "oldest": 0 if state is None else state.oldest,
            "counted": 0 if state is None else state.history.size + state.beside,
            "limit": 0 if state is None else state.history.limit_bytes,
            "missed": 0 if state is None else sum(entry.a for entry in state.log if entry.kind == "missed"),
            "late": late,
            "ready": state is not None,
            "running": 0 if state is None else len(state.picture.running),
        }

    def scrub(self, times: int) -> dict[str, Any]:
        app = self.app
        assert app is not None and app.session.state is not None
        state, draw, took, spent = app.session.state, random.Random(3), [], []
        for _ in range(times):
            step = draw.randint(state.oldest, state.step - 1)
            began, mark = time.perf_counter(), time.thread_time()
            app.place.go_to(step)
            took.append((time.perf_counter() - began) * 1e3)
            spent.append((time.thread_time() - mark) * 1e3)
        app.change(past=None)
        return {"ms": took, "cpu_ms": spent, "kept": state.step - state.oldest}

    def limit(self, bytes: int) -> dict[str, Any]:
        assert self.app is not None and self.app.session.state is not None
        self.app.session.state.history.limit_bytes = bytes
        return {}

    def run(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        before, process = _thread_seconds(), sum(self._process.cpu_times()[:2])
        seconds, tokens = asyncio.run(self._generate(prompts, new_tokens))
        after, spent = _thread_seconds(), sum(self._process.cpu_times()[:2]) - process
        used = {name: after[name] - before.get(name, 0.0) for name in after}
        return {"seconds": seconds, "tokens": tokens, "process": spent, "threads": used}

    async def _generate(self, prompts: list[list[int]], new_tokens: int) -> tuple[float, int]:
        """Seconds until the last of the prompts is done, and tokens made."""
        manager = self.manager if self.app is None else self.app.session.manager
        loop = asyncio.get_running_loop()
        ends = {f"run-{self._runs}-{number}": loop.create_future() for number in range(len(prompts))}
        self._runs += 1
        for name, end in ends.items():
            manager.register_result_handler(name, end.set_result)
        began = time.perf_counter()
        for name, prompt in zip(ends, prompts, strict=True):
            manager.add_request(prompt, request_id=name, max_new_tokens=new_tokens, eos_token_id=-1, do_sample=False)
        outputs = await asyncio.gather(*ends.values())
        return time.perf_counter() - began, sum(len(output.generated_tokens) for output in outputs)

    def serve(self, wire: socket.socket) -> None:
        """Answers until the other side closes, then ends the process: whoever measured is gone, the terminal too."""
        try:
            self._serve(wire)
        finally:
            os._exit(1)

    def _serve(self, wire: socket.socket) -> None:
        """Questions that touch the screen are handed to its event loop."""
        lines = wire.makefile("rw")
        for line in lines:
            question = json.loads(line)
            try:
                if self.app is not None and question["do"] in ("sample", "scrub", "limit"):
                    found = asyncio.run_coroutine_threadsafe(self._on_loop(question), self.app.loop).result()
                else:
                    found = self.answer(question)
            except Exception as error:  # whoever asked is to know
                found = {"error": f"{type(error).__name__}: {error}"}
            lines.write(json.dumps(found) + "\n")
            lines.flush()

    async def _on_loop(self, question: Mapping[str, Any]) -> dict[str, Any]:
        return self.answer(question)


def _thread_seconds() -> dict[str, float]:
    """Processor seconds of each Python thread of this process by name."""
    found: dict[str, float] = {}
    for thread in threading.enumerate():
        if thread.ident is not None:
            seconds = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            found[thread.name] = found.get(thread.name, 0.0) + seconds
    return found


class ProbedApp(MonitorApp):
    """The monitor, with a probe beside it that starts with the event loop."""

    def __init__(self, launch: LaunchOptions, wire: socket.socket, lateness: bool) -> None:
        super().__init__(launch)
        self._wire, self._lateness = wire, lateness
        self.probe = Probe(app=self)

    def on_mount(self) -> None:
        """Called besides the monitor's own: Textual calls the handlers of all classes."""
        self.loop = asyncio.get_running_loop()
        threading.Thread(target=self.probe.serve, args=(self._wire,), name="probe", daemon=True).start()
        if self._lateness:
            self._due = self.loop.time() + BEAT
            self.loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self.loop.time()
        self.probe.late.append((now - self._due) * 1e3)
        self._due = now + BEAT
        self.loop.call_at(self._due, self._look)


def main(settings: Mapping[str, Any]) -> int:
    from tests.perf.engines import real, scripted

    wire = socket.socket(fileno=settings["socket"])
    if settings["engine"] == "real":
        load, make = real(settings["model"], settings["dtype"], settings["threads"])
    else:
        load, make = scripted(settings["seconds"], settings["busy"])

    def make_fed(loaded: Any, changes: Any) -> Any:
        manager = make(loaded)
        if settings.get("requests"):
            Feeder(manager, settings["requests"], settings["new_tokens"])
        return manager

    if not settings["monitor"]:
        manager = make_fed(load(), {})
        manager.start()
        Probe(manager).serve(wire)
        return 0
    with TemporaryDirectory() as folder:
        options = LaunchOptions(settings["engine"], lambda progress: load(), make_fed, config_dir=Path(folder))
        return run_monitor(options, lambda launch: ProbedApp(launch, wire, settings["lateness"]))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main(json.loads(sys.argv[1])))

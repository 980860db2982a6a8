"""The measurements of ``tests.perf.ui``, one function each: what was measured, by name of the target."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.perf.terminal import ROOT, Terminal, TerminalError
from tests.perf.watched import Program

Say = Callable[[str], None]
Found = dict[str, float]
ENGINE_THREAD = "continuous-batching"
OURS = (ENGINE_THREAD, "probe", "feeder")
"""Threads that are not the monitor's."""
SMALL_HISTORY = 1 << 20
"""Bytes after which a history is full while memory is measured."""
NOTICE = 6.0
"""Seconds after which the last notice has gone."""
MODES = (("4", ("TIMELINE", "peak", "waited")), ("6", ("effect", "max_batch_tokens")), ("1", ("KV BLOCKS", "BATCH")))
"""Keys of modes, and words that only their screen has."""


def percentile(values: Sequence[float], share: float) -> float:
    """Of any values; 0 when there are none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0


def screen_share(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Processor time of the monitor's threads between two samples, in percent of one core."""
    spent = sum(
        seconds - before["threads"].get(name, 0.0) for name, seconds in after["threads"].items() if name not in OURS
    )
    return 100.0 * spent / (after["at"] - before["at"])


def running(size: tuple[int, int], seconds: float, say: Say, engine: dict[str, Any]) -> Found:
    """32 running requests: what the monitor takes, how late its event loop is, what it writes."""
    say(f"{size[0]}x{size[1]}: 32 requests run")
    with Program(size, requests=32, new_tokens=400, lateness=True, **engine) as program:
        program.until_running(32)
        time.sleep(1.0)
        before, start = program.ask("sample"), program.terminal.position
        time.sleep(seconds)
        after, end = program.ask("sample"), program.terminal.position
        frames, passed = program.terminal.frames(start, end), after["at"] - before["at"]
        return {
            "cpu_percent": screen_share(before, after),
            "frames_per_s": len(frames) / passed,
            "steps_per_s": (after["step"] - before["step"]) / passed,
            "kb_per_frame": statistics.mean(frames) / 1e3 if frames else 0.0,
            "kb_per_frame_most": max(frames, default=0) / 1e3,
            "lag_p50_ms": percentile(after["late"], 0.5),
            "lag_p95_ms": percentile(after["late"], 0.95),
            "key_ms": _mode_keys(program.terminal, 4) * 1e3,
        }


def _mode_keys(terminal: Terminal, rounds: int) -> float:
    """Median seconds from a key that changes the mode to the first of its words."""
    took = []
    for key, words in MODES * rounds:
        start = terminal.position
        pressed = time.monotonic()
        terminal.key(key)
        took.append(terminal.wait_for(words, start, 10.0) - pressed)
        time.sleep(0.25)
    return statistics.median(took)


def busy(size: tuple[int, int], seconds: float, say: Say) -> Found:
    """The lateness of the event loop beside an engine that does not let go of the interpreter."""
    say(f"{size[0]}x{size[1]}: an engine in pure Python that is never idle")
    with Program(size, requests=32, new_tokens=400, seconds=0.03, busy=True, lateness=True) as program:
        program.until_running(32)
        program.ask("sample")
        time.sleep(seconds)
        late = program.ask("sample")["late"]
        return {"busy_lag_p50_ms": percentile(late, 0.5), "busy_lag_p95_ms": percentile(late, 0.95)}


def held(size: tuple[int, int], seconds: float, say: Say) -> Found:
    """A paused engine: keys, jumps through the past, what is written and used by itself, and the end."""
    say(f"{size[0]}x{size[1]}: paused, keys and jumps through the past")
    with Program(size, requests=32, new_tokens=400, seconds=0.002) as program:
        terminal = program.terminal
        program.until_running(32)
        time.sleep(4.0)
        terminal.key("space")
        time.sleep(1.0)
        jumps = program.ask("scrub", times=60)
        keys = []
        for key in ("[", "]", "down", "up") * 6:
            time.sleep(0.15)
            start, pressed = terminal.position, time.monotonic()
            terminal.key(key)
            keys.append(terminal.wait_for((), start, 10.0) - pressed)
        terminal.key("end")
        say(f"{size[0]}x{size[1]}: paused, nothing happens")
        time.sleep(NOTICE)
        before, start = program.ask("sample"), terminal.position
        time.sleep(seconds)
        after, end = program.ask("sample"), terminal.position
        terminal.key("space")
        time.sleep(0.5)
        pressed = time.monotonic()
        terminal.key("q")
        ended = terminal.wait_end()
        if ended is None:
            raise TerminalError("the monitor does not end")
        return {
            "scrub_ms": percentile(jumps["ms"], 0.95),
            "scrub_cpu_ms": percentile(jumps["cpu_ms"], 0.95),
            "scrub_kept_steps": float(jumps["kept"]),
            "paused_key_ms": statistics.median(keys) * 1e3,
            "paused_bytes": float(end - start),
            "paused_cpu_percent": screen_share(before, after),
            "exit_s": ended - pressed,
        }


def first_frame(size: tuple[int, int], model: str | None, say: Say) -> Found:
    """Seconds from the start of the process to the first frame of ``cbtui``, the middle of five."""
    say(f"{size[0]}x{size[1]}: the first frame")
    with TemporaryDirectory() as folder:
        if model is None:
            from tests.cli.tiny_files import make_folder

            model = str(make_folder(Path(folder) / "tiny"))
        took = []
        for _ in range(5):
            terminal = Terminal([sys.executable, "-m", "cbtui", "--model", model], size)
            try:
                took.append(terminal.wait_for(("cbtui",), 0, 30.0) - terminal.started)
            finally:
                terminal.close()
    return {"first_frame_s": statistics.median(took), "torch_before_frame": float(_torch_comes_with_the_app())}


def _torch_comes_with_the_app() -> bool:
    """Whether what is imported before the first frame pulls torch in."""
    code = "import sys, cbtui.cli, cbtui.start, cbtui.run; sys.exit('torch' in sys.modules)"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode != 0


def memory(size: tuple[int, int], steps: int, say: Say) -> Found:
    """How memory grows in an hour at 100 steps/s, 360,000 steps, from the moment on when 32 requests run.

    First with a history that is full soon, for ``steps`` steps: how much the process takes more in the end, and what
    still grows then. That is little by little what is limited too, the widths of texts that the screen remembers: the
    fewer steps, the more this is taken for something that goes on for the hour. Then with the history's own limit, for
    a third as many: how much memory a byte takes that the history counts. The rest is multiplication: the bytes up to
    that limit, the steps up to an hour. Raises TerminalError when records were missed: their bytes were not measured.
    """
    hour = 360_000
    with Program(size, requests=32, new_tokens=400, seconds=0.002) as program:
        program.until_running(32)
        limit = program.ask("sample")["limit"]
        program.ask("limit", bytes=SMALL_HISTORY)
        full = _grow(program, steps, say, "a small history is full")
        program.ask("limit", bytes=limit)
        filling = _grow(program, steps // 3, say, "the history fills")
    if filling[-1]["missed"]:
        raise TerminalError(f"{filling[-1]['missed']} records were missed")
    grown, passed = full[-1]["rss"] - full[0]["rss"], full[-1]["step"] - full[0]["step"]
    kept, leak = _slope(filling, "counted"), max(0.0, _slope(full, "rss"))
    ratio = max(0.0, _slope(filling, "rss") - leak) / kept
    to_come = min(limit, kept * hour) - full[-1]["counted"]
    return {
        "memory_pace": _slope(full, "step", "at"),
        "history_bytes_per_step": kept,
        "bytes_per_counted": ratio,
        "bytes_per_step_full": leak,
        "small_history_mb": grown / 1e6,
        "hour_mb": (grown + to_come * ratio + leak * (hour - passed)) / 1e6,
        "history_minutes": min(60.0, limit / kept / 6000),
        "memory_steps": float(filling[-1]["step"] - full[0]["step"]),
    }


def _grow(program: Program, steps: int, say: Say, phase: str) -> list[dict[str, Any]]:
    """Samples while that many steps pass."""
    samples = [program.ask("sample")]
    first = samples[0]["step"]
    while samples[-1]["step"] < first + steps:
        time.sleep(1.0)
        samples.append(program.ask("sample"))
        say(f"memory, {phase}: step {samples[-1]['step'] - first} of {steps}, {samples[-1]['rss'] / 1e6:.0f} MB")
    return samples


def _slope(samples: Sequence[dict[str, Any]], name: str, per: str = "step") -> float:
    """Growth per step, by least squares over the last third of the samples, when start-up is over."""
    late = samples[len(samples) * 2 // 3 :]
    steps, values = [s[per] for s in late], [s[name] for s in late]
    return statistics.linear_regression(steps, values).slope if len(set(steps)) > 1 else 0.0

"""llama.cpp's server, started anew for every job. Settings: server (path), gguf, threads. Standard library only."""

import json
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from typing import Any

from tests.benchmarks.workers.wire import Job, serve


def open_engine(settings: dict[str, Any]) -> tuple[str, Job]:
    version = subprocess.run([settings["server"], "--version"], capture_output=True, text=True, check=False)
    first = (version.stdout + version.stderr).strip().splitlines()
    return f"llama.cpp {first[0] if first else ''}", lambda prompts, new: _run(settings, prompts, new)


def _run(
    settings: dict[str, Any], prompts: list[list[int]], new_tokens: int
) -> tuple[list[list[int]], list[list[float]], float]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    longest = max(map(len, prompts)) + new_tokens + 8
    command = [
        settings["server"], "-m", settings["gguf"], "-t", str(settings["threads"]), "-np", str(len(prompts)),
        "-c", str(longest * len(prompts)), "--port", str(port), "--no-webui", "--offline",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(process, port)
        tokens: list[list[int]] = [[] for _ in prompts]
        times: list[list[float]] = [[] for _ in prompts]
        errors: list[str] = []
        began = time.perf_counter()
        threads = [
            threading.Thread(target=_ask, args=(port, prompt, new_tokens, began, tokens[i], times[i], errors))
            for i, prompt in enumerate(prompts)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise RuntimeError(errors[0])
        return tokens, times, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise RuntimeError("the server was not ready after 120 s")


def _ask(
    port: int, prompt: list[int], new: int, began: float, tokens: list[int], times: list[float], errors: list[str]
) -> None:
    body = {
        "prompt": prompt, "n_predict": new, "temperature": 0, "ignore_eos": True, "stream": True,
        "return_tokens": True, "cache_prompt": True,
    }  # fmt: skip
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=3600) as answer:
            for line in answer:
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line[6:])
                if event.get("stop"):
                    return
                fresh = event.get("tokens") or [-1]
                tokens += fresh
                times += [time.perf_counter() - began] * len(fresh)
    except Exception as error:  # told by the thread that waits for this one
        errors.append(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    serve(open_engine)

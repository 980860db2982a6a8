"""Compiles the kernels on first use and keeps the library in the user's cache folder.

The sources need a C++20 compiler and nothing else: no headers of PyTorch, so that a build takes seconds and one library
serves every PyTorch version.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import platformdirs
import torch

_SOURCES = Path(__file__).parent / "kernels"
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++20", "-O3", "-fno-math-errno", "-pthread", "-shared", "-fPIC")
_PREFIX = "building-"
"""Of the folders compilers write into."""
_TIMEOUT = 300.0
_BEAT = 0.2
"""Seconds between two calls of ``waiting``."""

Waiting = Callable[[], None]
"""Called again and again while the compiler runs; what it raises ends the compiler and comes out of the build."""


class BuildError(RuntimeError):
    """The kernels cannot be used here; the message says why in one line."""


def load_kernels(
    dtype: torch.dtype,
    *,
    arch: tuple[str, ...] = ("-march=native",),
    cache: Path | None = None,
    waiting: Waiting | None = None,
) -> ctypes.CDLL:
    """The kernels for one element type, compiled now unless an earlier run left them in the cache folder.

    Args:
        dtype: ``torch.float32`` or ``torch.bfloat16``.
        arch: compiler flags that choose the instruction set; the default is everything this machine has.
        cache: folder for compiled libraries; default is the platform's user cache folder.
        waiting: called first when a compilation begins, then until it ends; not called when there is nothing to do.

    Raises:
        BuildError: no compiler, a failed compilation, or a folder that cannot be written.
    """
    command, library = _plan(dtype, arch, cache)
    waiting = waiting or _wait_in_silence
    try:
        if not library.exists():
            waiting()
            with Compilation(command, library) as compilation:
                compilation.finish(waiting)
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise BuildError(f"cannot build or load {library}: {error}") from error


def begin_kernels(
    dtype: torch.dtype,
    *,
    arch: tuple[str, ...] = ("-march=native",),
    cache: Path | None = None,
    waiting: Waiting | None = None,
) -> "Compilation | None":
    """The compiler at work for what ``load_kernels`` will ask for, so that the caller can do something else meanwhile.

    None when it is compiled already, or cannot be: ``load_kernels`` says why.

    Args:
        waiting: called on a thread of its own until it ends: the caller may be busy with what cannot be interrupted.
    """
    with suppress(BuildError, OSError):
        command, library = _plan(dtype, arch, cache)
        if not library.exists():
            compilation = Compilation(command, library)
            if waiting is not None:
                watch = threading.Thread(target=compilation.watch, args=(waiting,), name="cbtui-compile", daemon=True)
                watch.start()
            return compilation
    return None


def _plan(dtype: torch.dtype, arch: tuple[str, ...], cache: Path | None) -> tuple[list[str], Path]:
    """The compiler's command, without source and output, and where the library belongs."""
    element = {torch.float32: "float", torch.bfloat16: "bf16"}.get(dtype)
    if element is None:
        raise BuildError(f"the kernels compute in float32 and bfloat16, not in {str(dtype).removeprefix('torch.')}")
    compiler = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        raise BuildError(f"no C++ compiler found (looked for {', '.join(_COMPILERS)})")
    command = [compiler, *_FLAGS, *arch, f"-DELEMENT={element}"]
    folder = cache if cache is not None else platformdirs.user_cache_path("cbtui") / "kernels"
    return command, folder / f"fast-{element}-{_fingerprint(command)}.so"


class Compilation:
    """A compiler at work in a process of its own; leaving the context ends it.

    It writes into a folder of its own, and ``finish`` renames the file, so that two processes may build at once.
    """

    def __init__(self, command: list[str], library: Path) -> None:
        library.parent.mkdir(parents=True, exist_ok=True)
        for left in library.parent.glob(f"{_PREFIX}*"):  # by programs that were killed meanwhile
            if time.time() - left.stat().st_mtime > 2 * _TIMEOUT:
                shutil.rmtree(left, ignore_errors=True)
        self._library = library
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=library.parent)
        self._output, self._said = Path(self._folder.name) / library.name, Path(self._folder.name) / "said"
        self._compiler = command[0]
        full = [*command, str(_SOURCES / "step.cpp"), "-o", str(self._output)]
        try:
            with self._said.open("wb") as said:
                # In a group of its own, so that the programs a compiler calls end with it.
                self._process = subprocess.Popen(full, stdout=subprocess.DEVNULL, stderr=said, process_group=0)
        except BaseException:
            self._folder.cleanup()
            raise
        self._ends = time.monotonic() + _TIMEOUT
        self._given_up: BaseException | None = None
        self._closing = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def finish(self, waiting: Waiting) -> None:
        """Waits for its end, ``waiting`` being called until then, and puts the library in its place.

        Raises:
            BuildError: it failed, or takes too long. And whatever ``waiting`` raises, here or in ``watch``.
        """
        while self._process.poll() is None:
            if time.monotonic() > self._ends:
                raise BuildError(f"the compiler took more than {_TIMEOUT:.0f} s")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_BEAT)
                break
            waiting()
        if self._given_up is not None:
            raise self._given_up
        if self._process.returncode != 0:
            said = self._said.read_text(encoding="utf-8", errors="replace")
            first = next((line for line in said.splitlines() if "error" in line), said.strip()[:200])
            raise BuildError(f"{self._compiler} failed: {first}")
        os.replace(self._output, self._library)

    def watch(self, waiting: Waiting) -> None:
        """Calls ``waiting`` until the compiler ends; when it raises, that is the end of the compiler."""
        while True:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_BEAT)
                return
            try:
                waiting()
            except BaseException as error:  # it comes out of ``finish``
                self._given_up = error
                self.close()
                return

    def close(self) -> None:
        """Ends the compiler if it still runs, and removes what it wrote. From any thread."""
        with self._closing:
            self._end()
            self._folder.cleanup()

    def _end(self) -> None:
        if self._process.poll() is None:
            if os.name == "posix":  # told to end, a compiler removes its files in other folders too
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_BEAT)
            self._process.kill()
            self._process.wait()


def _wait_in_silence() -> None:
    """Nobody is to be told."""


def _fingerprint(command: list[str]) -> str:
    """Changes with the sources, the compiler, the flags and the processor (the cache folder may be shared)."""
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    status = os.stat(command[0])
    parts = [*command, str(status.st_size), str(status.st_mtime_ns), platform.machine(), _processor()]
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()


def _processor() -> str:
    """Name and instruction sets of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))

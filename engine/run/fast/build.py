"""Compiles the kernels on first use and keeps the library in the user's cache folder.

The sources need a C++17 compiler and nothing else: no headers of PyTorch, so that a build takes seconds and one library
serves every PyTorch version.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import platformdirs
import torch

_SOURCES = Path(__file__).parent / "kernels"
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")
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
    element = {torch.float32: "float", torch.bfloat16: "bf16"}.get(dtype)
    if element is None:
        raise BuildError(f"the kernels compute in float32 and bfloat16, not in {str(dtype).removeprefix('torch.')}")
    compiler = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        raise BuildError(f"no C++ compiler found (looked for {', '.join(_COMPILERS)})")
    command = [compiler, *_FLAGS, *arch, f"-DELEMENT={element}"]
    folder = cache if cache is not None else platformdirs.user_cache_path("cbtui") / "kernels"
    library = folder / f"fast-{element}-{_fingerprint(command)}.so"
    try:
        if not library.exists():
            _compile(command, library, waiting or _wait_in_silence)
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise BuildError(f"cannot build or load {library}: {error}") from error


def _compile(command: list[str], library: Path, waiting: Waiting) -> None:
    """Compiles into a file of its own and renames it, so that two processes may build at once."""
    waiting()
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        output = Path(folder) / library.name
        full = [*command, str(_SOURCES / "step.cpp"), "-o", str(output)]
        with subprocess.Popen(full, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as compiler:
            try:
                said = _finish(compiler, waiting)
            except BaseException:
                compiler.kill()
                raise
        if compiler.returncode != 0:
            first = next((line for line in said.splitlines() if "error" in line), said.strip()[:200])
            raise BuildError(f"{command[0]} failed: {first}")
        os.replace(output, library)


def _finish(compiler: "subprocess.Popen[str]", waiting: Waiting) -> str:
    """What the compiler said."""
    ends = time.monotonic() + _TIMEOUT
    while True:
        try:
            return compiler.communicate(timeout=_BEAT)[1]
        except subprocess.TimeoutExpired:
            waiting()
        if time.monotonic() > ends:
            raise BuildError(f"the compiler took more than {_TIMEOUT:.0f} s")


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

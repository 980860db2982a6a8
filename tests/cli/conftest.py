"""A tiny model folder and GGUF file shared by the tests of the command line, and a way to run it."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pytest

from cbtui.cli import run
from tests.cli.tiny_files import make_folder, make_gguf

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama with a tokenizer of characters, as ``save_pretrained`` writes it. Not to be changed."""
    return make_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama as a GGUF file. Not to be changed."""
    return make_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@dataclass(frozen=True)
class Result:
    """What a command left: its exit code and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command in this process, which is quicker: torch is loaded already."""

    def run_here(*arguments: str | Path, stdin: str = "") -> Result:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = run([*map(str, arguments), *(["--threads", "1"] if "--model" in arguments else [])])
        shown = capsys.readouterr()
        return Result(code, shown.out, shown.err)

    return run_here


def share_kernels(cache: Path) -> None:
    """Lets a process with a cache folder of its own find the compiled kernels: compiling takes seconds."""
    kernels = platformdirs.user_cache_path("cbtui") / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (cache / "cbtui").mkdir(parents=True)
    (cache / "cbtui" / "kernels").symlink_to(kernels, target_is_directory=True)


@pytest.fixture
def cbtui(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``python -m cbtui`` in a process of its own, with its own empty cache and configuration folders."""
    share_kernels(tmp_path / "cache")

    def run(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(tmp_path / "hub"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "COLUMNS": "120",
        }
        return subprocess.run(
            [sys.executable, "-m", "cbtui", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=100,
            check=False,
        )

    return run

"""The command as a person types it: help, version, information, and errors of one line with their exit codes."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cbtui.cli import run
from cbtui.options import engine_options
from cbtui.version import __version__

ROOT = Path(__file__).parents[2]
Command = Callable[..., subprocess.CompletedProcess[str]]


def one_line(result: subprocess.CompletedProcess[str], code: int) -> str:
    """Standard error of a command that failed as it should: one line of its own, no traceback."""
    assert result.returncode == code, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("cbtui: ")]
    assert len(lines) == 1 and "Traceback" not in result.stderr
    return lines[0]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["generate", "--help"], ["--page-size", "2"], ["models", "--help"]]
)
def test_torch_and_transformers_are_not_imported_before_they_are_needed(arguments: list[str]) -> None:
    program = (
        "import sys; from cbtui.cli import run; code = run(sys.argv[1:]); "
        "heavy = [m for m in ('torch', 'transformers', 'textual', 'numpy') if m in sys.modules]; "
        "print('HEAVY', heavy)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.splitlines()[-1] == "HEAVY []"


def test_help_names_every_option_of_the_engine(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for arguments in (["--help"], ["generate", "--help"]):
        assert run(arguments) == 0
        shown = capsys.readouterr().out
        for option in engine_options():
            hidden = option.name in ("block_size", "use_default_compile_configs", "max_cached_graphs")
            assert (f"--{option.name.replace('_', '-')} " in shown) != hidden, option.name


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"cbtui {__version__}\n"


def test_python_m_is_the_same_command(cbtui: Command) -> None:
    assert cbtui("--version").stdout == f"cbtui {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--page-siz", "2"], 2, "No such option: --page-siz"),
        (["--page-size", "2"], 2, "--page-size 2: it must be an int >= 4 (tokens); 16 to 256 works well."),
        (["--temperature", "hot"], 2, "--temperature hot: temperature must be a number"),
        (["--theme", "pink"], 2, "--theme pink: there are dark"),
        (["--once", "--size", "big"], 2, "--size big: must be columns x rows"),
        (["--once", "--size", "80x8"], 2, "from 40x10 to 1000x1000"),
        (["generate", "--prompt", "a", "--prompt", ""], 2, "--prompt: the text is empty"),
        (["--once", "--prompt", "  "], 2, "--prompt: the text is empty"),
        (["--model", "x", "generate"], 2, "--model stands before generate"),
        (["nonsense"], 2, "No such command"),
        (["--prompts-file", "/nowhere.txt"], 2, "--prompts-file: /nowhere.txt cannot be read"),
        (["generate", "--model", "./nowhere", "--prompt", "a"], 3, "There is no file or folder ./nowhere"),
        (["generate", "--model", "owner/name", "--prompt", "a"], 3, "not complete in the local hub cache"),
        (["generate", "--model", "x", "--prompt", "a", "--device", "tpu"], 3, "'tpu' is not a device"),
        (["models", "fetch", "nope"], 3, "'nope' is not a known model name"),
        (["models", "remove", "nope"], 3, "'nope' is not a known model name"),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("cbtui: ") and shown.err.count("\n") == 1
    assert said in shown.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize(
    ("arguments", "buffered"),
    [
        (["--help"], True),
        (["--help"], False),
        (["scenarios"], True),
        (["info"], False),
        (["generate", "--prompt", "a"], True),
        (["--once", "--prompt", "a"], False),
    ],
)
def test_a_full_disk_is_told_in_one_line(arguments: list[str], buffered: bool, tiny_folder: Path) -> None:
    if "--prompt" in arguments:
        arguments = [*arguments, "--model", str(tiny_folder), "--max-new-tokens", "2", "--device", "cpu"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "cbtui", *arguments],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
        )  # fmt: skip
    assert one_line(result, 5) == "cbtui: nothing more can be written: No space left on device"


def test_an_error_of_another_kind_is_not_taken_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise PermissionError(13, "Permission denied", "secret")

    monkeypatch.setattr("cbtui.info.lines", fail)
    with pytest.raises(PermissionError):
        run(["info"])


def test_help_for_nobody_ends_as_everything_else_does() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody:
        result = subprocess.run(
            [sys.executable, "-m", "cbtui", "--help"], cwd=ROOT, stdout=nobody, stderr=subprocess.PIPE, text=True,
            timeout=100, check=False,
        )  # fmt: skip
    assert (result.returncode, result.stderr) == (141, "")


def test_without_a_terminal_the_monitor_says_what_to_use(cbtui: Command, tiny_folder: Path) -> None:
    assert "cbtui --once, or cbtui generate" in one_line(cbtui("--model", tiny_folder), 2)


def test_generate_without_a_prompt(cbtui: Command, tiny_folder: Path) -> None:
    assert "there is no prompt: standard input is empty" in one_line(cbtui("generate", "--model", tiny_folder), 2)


def test_a_download_is_not_started_without_a_terminal_to_ask_at(cbtui: Command) -> None:
    result = cbtui("generate", "--model", "smollm2", "--prompt", "a")
    assert "93 MB" in one_line(result, 3) and "--yes" in result.stderr


def test_info_tells_versions_devices_backends_folders_and_threads(cbtui: Command) -> None:
    result = cbtui("info")
    assert result.returncode == 0
    for word in (__version__, "torch", "transformers", "cpu", "sdpa", "flash_attention_2", "hub", "threads", "smollm2"):
        assert word in result.stdout, word
    assert "use_cuda_graph         (False, False): needs a CUDA device, this is cpu" in result.stdout


def test_the_list_of_models_says_what_is_here(cbtui: Command) -> None:
    shown = cbtui("models", "list").stdout
    assert "smollm2" in shown and "Apache-2.0" in shown and "93 MB to download" in shown
    assert "was not on this machine" in cbtui("models", "remove", "smollm2").stdout


def test_the_command_line_keeps_its_imports_light() -> None:
    """Heavy packages may only be imported inside functions of these modules."""
    for name in ("cli", "options", "start", "headless", "info", "show", "promptfile", "__main__"):
        tree = ast.parse((ROOT / "cbtui" / f"{name}.py").read_text())
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {(getattr(node, "module", None) or node.names[0].name).split(".")[0] for node in top}
        assert not modules & {"torch", "transformers", "textual", "huggingface_hub", "numpy"}, name

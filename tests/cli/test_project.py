"""The project's files agree with each other."""

import re
import tomllib
from pathlib import Path

from cbtui.version import __version__
from engine.core.options import ContinuousBatchingConfig

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def commands_under(heading: str) -> list[str]:
    """Every line of the shell blocks in a section of the README."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for block in re.findall(r"```bash\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]


def test_the_last_command_of_ci_is_the_readmes_test_command() -> None:
    start, test = commands_under("Start")
    assert start == "pip install -e . && cbtui"
    assert CI.rstrip().splitlines()[-1] == test


def test_ci_runs_the_checkers_the_readme_names() -> None:
    ci = CI.splitlines()
    for command in commands_under("Development"):
        if command in ("pytest", "pytest -m slow", ".ci/run"):
            continue
        assert command in ci, command


def test_ci_installs_what_the_project_asks_for() -> None:
    assert "pip install --quiet torch==2.13.0" in CI
    assert any(dependency.startswith("torch>=2.9,<3") for dependency in PROJECT["project"]["dependencies"])
    assert "http" not in CI and "--index" not in CI


def test_options_the_readme_names_exist() -> None:
    from cbtui.options import MODEL_OPTIONS, MONITOR_OPTIONS, REQUEST_OPTIONS, engine_options

    options = (*MODEL_OPTIONS, *REQUEST_OPTIONS, *MONITOR_OPTIONS, *engine_options())
    known = {"--" + option.name.replace("_", "-") for option in options} | {"--json", "--version", "--help"}
    known.add("--nproc-per-node")  # torchrun's
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README))
    assert named and named - known == set()


def test_the_folders_of_the_map_exist() -> None:
    section = README.split("\n## Map\n")[1].split("\n## ")[0]
    folders = re.findall(r"`([\w/]+/)`", section)
    assert len(folders) >= 8
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_version_licence_and_entry_point() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert "Apache License" in (ROOT / "LICENSE").read_text() and PROJECT["project"]["license"] == "Apache-2.0"
    assert PROJECT["project"]["scripts"] == {"cbtui": "cbtui.__main__:main"}
    assert ContinuousBatchingConfig().page_size == 256  # the README's "engine's own defaults"

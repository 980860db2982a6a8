"""Scenarios on the command line: the list, frames without a terminal, mistakes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cbtui.cli import run
from cbtui.scenarios.find import ORDER
from tests.cli.conftest import Result

Command = Callable[..., Result]


def test_the_list_names_all_of_them_and_where_a_persons_own_are_looked_for(here: Command) -> None:
    result = here("scenarios")
    assert result.returncode == 0
    assert [line.split()[0] for line in result.stdout.splitlines()][: len(ORDER)] == list(ORDER)
    assert "sliding-window" in result.stdout and "demo-hybrid" in result.stdout
    assert "scenarios" in result.stderr and "--scenario path.toml" in result.stderr


def test_frames_at_the_captions(here: Command, tiny_folder: Path) -> None:
    result = here("--once", "--scenario", "never-fits", "--model", tiny_folder, "--size", "120x36", "--ascii")
    assert result.returncode == 0, result.stderr
    frames = result.stdout.split("\n\n cbtui")
    assert len(frames) == 4 and all(f" {n}/4 " in frame for n, frame in enumerate(frames, 1))
    assert "refused: can never fit" in frames[1] and result.stdout.isascii()


def test_a_scenario_in_another_mode(here: Command, tiny_folder: Path) -> None:
    result = here("--once", "--scenario", "never-fits", "--model", tiny_folder, "--mode", "6")
    assert result.stdout.count("max_batch_tokens") >= 4


@pytest.mark.parametrize(("given", "mode"), [((), None), (("--mode", "3"), 3)])
def test_the_monitor_is_told_of_a_mode_only_when_one_is_given(given, mode, monkeypatch) -> None:
    told: dict[str, object] = {}
    monkeypatch.setattr("cbtui.start.launch", lambda choices, **options: told.update(options) or 0)
    assert run(["--scenario", "never-fits", *given]) == 0
    assert told["mode"] == mode and told["scenario"].name == "never-fits"


def test_a_file_of_ones_own(here: Command, tiny_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'title = "Mine"\nteaches = "What a file can do."\n[[requests]]\nname = "A"\ntext = "Hello"\n'
        'max_new_tokens = 4\n[[captions]]\nat = 2\ntext = "{A} has {A.output} tokens"\n'
        '[[captions]]\nwhen = "offload"\ntext = "It never comes"\n'
    )
    result = here("--once", "--scenario", path, "--model", tiny_folder)
    assert result.returncode == 1  # one caption did not come, and that is told
    assert " 1/2 A has 2 tokens" in result.stdout
    assert "1 of 2 captions did not come with this model" in result.stderr
    assert "steps/s" in result.stdout and " of 4 steps/s" not in result.stdout  # nothing sets a pace here


def test_captions_that_did_not_come_because_of_a_refusal(here: Command, tiny_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(
        'title = "Mine"\nteaches = "A pool far too small."\n[config]\nnum_blocks = 2\n[[requests]]\nname = "A"\n'
        'tokens = 200\ntopic = "rain"\nmax_new_tokens = 4\n[[captions]]\nat = 2\ntext = "Never"\n'
    )
    result = here("--once", "--scenario", path, "--model", tiny_folder)
    assert result.returncode == 1 and "1 of 1 captions did not come; request A was refused: " in result.stderr
    assert "block" in result.stderr and "with this model" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--scenario", "lunch"), "there is no scenario 'lunch'; `cbtui scenarios` lists them"),
        (("--scenario", "nothing.toml"), "nothing.toml cannot be read"),
        (("--scenario", "offload", "--prompt", "Hello"), "--scenario brings its own prompts"),
    ],
)
def test_what_cannot_be_played_is_told_in_one_line(here: Command, arguments: tuple[str, ...], sentence: str) -> None:
    result = here("--once", *arguments)
    assert result.returncode == 2 and sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_model_that_lacks_what_a_scenario_shows(here: Command, tiny_folder: Path) -> None:
    result = here("--once", "--scenario", "sliding-window", "--model", tiny_folder)
    assert result.returncode == 2 and "has no sliding-window layers" in result.stderr

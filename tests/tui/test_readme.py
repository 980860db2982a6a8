"""The README's tables of keys and scenarios are those the program has, and its example of a scenario is one."""

import re
from pathlib import Path

from cbtui.keys import keymap, markdown
from cbtui.scenarios import find
from cbtui.scenarios.read import read_scenario
from cbtui.settings import FILE, SettingsFile
from tests.scenarios.run import loaded_for, play

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_keys_of_the_readme_are_those_of_the_program() -> None:
    assert markdown().strip() in README


def test_the_example_of_other_keys_is_taken(tmp_path: Path) -> None:
    example = re.search(r"`(keymap\.(\w+) = \[.*?\])`", README)
    assert example is not None
    (tmp_path / FILE).write_text(f"ascii = true\n{example[1]}\n", encoding="utf-8")
    store = SettingsFile(tmp_path)
    assert store.problem is None and store.settings.ascii
    (wanted,) = store.settings.keymap.items()
    assert wanted[0] == example[2] and keymap(store.settings.keymap)[example[2]] == wanted[1]


def test_the_scenarios_of_the_readme_are_those_of_the_package() -> None:
    assert find.markdown().strip() in README


def test_the_example_of_a_scenario_is_played_to_its_end(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", README, re.DOTALL)
    assert example is not None
    path = tmp_path / "example.toml"
    path.write_text(example[1], encoding="utf-8")
    scenario = read_scenario(path)
    run = play(scenario, loaded_for("demo"))
    assert [moment.caption for moment, _ in run.told] == list(range(len(scenario.captions)))
    assert run.told[-1][1] == ("A wrote 60 tokens, and no two of them were more than 1 step apart",)


def test_figures_the_readme_names_exist() -> None:
    from cbtui.scenarios.figures import ENGINE, GROUP, REQUEST

    section = README.split("### Your own")[1].split("\n## ")[0]
    named = re.findall(r"`\{([\w.]+)\}`", section)
    assert len(named) >= 4
    for name in named:
        known = name.split(".")[-1] in {*REQUEST, *GROUP} if "." in name else name in ENGINE or len(name) == 1
        assert known or name.startswith("key."), name

"""The README's table of keys is the one the program has."""

from pathlib import Path

from cbtui.keys import markdown


def test_the_keys_of_the_readme_are_those_of_the_program() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert markdown().strip() in readme

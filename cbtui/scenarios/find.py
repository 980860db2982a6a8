"""Where scenarios are: in the package, in a folder of the person's own, or in a file that is named."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from cbtui.scenarios.plot import Scenario, ScenarioError
from cbtui.scenarios.read import read_scenario

FOLDER = "scenarios"
BUNDLED = Path(__file__).parent / "files"
FIRST = "first-tokens"
"""What a person sees who asked for nothing."""
ORDER = (
    FIRST, "static-and-continuous", "long-prompt", "prefix-sharing", "recompute", "offload", "large-pages",
    "small-pages", "head-of-line", "prefill-first", "safety-margin", "sliding-window", "cancel-storm", "never-fits",
    "sampling", "rush-hour",
)  # fmt: skip
"""The scenarios of the package in the order in which they build on each other."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """All scenarios at hand, the package's own first, and a sentence for each file that cannot be used."""

    scenarios: tuple[Scenario, ...]
    problems: tuple[str, ...] = ()

    def after(self, name: str) -> Scenario:
        """The scenario that follows, the first one after the last."""
        names = [scenario.name for scenario in self.scenarios]
        place = names.index(name) if name in names else -1
        return self.scenarios[(place + 1) % len(names)]


def own_folder(folder: Path | None = None) -> Path:
    """Where a person's own scenarios are looked for; it may not exist."""
    return (folder or Path(platformdirs.user_config_dir("cbtui", appauthor=False))) / FOLDER


def all_scenarios(folder: Path | None = None) -> Shelf:
    """The scenarios of the package and those in a person's own folder.

    Args:
        folder: where settings are kept; None is the platform's folder.
    """
    found: dict[str, Scenario] = {name: read_scenario(BUNDLED / f"{name}.toml") for name in ORDER}
    problems = []
    for path in _files(own_folder(folder)):
        try:
            scenario = read_scenario(path)
        except ScenarioError as error:
            problems.append(str(error))
            continue
        if scenario.name in found:
            problems.append(f"{path}: the name {scenario.name!r} is taken; rename the file")
        else:
            found[scenario.name] = scenario
    return Shelf(tuple(found.values()), tuple(problems))


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*.toml")) if folder.is_dir() else ()


def find_scenario(name: str, folder: Path | None = None) -> Scenario:
    """The scenario of a name, or of a file when ``name`` ends in ``.toml``.

    Raises:
        ScenarioError: there is none, or its file is not right.
    """
    if name.endswith(".toml"):
        return read_scenario(Path(name))
    if name in ORDER:
        return read_scenario(BUNDLED / f"{name}.toml")
    path = own_folder(folder) / f"{name}.toml"
    if path.is_file():
        return read_scenario(path)
    raise ScenarioError(f"there is no scenario {name!r}; `cbtui scenarios` lists them, a file's name ends in .toml")


def markdown() -> str:
    """The table of the package's scenarios for the README."""
    lines = ["| `--scenario` | what it shows |", "|---|---|"]
    for scenario in (read_scenario(BUNDLED / f"{name}.toml") for name in ORDER):
        lines.append(f"| `{scenario.name}` | {scenario.title}. {scenario.teaches} |")
    return "\n".join(lines) + "\n"

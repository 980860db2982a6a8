"""Makes the pictures of this folder from scenarios that really run.

    python screenshots/make.py

Every picture is the screen at a caption of a scenario, in three sizes and two themes, as SVG and, where cairosvg is
installed, as PNG, and as plain text. Without ``--model`` each scenario runs on the model it is made for. Times shown in
the pictures are those of the machine that made them.
"""

import argparse
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cbtui.offscreen import Offscreen
from cbtui.scenarios import find_scenario
from cbtui.scenarios.figures import Moment
from cbtui.scenarios.plot import Scenario
from cbtui.theme import theme_named
from cbtui.view.frame import screen_text
from cbtui.view.svg import svg
from engine.loading import Loaded, load

SIZES = ((80, 24), (120, 36), (200, 60))
THEMES = ("dark", "light")
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture's name, the caption of the scenario it is taken at (from 1), and the mode that is shown."""

    name: str
    scenario: str
    caption: int
    mode: int = 1


PICTURES = (
    Picture("monitor", "rush-hour", 4),
    Picture("prefill", "long-prompt", 4),
    Picture("sharing", "prefix-sharing", 3),
    Picture("offload", "offload", 2),
    Picture("timeline", "prefill-first", 4, mode=4),
)


def play(scenario: Scenario, loaded: Loaded, folder: Path) -> Iterator[Path]:
    """Runs a scenario and draws its pictures on the way."""
    wanted = {picture.caption: picture for picture in PICTURES if picture.scenario == scenario.name}
    monitor = Offscreen(loaded, {**scenario.config, "host_blocks": scenario.host_blocks})
    for moment in monitor.play(scenario):
        picture = wanted.pop(moment.caption + 1, None)
        if picture is not None:
            yield from draw(picture, monitor, scenario, moment, folder)
    monitor.close()
    if wanted:
        raise SystemExit(f"{scenario.name}: caption {min(wanted)} did not come with {loaded.name}")


def draw(picture: Picture, monitor: Offscreen, scenario: Scenario, moment: Moment, folder: Path) -> list[Path]:
    """The screen at this moment: every size in every theme, and as plain text."""
    made = []
    caption = monitor.caption(scenario, moment)
    views = {"map_view": scenario.map_view} if scenario.map_view else {}
    png = importlib.util.find_spec("cairosvg") is not None
    for columns, lines in SIZES:
        for theme_name in THEMES:
            theme = theme_named(theme_name)
            rows = monitor.rows((columns, lines), theme, mode=picture.mode, caption=caption, **views)
            path = folder / f"{picture.name}-{columns}x{lines}-{theme_name}.svg"
            path.write_text(svg(rows, theme, "cbtui"), encoding="utf-8")
            made.append(path)
            if png:
                import cairosvg

                made.append(path.with_suffix(".png"))
                cairosvg.svg2png(url=str(path), write_to=str(made[-1]))
        text = folder / f"{picture.name}-{columns}x{lines}.txt"
        text.write_text(screen_text(rows), encoding="utf-8")
        made.append(text)
    return made


def main() -> None:
    """Makes every picture and names the files."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="for all scenarios, instead of the model each is made for")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums depend on how they are split, and the pictures should not
    loaded: dict[str, Loaded] = {}
    for name in dict.fromkeys(picture.scenario for picture in PICTURES):
        scenario = find_scenario(name)
        model = arguments.model or scenario.model
        if model not in loaded:
            loaded[model] = load(model, device="cpu", dtype="float32", allow_fetch=lambda known: True)
        for path in play(scenario, loaded[model], arguments.folder):
            print(path)


if __name__ == "__main__":
    main()

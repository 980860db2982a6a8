"""Makes the pictures of this folder from a real run: a model, a fixed list of requests, some moments of it.

    python screenshots/make.py --model smollm2

Every picture is drawn from the same run, in three sizes and two themes, as SVG and, where cairosvg is installed, PNG.
Times shown in the pictures are those of the machine that made them.
"""

import argparse
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cbtui.launch import RequestSpec
from cbtui.offscreen import Offscreen
from cbtui.options import DEFAULT_MODEL
from cbtui.theme import theme_named
from cbtui.view.frame import screen_text
from cbtui.view.svg import svg
from engine.loading import Loaded, load

SIZES = ((80, 24), (120, 36), (200, 60))
THEMES = ("dark", "light")
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Scene:
    """A run: requests by the step before which they arrive, and pictures by the step after which they are taken."""

    arrivals: tuple[tuple[int, RequestSpec], ...]
    config: tuple[tuple[str, object], ...]
    pictures: Mapping[int, str]


def _ask(text: str, new: int, temperature: float = 0.0) -> RequestSpec:
    return RequestSpec(text=text, max_new_tokens=new, temperature=temperature, seed=1, top_p=0.9)


_STORY = (
    "Here is a story. Once upon a time a small fox lived at the edge of a forest. Every morning it walked to the river "
    "and looked at the water, and every evening it walked back. One day the river was gone. "
)
PRESSURE = Scene(
    arrivals=(
        (1, _ask("Why is the sky blue? Answer in two sentences.", 120)),
        (1, _ask("Name three rivers in Europe and say where they flow.", 90)),
        (1, _ask(_STORY + "What did the fox do then?", 110, 0.7)),
        (6, _ask(_STORY + "Why was the river gone?", 100, 0.7)),
        (9, _ask("Write a short letter to a lighthouse keeper.", 140, 0.7)),
        (14, _ask("Explain to a child how bread is made.", 120)),
        (30, _ask(_STORY * 4 + "Tell the story again in one sentence.", 60)),
        (48, _ask("List five things to take on a walk in the rain.", 80)),
        (74, _ask(_STORY * 6 + "How does the story end?", 80)),
        (75, _ask(_STORY * 2 + "Who is the fox?", 80)),
        (76, _ask("What is a paged cache?", 80)),
    ),
    config=(
        ("num_blocks", 72),
        ("max_requests_per_batch", 12),
        ("max_batch_tokens", 48),
        ("safety_margin", 0.05),
        ("cpu_offload_space", 0.03),
    ),
    pictures={75: "prefill", 87: "offload", 93: "monitor"},
)
SCENES = (PRESSURE,)


def play(scene: Scene, loaded: Loaded, folder: Path) -> Iterator[Path]:
    """Runs a scene and draws its pictures on the way."""
    monitor = Offscreen(loaded, dict(scene.config))
    for step in range(1, max(scene.pictures) + 1):
        for at, request in scene.arrivals:
            if at == step:
                monitor.add(request)
        monitor.step()
        if step in scene.pictures:
            yield from draw(scene.pictures[step], monitor, folder)


def draw(name: str, monitor: Offscreen, folder: Path) -> list[Path]:
    """The screen at this moment: every size in every theme, and as plain text."""
    made = []
    png = importlib.util.find_spec("cairosvg") is not None
    for columns, lines in SIZES:
        for theme_name in THEMES:
            theme = theme_named(theme_name)
            rows = monitor.rows((columns, lines), theme)
            path = folder / f"{name}-{columns}x{lines}-{theme_name}.svg"
            path.write_text(svg(rows, theme, "cbtui"), encoding="utf-8")
            made.append(path)
            if png:
                import cairosvg

                made.append(path.with_suffix(".png"))
                cairosvg.svg2png(url=str(path), write_to=str(made[-1]))
        text = folder / f"{name}-{columns}x{lines}.txt"
        text.write_text(screen_text(rows), encoding="utf-8")
        made.append(text)
    return made


def main() -> None:
    """Makes every picture and names the files."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums depend on how they are split, and the pictures should not
    loaded = load(arguments.model, device="cpu", dtype="float32", allow_fetch=lambda known: True)
    for scene in SCENES:
        for path in play(scene, loaded, arguments.folder):
            print(path)


if __name__ == "__main__":
    main()

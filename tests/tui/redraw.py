"""Text goldens: which screens they show, and ``python -m tests.tui.redraw`` to write them anew."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from cbtui.theme import theme_named
from cbtui.view.chrome import Chrome, KeyHint, Loading
from cbtui.view.frame import compose, screen_text
from tests.tui.scripted import Rig, make_rig, prompt, rush_hour

FOLDER = Path(__file__).parent / "goldens"
KEYS = tuple(
    KeyHint(keys, label, True, 20 - place, label)
    for place, (keys, label) in enumerate([
        ("space", "pause"), (".", "step"), ("[ ]", "scrub"), ("a", "add"), ("c", "cancel"), ("e", "why?"),
        (",", "config"), ("/", "filter"), ("b", "run until"), ("m", "mark"), ("?", "keys"), ("q", "quit"),
    ])
)  # fmt: skip
PAST_KEYS = (KeyHint("end", "go live", True, 9), KeyHint("space", "run", False, 5), KeyHint("q", "quit", True, 8))


@cache
def rush() -> Rig:
    """The busy scene; views only read it."""
    return rush_hour()


@cache
def idle() -> Rig:
    rig = make_rig(host_blocks=0)
    rig.step()
    return rig


@cache
def large_pool() -> Rig:
    """More blocks than cells, more tokens than columns, many requests."""
    rig = make_rig(num_blocks=5000, host_blocks=700, max_batch_tokens=2048, max_requests_per_batch=64)
    for i in range(60):
        rig.add(f"r{i}", prompt(i, 100 + i * 13, 64 if i % 3 == 0 else 0), 200)
    for _ in range(40):
        rig.step(preview=True)
    return rig


def busy_chrome() -> Chrome:
    selected = rush().state.picture.running[-2].key
    return Chrome(model="demo-hybrid", selected=selected, keys=KEYS, block_bytes=1 << 20)


def screens() -> dict[str, tuple[Rig | None, Chrome, tuple[int, int], str, bool]]:
    """name -> (rig, chrome, size, theme, ASCII)."""
    base = busy_chrome()
    past = replace(base, past=316, mark=300, difference=True, keys=PAST_KEYS, engine="held")
    found: dict[str, tuple[Rig | None, Chrome, tuple[int, int], str, bool]] = {}
    for width, height in ((80, 24), (120, 36), (200, 60), (20, 4), (40, 10)):
        found[f"monitor-{width}x{height}"] = (rush(), base, (width, height), "dark", False)
    for number, name in enumerate(("requests", "blocks", "timeline", "offload", "config"), 2):
        found[f"{name}-120x36"] = (rush(), replace(base, mode=number, block=100), (120, 36), "dark", False)
        found[f"{name}-80x24"] = (rush(), replace(base, mode=number, block=100), (80, 24), "dark", False)
    found["past-120x36"] = (rush(), past, (120, 36), "dark", False)
    found["past-200x60"] = (rush(), past, (200, 60), "dark", False)
    found["ascii-120x36"] = (rush(), base, (120, 36), "mono", True)
    found["idle-80x24"] = (idle(), Chrome(model="tiny", keys=KEYS), (80, 24), "dark", False)
    failed = replace(base, engine="failed", error="RuntimeError in step 355: device ran out of memory")
    found["failed-120x36"] = (rush(), failed, (120, 36), "dark", False)
    late = replace(base, step_seconds=3.2)
    found["late-80x24"] = (rush(), late, (80, 24), "dark", False)
    loading = Chrome(
        model="SmolLM2-135M", engine="loading", loading=Loading("reading weights", 3.5, 120, 270), keys=KEYS
    )
    found["loading-80x24"] = (None, loading, (80, 24), "dark", False)
    gone = Chrome(model="no/such-model", engine="new", error="The hub does not know no/such-model. Check the name, or "
                  "give a folder with its files.", keys=KEYS)  # fmt: skip
    found["missing-80x24"] = (None, gone, (80, 24), "dark", False)
    return found


def draw(name: str) -> str:
    rig, chrome, (width, height), theme, ascii_only = screens()[name]
    state = rig.state if rig is not None else None
    return screen_text(compose(state, chrome, theme_named(theme, ascii_only=ascii_only), width, height).rows)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in screens():
        (FOLDER / f"{name}.txt").write_text(draw(name), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Whole screens: text goldens, the width of every row at many sizes, the smallest screens, ASCII."""

import re
from dataclasses import replace

import pytest

from cbtui.theme import theme_named
from cbtui.view.cells import row_width
from cbtui.view.chrome import MAP_ORDERS, MAP_VIEWS, ORDERS, Chrome
from cbtui.view.frame import compose, screen_text
from cbtui.view.layout import Facts, monitor
from tests.tui.redraw import FOLDER, KEYS, busy_chrome, draw, idle, large_pool, rush, screens
from tests.tui.scripted import make_rig, prompt

DARK = theme_named("dark")
WIDTHS = (
    40,
    41,
    47,
    59,
    60,
    63,
    64,
    79,
    80,
    81,
    95,
    96,
    99,
    100,
    117,
    118,
    120,
    137,
    149,
    150,
    160,
    197,
    198,
    200,
    220,
)
HEIGHTS = (10, 11, 12, 15, 16, 18, 20, 22, 24, 28, 31, 32, 35, 36, 40, 50, 57, 58, 60, 70)


@pytest.mark.parametrize("name", screens())
def test_screens_look_as_they_did(name: str) -> None:
    wanted = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert draw(name) == wanted, "after a wanted change: python -m tests.tui.redraw"


@pytest.mark.parametrize("mode", range(1, 7))
@pytest.mark.parametrize("width", WIDTHS)
def test_every_row_has_the_width_of_the_screen(mode: int, width: int) -> None:
    rigs = (rush(), large_pool(), idle())
    for index, height in enumerate(HEIGHTS[(width + mode) % 4 :: 4]):
        rig = rigs[(index + width) % 3]
        past = rig.state.step // 2 if index % 4 == 3 else None
        chrome = Chrome(
            mode=mode,
            keys=KEYS,
            selected=index % 5,
            past=past,
            mark=3,
            difference=True,
            block=7,
            map_view=MAP_VIEWS[index % 5],
            map_order=MAP_ORDERS[index % 4],
            order=ORDERS[index % 4],
        )
        panel = compose(rig.state, chrome, DARK, width, height)
        assert len(panel.rows) == height
        assert {row_width(row) for row in panel.rows} == {width}
        assert all(0 <= h.y < height and 0 <= h.x0 < h.x1 <= width for h in panel.hits)


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (20, 4), (39, 10), (40, 9), (200, 3)])
def test_too_small_is_one_sentence(size: tuple[int, int]) -> None:
    panel = compose(rush().state, busy_chrome(), DARK, *size)
    assert len(panel.rows) == size[1]
    assert {row_width(row) for row in panel.rows} == {size[0]}
    if size[0] >= 20:
        assert re.search(r"needs 40 ?x ?10", screen_text(panel.rows))


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60)])
@pytest.mark.parametrize("mode", range(1, 7))
def test_ascii_screens_are_ascii(size: tuple[int, int], mode: int) -> None:
    rig = make_rig(num_blocks=60, host_blocks=20, safety_margin=0.1)
    for i in range(6):
        rig.add(f"r{i}", prompt(1, 60), 60)
    for _ in range(60):
        rig.step(preview=True)
    for story in rig.state.stories.values():
        story.pieces[:] = [" word"] * len(story.pieces)
        story.prompt = "words"
        story.wraps.clear()
    chrome = Chrome(model="m", mode=mode, selected=1, keys=(), block=3)
    for past in (None, 30):
        panel = compose(
            rig.state, replace(chrome, past=past, mark=10, difference=True), theme_named("mono", ascii_only=True), *size
        )
        text = screen_text(panel.rows)
        assert text.isascii(), {c for c in text if not c.isascii()}


def test_rows_nobody_needs_go_to_the_stream() -> None:
    few, many = Facts(256, 0, 3), Facts(256, 0, 30)
    for width, height in ((120, 36), (160, 50), (200, 60)):
        panes = [{r.name: r.height for r in monitor(width, height, facts)} for facts in (few, many)]
        lower = "streams" if width == 200 else "stream"
        assert panes[0][lower] > panes[1][lower] and panes[0]["requests"] >= 6
        assert panes[0]["requests"] < panes[1]["requests"]


@pytest.mark.parametrize("width", WIDTHS)
def test_panes_fill_the_screen_and_do_not_overlap(width: int) -> None:
    for height in HEIGHTS[width % 3 :: 3]:
        for facts in (Facts(1, 0, 0), Facts(384, 96, 26), Facts(100_000, 5000, 400), Facts(384, 96, 26, True)):
            taken: set[tuple[int, int]] = set()
            for rect in monitor(width, height, facts):
                assert rect.height > 0 and rect.width > 0
                cells = {
                    (x, y) for x in range(rect.x, rect.x + rect.width) for y in range(rect.y, rect.y + rect.height)
                }
                assert not cells & taken
                taken |= cells
            assert max(x for x, _ in taken) == width - 1 and max(y for _, y in taken) == height - 1
            heights = {r.name: r.height for r in monitor(width, height, facts)}
            assert heights["blocks"] >= 3 and heights["requests"] >= 4 and heights["keys"] == 1
            assert ("timeline" in heights) == (height > 10)

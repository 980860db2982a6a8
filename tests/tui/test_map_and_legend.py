"""The block map in the past, and a legend that counts what is drawn."""

import re

import pytest

from cbtui.theme import theme_named
from cbtui.view.blocks import blocks
from cbtui.view.cells import Panel, row_text
from cbtui.view.chrome import Chrome
from cbtui.view.difference import difference_of
from cbtui.view.legend import legend_parts
from cbtui.view.scene import Scene
from tests.tui.redraw import rush
from tests.tui.scripted import make_rig, prompt
from tests.tui.stage import playing

DARK = theme_named("dark")


def the_map(chrome: Chrome, width: int) -> tuple[Panel, dict[int, tuple[int, int, str]]]:
    """The pane, and block -> its place and its characters."""
    scene = Scene.of(rush().state, chrome, DARK)
    panel = blocks(scene, width, 12, screen_width=width)
    texts = [row_text(row) for row in panel.rows]
    return panel, {int(h.value): (h.y, h.x0, texts[h.y][h.x0 : h.x1]) for h in panel.hits if h.kind == "block"}


@pytest.mark.parametrize("width", [80, 120])
def test_one_step_back_moves_only_what_changed(width: int) -> None:
    step = rush().state.step
    _, live = the_map(Chrome(), width)
    seen = 0
    before = live
    for past in range(step - 1, step - 12, -1):
        _, now = the_map(Chrome(past=past, left=step), width)
        assert {block: place[:2] for block, place in now.items()} == {b: place[:2] for b, place in live.items()}
        scene = Scene.of(rush().state, Chrome(past=past + 1, mark=past), DARK)
        changed = {block for block in now if now[block][2] != before[block][2]}
        moving = set(scene.picture.moves.out_blocks) | set(scene.state.at(past).moves.out_blocks)
        moving |= set(scene.picture.moves.back_blocks) | set(scene.state.at(past).moves.back_blocks)
        assert changed <= set(difference_of(scene).changed) | moving
        seen += len(changed)
        before = now
    assert seen, "something changed"


@pytest.mark.parametrize("width", [80, 120])
def test_the_past_keeps_the_margin_on_the_map_and_in_the_legend(width: int) -> None:
    step, amber = rush().state.step, DARK.color("amber_on")
    for chrome in (Chrome(), Chrome(past=step - 3, left=step)):
        scene = Scene.of(rush().state, chrome, DARK)
        panel, places = the_map(chrome, width)
        legend = next(text for text in map(row_text, panel.rows) if " owned" in text or " full attn" in text)
        body = [panel.rows[y] for y in {y for y, _, _ in places.values()}]
        ground = sum(len(s.text) for row in body for s in row if s.style is not None and s.style.bgcolor is not None
                     and s.style.bgcolor.name == amber)  # fmt: skip
        assert ground == min(scene.margin, scene.picture.usable - len(scene.picture.moves.out_blocks)) > 0
        assert f"{scene.margin} margin" in legend


def legend_of(rig, step: int, *, numbers: bool = True) -> str:
    scene = Scene.of(rig.state, Chrome(past=step), DARK)
    parts = legend_parts(scene, long=False, numbers=numbers, margin=False)
    return "  ".join("".join(text for text, _ in part.spans) for part in parts)


def test_the_legend_counts_what_is_drawn_and_adds_up_to_the_pool() -> None:
    rig = make_rig(num_blocks=40, host_blocks=24, hybrid=False, window=None, max_batch_tokens=64, safety_margin=0.0)
    for number in range(9):
        rig.add(f"r{number}", prompt(number, 60 + number, 32 if number % 2 else 0), 120)
    left = partly = 0
    for _ in range(300):
        rig.step()
        picture = rig.state.picture
        if not picture.moves.out_blocks:
            continue
        words = legend_of(rig, picture.step)
        scene = Scene.of(rig.state, Chrome(), DARK)
        drawn = row_count(scene, DARK.glyphs.out)
        counts = [int(n) for n in re.findall(r"[A-Z◆◇▲◦·] (\d+) ", words)]
        told = re.search(r"▼ (\d+)(?: of (\d+))? to CPU", words)
        assert (int(told[1]) if told else 0) == drawn
        assert not drawn or sum(counts) + drawn == picture.num_blocks, words
        left += bool(drawn)
        if told and told[2]:
            assert int(told[2]) == len(picture.moves.out_slots) > drawn
            partly += 1
    assert left > 2 and partly, "blocks left, and some of them were taken again in the same step"




def row_count(scene: Scene, glyph: str) -> int:
    panel = blocks(scene, 120, 12, screen_width=120)
    return sum(row_text(panel.rows[y]).count(glyph) for y in {hit.y for hit in panel.hits})


async def test_going_to_the_past_keeps_the_places_also_while_the_engine_runs_on(tmp_path) -> None:
    async with playing(tmp_path, num_blocks=40) as play:
        await play.add(3)
        await play.tick(6)
        before = play.app.frame.places("block")
        await play.press("left_square_bracket")
        assert play.app.chrome.past is not None and play.app.frame.places("block") == before
        await play.add(2)
        await play.tick(4)
        await play.press("left_square_bracket")
        assert play.app.frame.places("block") == before

"""Which request a cell names: ids of two letters are never cut to one that is the name of somebody else."""

import re
from dataclasses import replace
from functools import cache

import pytest

from cbtui.letters import cell_letter, cut_label, label, tile_letters
from cbtui.theme import theme_named
from cbtui.view import frame
from cbtui.view.cells import row_text
from cbtui.view.chrome import Chrome
from cbtui.view.frame import compose
from cbtui.view.scene import Scene
from tests.tui.scripted import Rig, make_rig, prompt

REQUESTS = 60
NAMED = re.compile("[A-Z]+")


@cache
def crowds() -> tuple[Rig, tuple[int, ...]]:
    """Sixty requests that want more than the pool has, and steps of all times."""
    rig = make_rig(num_blocks=60, host_blocks=24, window=48, max_batch_tokens=64, safety_margin=0.05)
    for number in range(REQUESTS):
        rig.add(f"r{number}", prompt(number, 20 + 7 * (number % 5), 16 if number % 4 == 0 else 0), 20 + number % 17)
    while rig.scheduler.has_work:
        rig.step(preview=True)
    return rig, tuple(range(rig.state.oldest, rig.state.step, 3))


def panes(scene: Scene, width: int, height: int):
    """Name, rows and clickable parts of every pane of the mode."""
    for rect in frame.plan(scene, width, height):
        panel = frame.draw(scene, rect, width, height)
        yield rect.name, [row_text(row) for row in panel.rows], panel.hits


def owner_of(scene: Scene, kind: str, value: int) -> int | None:
    """The request a clickable part stands for, None for several or nobody."""
    if kind == "request":
        return value
    if kind == "host":
        slot = scene.picture.host[value]
        return slot[0] if slot is not None else scene.picture.moves.back_slots.get(value)
    owners = {seq for seq, _ in scene.picture.blocks[value].owners} or {scene.picture.moves.out_blocks.get(value)}
    return owners.pop() if len(owners) == 1 else None


ZONES = {"batch": 1 << 10, "requests": 6, "gantt": 4, "tables": 3, "map": 3}
"""Cells at the start of a clickable request that name it."""


def misread(scene: Scene, width: int, height: int, told: set[str]) -> list[str]:
    """Cells that name another request than the one they stand for; what was named is added to ``told``."""
    wrong = []
    for pane, rows, hits in panes(scene, width, height):
        for y, x0, x1, kind, value in hits:
            if kind not in ("block", "host") and (kind != "request" or pane not in ZONES):
                continue
            owner = owner_of(scene, kind, int(value))
            name = "nobody" if owner is None else scene.label(owner)
            text = rows[y][x0 : min(x1, x0 + ZONES[pane])] if kind == "request" else rows[y][x0:x1]
            if kind != "request" and scene.theme.glyphs.unicode:
                text = text.upper()  # small letters are window blocks; in ASCII there are signs among them
            found = set(NAMED.findall(text))
            told |= found
            if found - {name}:
                wrong.append(f"{pane} at {scene.step}: {text!r} stands for {name}")
            if pane in ("tables", "map") and kind == "request":
                row = rows[y][3:x1]
                entries = set(NAMED.findall(row.upper() if scene.theme.glyphs.unicode else row))
                wrong += [f"{pane}: {rows[y]!r}" for run in entries - {"TOK"} if set(run) != {name}]
            if pane == "batch" and len(name) > 1 and found:
                at = x0 + text.index(name)
                if any(map(str.isalpha, rows[y][at - 1] + rows[y][at + len(name)])):
                    wrong.append(f"{name} runs into its neighbour at {scene.step}: {rows[y]!r}")
    return wrong


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60), (40, 10)])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_cell_names_a_request_it_does_not_stand_for(size: tuple[int, int], ascii_only: bool) -> None:
    rig, steps = crowds()
    wrong: list[str] = []
    told: set[str] = set()
    theme = theme_named("mono", ascii_only=ascii_only)
    for step in steps:
        for mode in (1, 3, 4, 5):
            for tables in ("auto", "physical", "tables") if mode == 3 else ("auto",):
                chrome = Chrome(past=step, mode=mode, map_order=tables, selected=None)
                wrong += misread(Scene.of(rig.state, chrome, theme), *size, told)
    assert wrong == []
    assert {len(name) for name in told} == {1, 2}, "both kinds of names were drawn"


def test_the_mark_is_told_where_it_is_drawn_and_the_selected_one_stands_out() -> None:
    rig, steps = crowds()
    dark, seen = theme_named("dark"), 0
    for step in steps:
        scene = Scene.of(rig.state, Chrome(past=step), dark)
        record = scene.batch
        decodes = [] if record is None else [part.seq for part in record.slices if part.kind == "decode"]
        if record is None or record.step != step or not decodes or len(scene.label(decodes[0])) < 2:
            continue
        chrome = replace(scene.chrome, selected=decodes[0])
        rows = compose(rig.state, chrome, dark, 120, 36).rows
        texts = [row_text(row) for row in rows]
        assert "# longer id" in texts[1], "the batch says what the mark is"
        assert any("# longer id" in text for text in texts[2:]), "the legend says it too"
        ran = next(row for row in rows if row_text(row).startswith(" ran "))
        marks = [segment.style for segment in ran if "#" in segment.text]
        assert marks[0] == dark.style("on_ink", "on", bold=True) and marks.count(marks[0]) == 1
        seen += 1
    assert seen > 3


def test_names_in_too_little_room() -> None:
    assert [label(number) for number in (0, 25, 26, 701, 702)] == ["A", "Z", "AA", "ZZ", "AAA"]
    assert (cell_letter("B"), cell_letter("B", small=True)) == ("B", "b")
    assert cell_letter("AB") == "#" and cell_letter("AB", small=True) == "="
    assert [tile_letters(name) for name in ("B", "AB", "ABC")] == ["B ", "AB", "# "]
    assert tile_letters("AB", small=True) == "ab"
    assert [cut_label(name, 2, "…") for name in ("B", "AB", "ABC")] == ["B", "AB", "…C"]
    assert cut_label("ABCDE", 4, "…") == "…CDE" and cut_label("AB", 1, "…") == "#"

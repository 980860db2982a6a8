"""What small screens leave out, and what they must not cut."""

import re
from dataclasses import replace

import pytest

from cbtui import sentences
from cbtui.theme import theme_named
from cbtui.view.cells import row_text
from cbtui.view.chrome import Chrome, ConfigField
from cbtui.view.columns import why_column
from cbtui.view.config import config_page
from cbtui.view.detail import detail
from cbtui.view.figures import figures
from cbtui.view.frame import compose, screen_text
from cbtui.view.offload import offload_page
from cbtui.view.scene import Scene
from tests.tui.redraw import busy_chrome, rush
from tests.tui.scripted import Rig, make_rig, prompt

DARK = theme_named("dark")
ROOM = 40 - why_column(40)


def test_every_reason_has_words_for_the_smallest_screen() -> None:
    """At every step of the busy scene; only a refusal tells a text of the engine's, which may be long."""
    seen = set()
    for step in range(rush().state.oldest, rush().state.step, 2):
        scene = Scene.of(rush().state, Chrome(past=step), DARK)
        for story in scene.state.stories.values():
            if 0 <= story.arrived <= step and not story.is_refused:
                wordings = sentences.why(scene, story)
                shortest = min(wordings, key=len)
                assert len(shortest) <= ROOM, wordings
                seen.add(scene.state_of(story))
    assert {"waiting", "prefill", "decode", "to_cpu", "on_cpu", "to_gpu", "finished", "cancelled"} <= seen


def test_a_finished_request_says_why_at_forty_columns() -> None:
    rig = make_rig(host_blocks=0)
    rig.add("a", prompt(0, 20), 4)
    for _ in range(8):
        rig.step()
    text = screen_text(compose(rig.state, Chrome(model="tiny", selected=0), DARK, 40, 10).rows)
    assert "…" not in next(line for line in text.splitlines() if "finished" in line)
    assert "max tokens" in text


@pytest.mark.parametrize("width", [50, 80, 100])
def test_one_line_of_a_stream_begins_with_a_word(width: int) -> None:
    from cbtui.view.streams import stream

    rig = make_rig(host_blocks=0)
    rig.add("a", prompt(0, 20), 200)
    begun = 0
    for _ in range(150):
        rig.step()
        scene = Scene.of(rig.state, Chrome(selected=0), DARK)
        text = row_text(stream(scene, width, 1).rows[0]).removeprefix(" A ").strip().rstrip(DARK.glyphs.caret)
        whole = "".join(rig.state.stories[0].pieces).replace("\n", DARK.glyphs.newline)
        if text.startswith("…"):
            assert (text[1] == " " and whole.endswith(text[1:].rstrip())) or whole.strip().endswith(text[1:].strip())
            start = len(whole.rstrip()) - len(text[1:].strip())
            assert whole[start - 1] == " ", "the first word is whole"
            begun += 1
    assert begun > 50


@pytest.mark.parametrize("height", range(4, 40))
def test_no_heading_of_the_details_stands_alone(height: int) -> None:
    headings = ("WHY", "BLOCK TABLES", "EVENTS", "TOKENS")
    seen = set()
    for key in rush().state.stories:
        scene = Scene.of(rush().state, replace(busy_chrome(), selected=key), DARK)
        rows = [row_text(row).rstrip() for row in detail(scene, 80, height).rows]
        for y, row in enumerate(rows):
            if row.startswith(headings):
                below = rows[y + 1] if y + 1 < len(rows) else ""
                assert below and not below.startswith(headings), rows
                seen.add(row.split("  ")[0].rstrip(" ─"))
    if height >= 16:
        assert {"WHY", "TOKENS"} <= {name.split(" ─")[0] for name in seen}


FIELDS = (
    ConfigField("page_size", "16", effect="restart", note="small enough to see blocks fill and change hands"),
    ConfigField("max_steps_without_decode", "4", effect="next step", note="decodes run at the latest after so many"),
    ConfigField("scheduler_type", "prefill_first", effect="next step", note="the user chose it"),
)


def test_notes_of_the_configuration_get_the_room_that_values_leave() -> None:
    scene = Scene.of(rush().state, replace(busy_chrome(), mode=6, config=FIELDS, config_cursor=2), DARK)
    rows = [row_text(row) for row in config_page(scene, 80, 20).rows]
    longest = max(len(field.name) for field in FIELDS)
    for field in FIELDS:
        row = next(row for row in rows if row[2:].strip().startswith(field.name))
        gap = row.index(field.now, 3 + len(field.name)) - 3 - longest
        assert gap <= len("prefill_first") + 1
        note = row[row.index(field.effect) + len("takes effect") :].strip().rstrip(" …")
        assert field.note.startswith(note) and len(note) >= 15, row


def without_swap() -> Rig:
    rig = make_rig(num_blocks=24, host_blocks=0, hybrid=False, window=None, max_batch_tokens=64, safety_margin=0.0)
    for number in range(5):
        rig.add(f"r{number}", prompt(number, 60), 60)
    for _ in range(60):
        rig.step()
    return rig


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_without_a_swap_pool_nothing_speaks_of_it_as_if_it_were_full(size: tuple[int, int]) -> None:
    rig = without_swap()
    assert rig.state.picture.counters.preemptions
    panel = offload_page(Scene.of(rig.state, Chrome(mode=5), DARK), *size)
    text = screen_text(panel.rows)
    assert "there is no CPU pool" in text and "had no room" not in text
    assert "0/1" not in text and "slots used" not in text
    assert re.search(r"\d+  [A-Z] preempted", text), "what happened instead is listed"


@pytest.mark.parametrize("size", [300, 4096, 36864, 1 << 20])
def test_little_memory_is_not_said_to_be_none(size: int) -> None:
    scene = Scene.of(rush().state, replace(busy_chrome(), block_bytes=size), DARK)
    pages = [offload_page(scene, 120, 36), config_page(scene, 120, 36)]
    text = "\n".join([*(screen_text(page.rows) for page in pages), *(f.meaning for f in figures(scene))])
    amounts = re.findall(r"([\d.]+) ([KM]iB)", text)
    assert len(amounts) == 5 and all(float(number) > 0 for number, _ in amounts)
    slots = len(scene.picture.host)
    whole = slots * size
    assert f"{whole / 2**20:.0f} MiB" in text if whole >= 2**20 else f"{whole / 2**10:.4g} KiB" in text

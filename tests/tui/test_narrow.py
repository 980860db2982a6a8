"""Sentences that are wider than the screen: captions and notices on rows of their own, and what gives way for them."""

import re
from dataclasses import replace

import pytest

from cbtui import keybar
from cbtui.keys import keymap
from cbtui.situation import Situation
from cbtui.theme import theme_named
from cbtui.view.caption import caption, caption_rows
from cbtui.view.cells import row_text, width_of, wrap, wrap_at_most
from cbtui.view.chrome import CaptionLine, Chrome, Loading
from cbtui.view.frame import compose, plan, screen_text
from cbtui.view.requests import lines
from cbtui.view.scene import Scene
from tests.tui.redraw import busy_chrome, rush

DARK = theme_named("dark")
LONG = "E joined in the same way: 14 tokens in this batch, 12 of them prompt, and nobody waited for it"
SHORT = "E joined: 14 tokens in this batch, and nobody waited for it"
LINE = CaptionLine(4, 5, (LONG, SHORT), ("space goes on  x leave", "space goes on"))
REFUSED = (
    "not added: can never fit: 6173 tokens need 386 blocks of 16 tokens, but the pool has 304: "
    "shorten it or give the cache more blocks"
)


def shown(width: int, height: int, **changes: object) -> list[str]:
    """The busy screen with the key bar of a scenario."""
    keys = keybar.hints(Situation(kept=300, selected="Q", scenario="A", played=True), 1, keymap())
    chrome = replace(busy_chrome(), keys=keys, **changes)  # type: ignore[arg-type]
    rows = compose(rush().state, chrome, DARK, width, height).rows
    assert [width_of(row_text(row)) for row in rows] == [width] * height
    return screen_text(rows).splitlines()


def words_of(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("size", [(40, 10), (46, 12), (60, 16), (80, 24), (120, 36)])
def test_a_caption_is_never_cut(size: tuple[int, int]) -> None:
    lines = shown(*size, caption=LINE)
    height = caption_rows(LINE, DARK, *size)
    told = words_of(lines[1 : 1 + height])
    assert SHORT in told or LONG in told
    assert "KV BLOCKS" in words_of(lines) and "REQUESTS" in words_of(lines)
    assert (height == 1) == (size[0] >= 80)


@pytest.mark.parametrize("size", [(40, 10), (46, 12), (60, 16), (80, 24), (120, 36)])
def test_requests_without_a_row_are_hinted_at(size: tuple[int, int]) -> None:
    def heading(selected: int) -> str:
        return next(line for line in shown(*size, selected=selected) if line.startswith("REQUESTS"))

    order = [line.story.key for line in lines(Scene.of(rush().state, busy_chrome(), DARK))]
    first, middle, last = heading(order[0]), heading(order[12]), heading(order[-1])
    assert "▾" in first and "▴" not in first
    assert "▴" in last and "▾" not in last
    assert ("▴" in middle) == ("above" in middle or size[0] < 80)
    for text in (first, middle, last):
        assert "…" not in text and re.search(r"\bo (order|attention first)$", text)
    if size == (40, 10):
        above, below = (int(number) for number in re.findall(r"[▴▾] (\d+)", middle))
        assert above + below + 3 == len(order)


def test_what_to_press_stands_behind_the_last_words_of_a_caption() -> None:
    rows = [row_text(row) for row in caption(LINE, DARK, 50, 3).rows]
    assert rows[0].startswith(" 4/5 E joined") and "space" not in rows[0]
    assert rows[-1].startswith("     ") and rows[-1].rstrip().endswith("space goes on  x leave")


def test_a_caption_of_far_too_many_words_ends_with_an_ellipsis() -> None:
    line = CaptionLine(1, 1, ("word " * 60,))
    assert caption_rows(line, DARK, 40, 10) == 3
    assert row_text(caption(line, DARK, 40, 3).rows[-1]).rstrip().endswith("…")


@pytest.mark.parametrize("mode", range(1, 7))
@pytest.mark.parametrize("past", [None, 300])
def test_the_smallest_screen_says_how_to_get_help_and_out(mode: int, past: int | None) -> None:
    now = Situation(kept=300, selected="Q", past=past, scenario="A", played=True)
    keys = keybar.hints(now, mode, keymap())
    chrome = replace(busy_chrome(), keys=keys, mode=mode, past=past, caption=LINE)
    last = screen_text(compose(rush().state, chrome, DARK, 40, 10).rows).splitlines()[-1]
    assert "? keys" in last and "q quit" in last


def test_the_smallest_screen_says_so_while_it_loads_too() -> None:
    keys = keybar.hints(Situation(phase="loading"), 1, keymap())
    chrome = Chrome(model="tiny", engine="loading", loading=Loading("reading", 1.0), keys=keys, caption=LINE)
    lines = screen_text(compose(None, chrome, DARK, 40, 10).rows).splitlines()
    assert SHORT in words_of(lines[1:4]) and "reading" in words_of(lines)
    assert "? keys" in lines[-1] and "q quit" in lines[-1]


@pytest.mark.parametrize("size", [(40, 10), (40, 14), (80, 24), (120, 36), (200, 60)])
def test_a_notice_is_seen_to_its_end_and_leaves_the_keys(size: tuple[int, int]) -> None:
    lines = shown(*size, notice=REFUSED, notice_kind="error")
    if size[0] == 200:
        assert REFUSED in lines[-1]
    else:
        assert REFUSED in words_of(lines[-6:-1])
        assert "? keys" in lines[-1] and "q quit" in lines[-1]


@pytest.mark.parametrize("past", [None, 300])
@pytest.mark.parametrize("width", range(40, 130, 7))
def test_no_notice_takes_the_place_of_help_and_the_way_out(width: int, past: int | None) -> None:
    now = Situation(kept=300, selected="Q", past=past, scenario="A", played=True)
    for notice in ("B queued at step 20", "step 300 is A; M shows the difference to the step you look at"):
        chrome = replace(busy_chrome(), keys=keybar.hints(now, 1, keymap()), past=past, notice=notice)
        lines = screen_text(compose(rush().state, chrome, DARK, width, 24).rows).splitlines()
        assert "? keys" in lines[-1] and "q quit" in lines[-1] and notice in words_of(lines[-4:])


def test_a_short_notice_stands_beside_the_keys_and_moves_nothing() -> None:
    calm, told = shown(80, 24), shown(80, 24, notice="step 300 is A; M shows the difference")
    assert told[:-1] == calm[:-1]
    assert told[-1].endswith("step 300 is A; M shows the difference") and "? keys" in told[-1] and "q quit" in told[-1]


def test_a_long_notice_covers_the_rows_above_the_keys_only() -> None:
    calm, told = shown(120, 36), shown(120, 36, notice=REFUSED)
    assert told[:-5] == calm[:-5]


def test_a_notice_and_a_caption_share_the_smallest_screen() -> None:
    lines = shown(40, 10, notice=REFUSED, caption=LINE)
    assert SHORT in words_of(lines[1:4]) and "? keys" in lines[-1]
    assert "more blocks" in words_of(lines[5:9])


@pytest.mark.parametrize("mode", range(1, 7))
@pytest.mark.parametrize("width", [40, 57, 80, 119])
def test_panes_keep_a_place_whatever_is_told_and_said(width: int, mode: int) -> None:
    for height in (*range(10, 25), 36):
        for engine in ("running", "failed"):
            chrome = replace(busy_chrome(), mode=mode, caption=LINE, notice=REFUSED, engine=engine, error="it died")
            taken: set[int] = set()
            rects = plan(Scene.of(rush().state, chrome, DARK), width, height)
            for rect in rects:
                assert rect.height > 0 and rect.y + rect.height <= height
                if (rect.x, rect.width) == (0, width):
                    rows = set(range(rect.y, rect.y + rect.height))
                    assert not rows & taken, rects
                    taken |= rows
            names = {rect.name for rect in rects}
            assert {"hud", "caption", "notice", "keys"} <= names and len(names) > 4
            assert len(compose(rush().state, chrome, DARK, width, height).rows) == height


def test_wide_characters_are_wrapped_by_the_cells_they_take() -> None:
    text = "月は地球から約三十八万キロ離れています and more"
    for width in range(2, 50):
        assert all(width_of(line) <= width for line in wrap(text, width))
        assert "".join(wrap(text, width)).replace(" ", "") == text.replace(" ", "")
    assert width_of(wrap_at_most(text, 12, 2)[-1]) <= 12


def test_what_is_left_for_prompts_does_not_read_like_the_end_of_the_legend() -> None:
    line = next(line for line in shown(120, 36) if "margin for" in " ".join(line.split()))
    assert "46 margin     for new prompts after step 355: 48 − 46 = 2" in line

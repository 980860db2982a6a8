"""Rows count their cells; words are shown whole or end at a word border."""

import pytest
from rich.segment import Segment

from cbtui.theme import theme_named
from cbtui.view.cells import (
    Panel,
    Part,
    RowBuilder,
    choose,
    clip,
    heading,
    join,
    keep_parts,
    row_text,
    row_width,
    stack,
    width_of,
)
from cbtui.view.chrome import Hit

THEME = theme_named("dark")
TEXT = THEME.style("text")


def test_a_row_refuses_to_overflow() -> None:
    row = RowBuilder(5, TEXT)
    row.put("abcd")
    with pytest.raises(AssertionError, match="overflows by 1"):
        row.put("東")


def test_a_row_is_filled_and_merges_equal_styles() -> None:
    row = RowBuilder(8, TEXT).put("ab").put("cd").put("e", THEME.style("muted")).done()
    assert row == (Segment("abcd", TEXT), Segment("e", THEME.style("muted")), Segment("   ", TEXT))
    assert row_width(row) == 8


def test_fields_are_cut_to_their_width() -> None:
    row = RowBuilder(12, TEXT).right("12345", 4).field("a", 3).right("東京", 5).done()
    assert row_text(row) == "123~a   東京"


def test_the_longest_wording_that_fits_wins() -> None:
    wordings = ("needs 24 blocks, only 12 usable", "needs 24 blocks", "24 blocks")
    assert choose(wordings, 40) == wordings[0]
    assert choose(wordings, 20) == wordings[1]
    assert choose(wordings, 9) == wordings[2]
    assert choose(wordings, 8) == "24 …"
    assert choose(wordings, 3) == "24…"
    assert choose((), 10) == ""


@pytest.mark.parametrize("width", range(12))
def test_nothing_is_wider_than_asked(width: int) -> None:
    assert width_of(choose(("alpha beta gamma", "delta東 epsilon"), width)) <= width
    assert width_of(clip("東京都 tower", width)) <= width
    assert width_of(clip("東京都 tower", width, "...")) <= width


def test_parts_go_whole_the_least_important_first() -> None:
    parts = [Part((("aaaa", TEXT),), 1), Part((("bbbb", TEXT),), 3), Part((("cccc", TEXT),), 2)]
    assert keep_parts(parts, 16, 2) == parts
    assert keep_parts(parts, 12, 2) == parts[1:]
    assert keep_parts(parts, 4, 2) == [parts[1]]
    assert keep_parts(parts, 3, 2) == []


@pytest.mark.parametrize("width", range(1, 60))
def test_headings_fit_every_width(width: int) -> None:
    facts = [Part((("64 of 64 tokens", TEXT),), 2), Part((("limit: rows", TEXT),), 1)]
    row = heading(THEME, width, "BATCH", facts, [Part((("1 cell = 1 token", TEXT),))])
    assert row_width(row) == width
    if width >= 5:
        assert row_text(row).startswith("BATCH")


def test_panels_keep_their_hits_when_they_are_put_together() -> None:
    def panel(width: int, value: int) -> Panel:
        return Panel([RowBuilder(width, TEXT).done()] * 2, [Hit(1, 0, 1, "block", value)])

    side = join(panel(4, 1), panel(3, 2), 2, THEME)
    assert {row_width(row) for row in side.rows} == {9}
    assert side.hits == [Hit(1, 0, 1, "block", 1), Hit(1, 6, 7, "block", 2)]
    below = stack([panel(4, 1), panel(4, 2)])
    assert below.hits == [Hit(1, 0, 1, "block", 1), Hit(3, 0, 1, "block", 2)]

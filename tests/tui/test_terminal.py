"""What is written to the terminal: the cells that differ, in the colours they are to have."""

import random
import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from cbtui.app import MonitorApp
from cbtui.widgets.terminal import Shown, cells_of, changed
from tests.tui.stage import playing

STYLES = [
    Style(color=color, bgcolor=ground, bold=bold, underline=line)
    for color in ("#112233", None, "red")
    for ground in ("#445566", None)
    for bold in (True, False)
    for line in (True, False)
]
TEXTS = ("abc", "abd", " ", "東京", "░▒▓", "a", "é")
WIDTH = 12


class Emulator:
    """A terminal that knows what ``Shown`` writes: cursor moves, colours and text."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, str]] = {}
        self.cells_written = 0

    def feed(self, data: str) -> None:
        y = x = 0
        pen = {"bold": "", "under": "", "fg": "", "bg": ""}
        for move, sgr, char in re.findall(r"\x1b\[(\d+;\d+)H|\x1b\[([\d;]*)m|(.)", data, re.S):
            if move:
                y, x = (int(number) - 1 for number in move.split(";"))
            elif char:
                self.cells[y, x] = (char, str(pen))
                self.cells_written += 1
                x += cell_len(char)
            else:
                self._turn(pen, sgr)

    @staticmethod
    def _turn(pen: dict[str, str], sgr: str) -> None:
        for code in re.findall(r"[34]8;2;\d+;\d+;\d+|[34]8;5;\d+|\d+", sgr):
            number = int(code.split(";")[0])
            if number == 0:
                pen.update(bold="", under="", fg="", bg="")
            elif number in (1, 4):
                pen["bold" if number == 1 else "under"] = code
            else:
                name = "fg" if number < 40 or 90 <= number < 100 else "bg"
                pen[name] = "" if code in ("39", "49") else code


def line(draw: random.Random) -> Strip:
    """A line of WIDTH cells."""
    segments, left = [], WIDTH
    while left:
        text = draw.choice([text for text in TEXTS if cell_len(text) <= left])
        segments.append(Segment(text, draw.choice(STYLES)))
        left -= cell_len(text)
    return Strip(segments, WIDTH)


@pytest.mark.parametrize("seed", range(20))
def test_a_terminal_that_is_told_the_differences_shows_the_new_lines(seed: int) -> None:
    draw = random.Random(seed)
    shown, told = Shown(), Emulator()
    lines = {y: line(draw) for y in range(4)}
    for _ in range(30):
        touched = {y: line(draw) for y in lines if draw.random() < 0.5}
        for y, strip in touched.items():
            if draw.random() < 0.5:  # mostly as it was
                old = list(lines[y])
                old[draw.randrange(len(old))] = Segment("a" * cell_len(old[-1].text), draw.choice(STYLES))
                strip = Strip(old).adjust_cell_length(WIDTH, STYLES[0])
            lines[y] = touched[y] = strip
        told.feed(shown.write(touched, ColorSystem.TRUECOLOR))
        whole = Emulator()
        known = {y: lines[y] for y in lines if y in shown._lines}
        whole.feed(Shown().write(known, ColorSystem.TRUECOLOR))
        for place, cell in whole.cells.items():
            assert told.cells[place] == cell


def test_equal_lines_write_nothing_and_a_digit_writes_a_digit() -> None:
    style = Style(color="#aabbcc", bgcolor="#000000")
    first, second = (
        cells_of([Segment("step ", STYLES[0]), Segment(f"{n}", style), Segment("  x", STYLES[0])]) for n in (11, 12)
    )
    assert changed(first, first) == []
    assert changed(first, second) == [(6, "2", style)]
    assert changed([], second) == second == [(0, "step ", STYLES[0]), (5, "12", style), (7, "  x", STYLES[0])]


def test_updates_it_does_not_understand_pass_as_they_are() -> None:
    shown, strip = Shown(), Strip([Segment("ab", STYLES[0])], 2)
    shown.write({0: strip}, ColorSystem.TRUECOLOR)
    several = ChopsUpdate([{0: strip, 2: strip}], [(0, 0, 4)], [[2, 4]])
    assert shown.shorten(several) is several
    whole = LayoutUpdate([[strip]], Region(0, 0, 2, 1))
    assert shown.shorten(whole) is whole
    assert shown.write({0: strip}, ColorSystem.TRUECOLOR), "the terminal is not known any more"


async def test_the_frame_is_written_this_way(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    display = MonitorApp.__mro__[1]._display

    def spy(app: Any, screen: Any, renderable: Any) -> None:
        written.append(type(renderable).__name__)
        display(app, screen, renderable)

    monkeypatch.setattr(MonitorApp.__mro__[1], "_display", spy)
    async with playing(tmp_path) as play:
        await play.add(2)
        written.clear()
        await play.tick(3)
        await play.press("j")
        assert set(written) == {"_Changes"}
        await play.press("question_mark")
        assert "_Changes" not in written[-1:]

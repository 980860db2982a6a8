"""What the terminal shows, cell by cell, so that only what differs is written.

Textual repaints whole lines, every run of cells with all its colours. Over a slow connection that is most of what a
monitor costs, so updates of a screen that one widget fills are written anew here: the changed runs of each line, and
of their colours what differs from the run before.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

Cells = tuple[int, str, object]
"""Column, text, style: cells of one style in one line."""
NOTHING: Cells = (1 << 30, "", None)
NOWHERE = Color(0, 0, 0, 0)
"""No ground: nothing is written through filters."""


class Shown:
    """The lines a terminal shows, as far as they are known."""

    def __init__(self) -> None:
        self._lines: dict[int, list[Cells]] = {}
        self._codes: dict[object, tuple[str, str, str]] = {}
        self._filters: tuple[Sequence[LineFilter], Color] = ((), NOWHERE)

    def forget(self) -> None:
        """Something else was painted, perhaps in other colours: nothing is known of the terminal."""
        self._lines.clear()
        self._codes.clear()
        self._filters = (), NOWHERE

    def lines(self, strips: dict[int, Strip], filters: Sequence[LineFilter], ground: Color) -> CompositorUpdate:
        """An update of whole lines.

        Args:
            strips: row -> the line, as a widget made it.
            filters: what Textual does to styles before they are written. ground: the colour below them.
        """
        if (filters, ground) != self._filters:
            self._codes.clear()
            self._filters = filters, ground
        return _Changes(self, strips)

    def shorten(self, update: object) -> object:
        """The same update with less to write. One that is not understood is returned as it is.

        Understood are updates of lines that belong to one widget each.
        """
        if isinstance(update, _Changes):
            return update
        if not isinstance(update, ChopsUpdate):
            self.forget()
            return update
        strips: dict[int, Strip] = {}
        for y, _, _ in update.spans:
            chops = update.chops[y]
            strip = chops.get(0)
            if len(chops) != 1 or strip is None:
                self.forget()
                return update
            strips[y] = strip
        return _Changes(self, strips)

    def write(self, strips: dict[int, Strip], system: ColorSystem) -> str:
        """What brings the terminal from what it shows to ``strips``; from now on it shows them."""
        out: list[str] = []
        pen = ("", "", "")
        for y, strip in strips.items():
            new, old = cells_of(strip), self._lines.get(y, ())
            self._lines[y] = new
            at = -1
            for x, text, style in changed(old, new):
                if x != at:
                    out.append(f"\x1b[{y + 1};{x + 1}H")
                pen = self._turn(pen, style, system, out)
                out.append(text)
                at = x + (len(text) if text.isascii() else cell_len(text))
        if out:
            out.append("\x1b[0m")
        return "".join(out)

    def _turn(
        self, pen: tuple[str, str, str], style: object, system: ColorSystem, out: list[str]
    ) -> tuple[str, str, str]:
        """Writes what turns the colours of one run into those of the next."""
        codes = self._codes.get(style)
        if codes is None:
            codes = self._codes[style] = self._codes_of(style, system)
        if codes == pen:
            return pen
        parts: Iterable[str]
        if codes[0] != pen[0]:
            parts = ("0", *codes)
        else:
            parts = (
                "" if codes[1] == pen[1] else codes[1] or "39",
                "" if codes[2] == pen[2] else codes[2] or "49",
            )
        out.append(f"\x1b[{';'.join(filter(None, parts))}m")
        return codes

    def _codes_of(self, style: object, system: ColorSystem) -> tuple[str, str, str]:
        if style is None:
            return "", "", ""
        segments = [Segment("x", cast(Style, style))]
        filters, ground = self._filters
        for line_filter in filters:
            segments = line_filter.apply(segments, ground)
        return _split(Strip.render_ansi(segments[0].style or Style.null(), system))


class _Changes(CompositorUpdate):
    """An update as the changed cells of its lines."""

    def __init__(self, shown: Shown, strips: dict[int, Strip]) -> None:
        self._shown, self._strips = shown, strips

    def render_segments(self, console: Console) -> str:
        return self._shown.write(self._strips, console._color_system or ColorSystem.TRUECOLOR)


def changed(old: Sequence[Cells], new: Sequence[Cells]) -> list[Cells]:
    """The runs of cells that make ``new`` of ``old``; all of ``new`` where nothing is known."""
    runs: list[Cells] = []
    before = iter(old)
    start, had, look = next(before, NOTHING)
    for x, text, style in new:
        while start < x:
            start, had, look = next(before, NOTHING)
        if start != x or (look is not style and look != style):
            runs.append((x, text, style))
        elif had != text:
            same = _same_start(had, text)
            if same < len(text):
                runs.append((x + same, text[same:], style))
    return runs


def cells_of(segments: Iterable[Segment]) -> list[Cells]:
    """Segments with the column where each begins."""
    cells: list[Cells] = []
    x = 0
    for text, style, _ in segments:
        cells.append((x, text, style))
        x += len(text) if text.isascii() else cell_len(text)
    return cells


def _same_start(old: str, new: str) -> int:
    """Characters, and so cells, at the start of two texts that are the same; 0 unless all cells are one wide."""
    if not (old.isascii() and new.isascii()):
        return 0
    for place, (a, b) in enumerate(zip(old, new, strict=False)):
        if a != b:
            return place
    return min(len(old), len(new))


def _split(ansi: str) -> tuple[str, str, str]:
    """Style codes as (attributes, foreground, background)."""
    codes = ansi.split(";") if ansi else []
    place, parts = 0, ["", "", ""]
    while place < len(codes):
        code = int(codes[place])
        size = {"2": 5, "5": 3}[codes[place + 1]] if code in (38, 48) else 1
        kind = 0 if code < 30 else 1 if code < 40 or 90 <= code < 100 else 2
        text = ";".join(codes[place : place + size])
        parts[kind] = f"{parts[kind]};{text}" if parts[kind] else text
        place += size
    return parts[0], parts[1], parts[2]

"""A screen as SVG: its own window, no ligatures, block glyphs as rectangles so that no seams show between cells."""

import re
from collections.abc import Sequence
from html import escape

from rich.color import Color, ColorType
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from cbtui.text import char_width
from cbtui.theme import Theme
from cbtui.view.cells import Row, row_width

CELL_W, CELL_H, FONT = 12.0, 24.4, 20.0
PAD, TITLE = 14.0, 44.0
WORDS = re.compile(r"[A-Za-z0-9]+(?: [A-Za-z0-9]+)*|[^\sA-Za-z0-9]")
FONTS = "'JetBrains Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace"

_ANSI = TerminalTheme(
    (15, 18, 23), (201, 209, 217),
    [(38, 44, 54), (214, 90, 70), (86, 160, 110), (202, 152, 90), (86, 130, 200), (160, 110, 190), (80, 165, 190),
     (190, 198, 208)],
    [(96, 108, 122), (240, 118, 75), (127, 200, 169), (232, 185, 74), (120, 165, 230), (200, 150, 225),
     (147, 216, 223), (243, 246, 249)],
)  # fmt: skip

_LOWER = {glyph: (0.0, 1 - (i + 1) / 8, 1.0, (i + 1) / 8) for i, glyph in enumerate("▁▂▃▄▅▆▇█")}
_LEFT = {glyph: (0.0, 0.0, (i + 1) / 8, 1.0) for i, glyph in enumerate("▏▎▍▌▋▊▉")}
_LINES = {"─": (0.0, 0.47, 1.0, 0.06), "━": (0.0, 0.43, 1.0, 0.14), "│": (0.46, 0.0, 0.08, 1.0)}
RECTANGLES = {**_LOWER, **_LEFT, **_LINES}
"""glyph -> (x, y, width, height) as shares of a cell."""


def _hex(color: Color | None, theme: Theme, *, front: bool) -> str:
    if color is None or color.type is ColorType.DEFAULT:
        if theme.kind == "true":
            return theme.roles["text" if front else "bg"]
        return "#c9d1d9" if front else "#0f1217"
    return color.get_truecolor(_ANSI, foreground=front).hex


def _colors(style: Style | None, theme: Theme) -> tuple[str, str]:
    style = style or Style.null()
    front, ground = _hex(style.color, theme, front=True), _hex(style.bgcolor, theme, front=False)
    if style.reverse:
        front, ground = ground, front
    if style.dim:
        front = "#6d7885" if theme.dark else "#8d9199"
    return front, ground


class _Page:
    """Collects shapes; equal fills share a class."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self.shapes: list[str] = []
        self.classes: dict[str, str] = {}

    def css(self, rule: str) -> str:
        return self.classes.setdefault(rule, f"c{len(self.classes)}")

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        name = self.css(f"fill:{fill}")
        self.shapes.append(
            f'<rect class="{name}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
            'shape-rendering="crispEdges"/>'
        )

    def text(self, x: float, y: float, words: str, fill: str, style: Style) -> None:
        rule = f"fill:{fill}"
        if style.bold:
            rule += ";font-weight:bold"
        if style.italic:
            rule += ";font-style:italic"
        self.shapes.append(f'<text class="{self.css(rule)}" x="{x:.2f}" y="{y:.2f}">{escape(words)}</text>')


def _row(page: _Page, row: Row, x0: float, y: float) -> None:
    x = x0
    for segment in row:
        style = segment.style or Style.null()
        front, ground = _colors(style, page.theme)
        width = CELL_W * sum(map(char_width, segment.text))
        if ground != _colors(None, page.theme)[1]:
            page.rectangle(x, y, width, CELL_H, ground)
        _glyphs(page, segment.text, x, y, front, style)
        if style.underline:
            page.rectangle(x, y + CELL_H - 2.4, width, 1.2, front)
        if style.strike:
            page.rectangle(x, y + CELL_H * 0.52, width, 1.2, front)
        x += width


def _glyphs(page: _Page, text: str, x: float, y: float, front: str, style: Style) -> None:
    """Runs of ASCII as one text, everything else cell by cell so that a substitute font cannot shift its row."""
    run, start = "", x
    base = y + CELL_H * 0.72

    def flush() -> None:
        for match in WORDS.finditer(run):  # blanks would be collapsed, signs joined by some renderers
            page.text(start + match.start() * CELL_W, base, match.group(), front, style)

    for char in text:
        size = char_width(char) * CELL_W
        if char.isascii():
            run += char
        else:
            flush()
            run, start = "", x + size
            if char in RECTANGLES:
                dx, dy, w, h = RECTANGLES[char]
                page.rectangle(x + dx * CELL_W, y + dy * CELL_H, w * CELL_W, h * CELL_H, front)
            elif size:
                page.text(x, base, char, front, style)
        x += size
    flush()


def svg(rows: Sequence[Row], theme: Theme, title: str) -> str:
    """The rows in a window called ``title``."""
    columns = row_width(rows[0]) if rows else 0
    width, height = columns * CELL_W + 2 * PAD, len(rows) * CELL_H + TITLE + PAD
    front, ground = _colors(None, theme)
    page = _Page(theme)
    for index, row in enumerate(rows):
        _row(page, row, PAD, TITLE + index * CELL_H)
    frame = "#3b424c" if theme.dark else "#b9b4a8"
    around = "#2a2f37" if theme.dark else "#cfcbc2"
    styles = "".join(f".{name}{{{rule}}}" for rule, name in page.classes.items())
    dots = "".join(
        f'<circle cx="{PAD + 14 + 22 * i:.0f}" cy="{TITLE / 2:.0f}" r="6.5" fill="{fill}"/>'
        for i, fill in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    margin = 12
    box = f"{-margin} {-margin} {width + 2 * margin:.0f} {height + 2 * margin:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" '
        f'width="{width + 2 * margin:.0f}" height="{height + 2 * margin:.0f}">'
        f"<title>{escape(title)}</title><style>text{{font-family:{FONTS};font-size:{FONT}px;"
        "font-variant-ligatures:none;font-feature-settings:'liga' 0,'calt' 0;white-space:pre}" + styles + "</style>"
        f'<rect x="{-margin}" y="{-margin}" width="100%" height="100%" fill="{around}"/>'
        f'<rect x="0" y="0" width="{width:.0f}" height="{height:.0f}" rx="10" fill="{ground}" stroke="{frame}"/>'
        f'{dots}<text x="{width / 2:.0f}" y="{TITLE / 2 + 5:.0f}" text-anchor="middle" '
        f'style="font-size:15px;fill:{front};opacity:0.55">{escape(title)}</text>' + "".join(page.shapes) + "</svg>\n"
    )

"""Colours and glyphs. Hue says who, glyph says state, brightness says focus; only amber and vermilion mean something.

The eight request hues were found by a max-min search in OKLab under normal vision and simulated protan, deutan and
tritan vision; ``tests/tui/test_theme.py`` measures them again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich.style import Style

HUES = ("#4db2db", "#ca987f", "#8e6ac7", "#acc455", "#b0638c", "#93d8df", "#449546", "#ecdfaa")
HUE_NAMES = ("sky", "clay", "violet", "pear", "mauve", "ice", "green", "cream")
TEXT_CONTRAST = 4.6


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One character for every meaning. Two sets exist: Unicode, and ASCII for terminals that draw Unicode badly.

    None is a letter or a digit: those are names of requests, and figures.
    """

    shared: str = "◆"
    shared_window: str = "◇"
    out: str = "▼"
    back: str = "▲"
    cached: str = "◦"
    free: str = "·"
    behind: str = "╌"
    parked: str = "▪"
    hatch: str = "╱"
    decode: str = "›"
    prefill: str = "»"
    waiting: str = "…"
    finished: str = "✓"
    refused: str = "✗"
    cancelled: str = "×"
    failed: str = "✗"
    cursor: str = "▸"
    live: str = "●"
    past: str = "◂"
    here: str = "▼"
    held: str = "‖"
    newline: str = "¶"
    rule: str = "─"
    bar: str = "━"
    bar_rest: str = "─"
    tick: str = "╷"
    edge: str = "▏"
    caret: str = "▌"
    more: str = "▾"
    less: str = "▴"
    gantt_prefill: str = "█"
    gantt_decode: str = "━"
    gantt_off: str = "╌"
    gantt_grid: str = "┊"
    gantt_end: str = "●"
    bracket_left: str = "└"
    bracket: str = "─"
    bracket_right: str = "┘"
    arrow: str = "→"
    minus: str = "−"
    at_most: str = "≤"
    delta: str = "Δ"
    ellipsis: str = "…"
    times: str = "×"
    levels: str = "▁▂▃▄▅▆▇█"
    eighths: str = "▏▎▍▌▋▊▉█"
    unicode: bool = True


ASCII_GLYPHS = Glyphs(
    shared="%", shared_window="&", out="<", back="^", cached=":", free=".", behind="-", parked="|", hatch="/",
    decode=">", prefill="}", waiting="~", finished="+", refused="!", cancelled="\\", failed="!", cursor=">", live="*",
    past="<", here="|", held="=", newline="\\", rule="-", bar="=", bar_rest="-", tick="|", edge="|", caret="_",
    more=">", less="^", gantt_prefill="#", gantt_decode="=", gantt_off="-", gantt_grid=":", gantt_end="*",
    bracket_left="[", bracket="-", bracket_right="]", arrow="->", minus="-", at_most="<=", delta="+/-", ellipsis="...",
    times="*", levels="_,;~+*$@", eighths="#######" + "#", unicode=False,
)  # fmt: skip


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def mix(color: str, ground: str, share: float) -> str:
    """``share`` of ``color`` over ``ground``, both ``#rrggbb``."""
    return "#" + "".join(f"{round(b + (a - b) * share):02x}" for a, b in zip(_rgb(color), _rgb(ground), strict=True))


def luminance(color: str) -> float:
    """Relative luminance of sRGB ``#rrggbb`` as defined by WCAG 2."""
    linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _rgb(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """WCAG contrast ratio, 1 … 21."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def readable(color: str, ground: str, ratio: float = TEXT_CONTRAST) -> str:
    """``color`` pushed toward white or black until it reads as text on ``ground``."""
    pole = "#ffffff" if luminance(ground) < 0.2 else "#000000"
    share, result = 0.0, color
    while contrast(result, ground) < ratio and share < 1.0:
        share += 0.02
        result = mix(pole, color, share)
    return result


@dataclass(frozen=True)
class Theme:
    """A palette by role name, the request hues, and a glyph set.

    ``kind`` is "true" (24-bit colours, tints derived), "ansi" (the terminal's sixteen colours) or "mono" (no colour at
    all: bold, underline and reverse only). Styles are cached per theme; equal requests return the same object.
    """

    name: str
    kind: str
    dark: bool
    roles: Mapping[str, str]
    hues: tuple[str, ...]
    glyphs: Glyphs
    _styles: dict[tuple, Style] = field(default_factory=dict, repr=False, compare=False)

    def color(self, role: str) -> str | None:
        """The colour of a role, or the colour itself when it is one; None in a theme without colour."""
        return self.roles.get(role, role) if self.kind != "mono" else None

    def style(
        self,
        fg: str = "text",
        bg: str = "bg",
        *,
        bold: bool = False,
        italic: bool = False,
        underline: bool = False,
        strike: bool = False,
    ) -> Style:
        """A style from role names (or colours)."""
        key = (fg, bg, bold, italic, underline, strike)
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self._make(*key)
        return style

    def _make(self, fg: str, bg: str, bold: bool, italic: bool, underline: bool, strike: bool) -> Style:
        if self.kind == "mono":
            return Style(
                bold=bold or fg in ("bright", "amber", "vermilion"),
                italic=italic,
                underline=underline or bg in ("amber_on", "vermilion_on", "invalid"),
                strike=strike,
                reverse=bg in ("bright", "amber", "vermilion", "share", "on"),
                dim=fg in ("rule", "faint"),
            )
        front, ground = self.color(fg), self.color(bg)
        return Style(
            color=None if front == "default" else front,
            bgcolor=None if ground == "default" else ground,
            bold=bold,
            italic=italic,
            underline=underline or (self.kind == "ansi" and bg in ("amber_on",)),
            strike=strike,
        )

    def tile(self, hue: int, kind: str, ground: str = "bg") -> Style:
        """The style of something that belongs to a request.

        ``kind``: "head" (first cell of a run), "body", "window", "window_head", "transit", "text" (hue as text),
        "bold" (the same, bold), "plan" (what is only planned), "dim" (not in focus), "bar" (a plain filled cell),
        "fill" (a part of a cell that is filled, over the tint).
        """
        key = (hue, kind, ground)
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self._make_tile(self.hues[hue % len(self.hues)], kind, ground)
        return style

    def _make_tile(self, hue: str, kind: str, ground: str) -> Style:
        bold = kind in ("head", "window_head", "bold", "plan_head")
        if self.kind == "mono":
            return Style(bold=bold, dim=kind == "dim", underline=kind in ("head", "window_head"))
        if self.kind == "ansi":
            base = self.color(ground)
            base = None if base == "default" else base
            if kind in ("head", "body", "bar"):
                return Style(color="black" if kind != "bar" else hue, bgcolor=hue, bold=bold)
            return Style(color="bright_black" if kind == "dim" else hue, bgcolor=base, bold=bold)
        bg, ink = self.roles["bg"], self.roles["ink"]
        under = self.roles.get(ground, ground)
        share = 0.27 if self.dark else 0.34
        if kind == "head":
            return Style(color=ink, bgcolor=hue, bold=True)
        if kind == "body":
            return Style(color=mix(ink, hue, 0.7), bgcolor=hue)
        if kind == "bar":
            return Style(color=hue, bgcolor=under)
        if kind == "fill":
            return Style(color=hue, bgcolor=mix(hue, bg, share))
        if kind in ("window", "window_head", "plan", "plan_head"):
            tint = mix(hue, bg, share)
            return Style(color=readable(hue, tint, 4.0 if not bold else TEXT_CONTRAST), bgcolor=tint, bold=bold)
        if kind == "transit":
            tint = mix(hue, bg, 0.12)
            return Style(color=readable(hue, tint, 3.6), bgcolor=tint)
        if kind == "dim":
            return Style(color=mix(hue, bg, 0.45), bgcolor=under)
        return Style(color=readable(hue, under), bgcolor=under, bold=bold)


_DARK = {
    "bg": "#0f1217", "panel": "#171b22", "lift": "#1e242d", "rule": "#2b333e", "faint": "#4a5563", "muted": "#8d99a8",
    "text": "#c9d1d9", "bright": "#f3f6f9", "select": "#202b38", "ink": "#0f1217", "steel": "#8097b1",
    "steel2": "#3f4e60", "steel3": "#bcc8d8", "amber": "#e8b94a", "amber_on": "#33290f", "vermilion": "#f0764b",
    "vermilion_on": "#3a1b12", "invalid": "#46200f", "good": "#7fc8a9", "share": "#eef2f6", "share_ink": "#0f1217",
    "token0": "#1a2028", "token1": "#262e39", "token_new": "#3b4756", "on": "#f3f6f9", "on_ink": "#0f1217",
}  # fmt: skip
_LIGHT = {
    "bg": "#fbfaf7", "panel": "#f1eee8", "lift": "#e9e5dd", "rule": "#d8d3c9", "faint": "#a8a296", "muted": "#666a70",
    "text": "#2c3138", "bright": "#0b0e12", "select": "#e2e9f1", "ink": "#14171b", "steel": "#5d7693",
    "steel2": "#b4c1cf", "steel3": "#2f3d4e", "amber": "#8a5f00", "amber_on": "#fbeecb", "vermilion": "#b3390f",
    "vermilion_on": "#fbe3d9", "invalid": "#f7d2c2", "good": "#2c7455", "share": "#3a414a", "share_ink": "#fbfaf7",
    "token0": "#f0ece4", "token1": "#e1dbd0", "token_new": "#c9d3df", "on": "#0b0e12", "on_ink": "#fbfaf7",
}  # fmt: skip
_CONTRAST = _DARK | {
    "bg": "#000000", "panel": "#000000", "lift": "#1c1c1c", "rule": "#7a7a7a", "faint": "#8c8c8c", "muted": "#d0d0d0",
    "text": "#ffffff", "bright": "#ffffff", "select": "#003a75", "ink": "#000000", "steel": "#c8d6e6",
    "steel2": "#6f8296", "steel3": "#ffffff", "amber": "#ffd35c", "amber_on": "#4a3700", "vermilion": "#ff9068",
    "vermilion_on": "#571c08", "good": "#a4f0cf", "share": "#ffffff", "share_ink": "#000000", "token0": "#1f1f1f",
    "token1": "#383838", "token_new": "#5a5a5a", "on": "#ffffff", "on_ink": "#000000",
}  # fmt: skip
_ANSI = {
    "bg": "default", "panel": "default", "lift": "bright_black", "rule": "bright_black", "faint": "bright_black",
    "muted": "default", "text": "default", "bright": "bright_white", "select": "bright_black", "ink": "black",
    "steel": "white", "steel2": "bright_black", "steel3": "bright_white", "amber": "bright_yellow",
    "amber_on": "default", "vermilion": "bright_red", "vermilion_on": "default", "invalid": "red",
    "good": "bright_green", "share": "bright_white", "share_ink": "black", "token0": "default", "token1": "default",
    "token_new": "bright_black", "on": "bright_white", "on_ink": "black",
}  # fmt: skip
_ANSI_HUES = ("cyan", "yellow", "magenta", "green", "blue", "bright_cyan", "bright_magenta", "bright_blue")

THEME_NAMES = ("dark", "light", "contrast", "ansi", "mono")


def theme_named(name: str, *, ascii_only: bool = False) -> Theme:
    """The theme called ``name`` (one of THEME_NAMES), drawn with ASCII glyphs when asked.

    Raises:
        ValueError: there is no such theme.
    """
    glyphs = ASCII_GLYPHS if ascii_only else Glyphs()
    if name == "dark":
        return Theme(name, "true", True, _DARK, HUES, glyphs)
    if name == "light":
        return Theme(name, "true", False, _LIGHT, HUES, glyphs)
    if name == "contrast":
        return Theme(name, "true", True, _CONTRAST, HUES, glyphs)
    if name == "ansi":
        return Theme(name, "ansi", True, _ANSI, _ANSI_HUES, glyphs)
    if name == "mono":
        return Theme(name, "mono", True, dict.fromkeys(_DARK, "default"), HUES, glyphs)
    raise ValueError(f"no theme {name!r}; there are {', '.join(THEME_NAMES)}")


class HueBook:
    """Hands out request hues: the one with the fewest living users, among those the one unused for longest."""

    def __init__(self, count: int = len(HUES)) -> None:
        self._users = [0] * count
        self._last = [-1] * count
        self._clock = 0

    def take(self) -> int:
        hue = min(range(len(self._users)), key=lambda i: (self._users[i], self._last[i], i))
        self._users[hue] += 1
        self._touch(hue)
        return hue

    def give_back(self, hues: Iterable[int]) -> None:
        """The requests of these hues are gone."""
        for hue in hues:
            self._users[hue] -= 1
            self._touch(hue)

    def _touch(self, hue: int) -> None:
        self._clock += 1
        self._last[hue] = self._clock

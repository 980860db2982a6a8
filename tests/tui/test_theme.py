"""The palette: hues stay apart for every kind of colour vision, words keep their contrast, mono has none."""

from dataclasses import fields
from itertools import combinations

import pytest

from cbtui.letters import UNNAMED, UNNAMED_WINDOW
from cbtui.theme import ASCII_GLYPHS, HUES, THEME_NAMES, Glyphs, HueBook, contrast, readable, theme_named

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB
DEFICIENT = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
LEAST = {"normal": 0.10, "protan": 0.08, "deutan": 0.08, "tritan": 0.10}


def linear(color: str) -> list[float]:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def apply(matrix, vector) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def oklab(rgb: list[float]) -> list[float]:
    lms = apply(
        ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566),
         (0.0883024619, 0.2817188376, 0.6299787005)),
        rgb,
    )  # fmt: skip
    roots = [max(0.0, v) ** (1 / 3) for v in lms]
    return apply(
        ((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099),
         (0.0259040371, 0.7827717662, -0.8086757660)),
        roots,
    )  # fmt: skip


@pytest.mark.parametrize("vision", DEFICIENT)
def test_hues_are_told_apart(vision: str) -> None:
    seen = [oklab([min(1.0, max(0.0, v)) for v in apply(DEFICIENT[vision], linear(hue))]) for hue in HUES]
    distance = min(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) ** 0.5 for x, y in combinations(seen, 2))
    assert distance >= LEAST[vision]


@pytest.mark.parametrize("name", ["dark", "light", "contrast"])
def test_words_keep_their_contrast(name: str) -> None:
    theme = theme_named(name)
    ground = theme.roles["bg"]
    for role, least in (("muted", 4.5), ("text", 7), ("bright", 12), ("amber", 4.5), ("vermilion", 4.5), ("good", 4.5)):
        assert contrast(theme.roles[role], ground) >= least, role
    for panel in ("panel", "lift", "select"):
        assert contrast(theme.roles["muted"], theme.roles[panel]) >= 4.0, panel
    assert contrast(theme.roles["amber"], theme.roles["amber_on"]) >= 4.5
    assert contrast(theme.roles["vermilion"], theme.roles["vermilion_on"]) >= 4.5
    for hue in HUES:
        assert contrast(theme.roles["ink"], hue) >= 4.0
        assert contrast(readable(hue, ground), ground) >= 4.5


@pytest.mark.parametrize("name", ["dark", "light", "contrast"])
def test_letters_on_tiles_and_tints_can_be_read(name: str) -> None:
    theme = theme_named(name)
    for hue in range(len(HUES)):
        for kind in ("head", "window", "window_head", "plan", "transit", "text"):
            style = theme.tile(hue, kind)
            assert style.color is not None and style.bgcolor is not None
            pair = style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex
            assert contrast(*pair) >= 3.0, (kind, hue)


def test_without_colour_there_is_no_colour() -> None:
    theme = theme_named("mono")
    for role in ("text", "amber", "vermilion", "bright", "faint"):
        for ground in ("bg", "amber_on", "share", "select", "token_new"):
            style = theme.style(role, ground)
            assert style.color is None and style.bgcolor is None
    assert theme.tile(3, "head").bgcolor is None and theme.tile(3, "head").bold
    assert theme.style("amber", "amber_on").underline, "the margin ground has to be told some other way"


def test_ansi_uses_the_terminals_own_colours() -> None:
    theme = theme_named("ansi")
    for hue in range(8):
        for kind in ("head", "body", "window", "text"):
            color = theme.tile(hue, kind).color
            assert color is not None and color.number is not None and color.number < 16


def test_styles_are_shared() -> None:
    theme = theme_named("dark")
    assert theme.style("text") is theme.style("text")
    assert theme.tile(2, "head") is theme.tile(2, "head")


def test_unknown_theme_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="dark, light, contrast, ansi, mono"):
        theme_named("solarized")
    assert [theme_named(name).name for name in THEME_NAMES] == list(THEME_NAMES)


def test_a_new_request_takes_the_hue_used_least_and_longest_ago() -> None:
    book = HueBook()
    first = [book.take() for _ in range(8)]
    assert first == list(range(8))
    book.give_back([5])
    book.give_back([2])
    assert book.take() == 5
    assert book.take() == 2
    assert book.take() == 0, "all hues have one living user: the one taken longest ago"


@pytest.mark.parametrize("glyphs", [Glyphs(), ASCII_GLYPHS], ids=["unicode", "ascii"])
def test_no_glyph_can_be_taken_for_a_request_or_a_figure(glyphs: Glyphs) -> None:
    signs = {item.name: getattr(glyphs, item.name) for item in fields(glyphs) if item.name != "unicode"}
    for name, sign in signs.items():
        assert sign and (sign == "Δ" or not any(map(str.isalnum, sign))), (name, sign)
        assert glyphs.unicode or sign.isascii(), (name, sign)


@pytest.mark.parametrize("glyphs", [Glyphs(), ASCII_GLYPHS], ids=["unicode", "ascii"])
def test_what_stands_in_the_block_map_differs_from_everything_else_there(glyphs: Glyphs) -> None:
    states = [glyphs.shared, glyphs.shared_window, glyphs.out, glyphs.back, glyphs.cached, glyphs.free, glyphs.behind,
              glyphs.parked, UNNAMED, UNNAMED_WINDOW, *glyphs.levels]  # fmt: skip
    assert len(glyphs.levels) == 8 and len(set(states)) == len(states)
    words = [glyphs.waiting, glyphs.prefill, glyphs.decode, glyphs.finished, glyphs.cancelled, glyphs.refused,
             glyphs.out, glyphs.back, glyphs.parked]  # fmt: skip
    assert len(set(words)) == len(words)

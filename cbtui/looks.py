"""The monitor's palettes as Textual themes, so that dialogs, palette and scroll bars wear the same colours."""

from collections.abc import Mapping

from textual.theme import Theme as TextualTheme

from cbtui.theme import THEME_NAMES, Theme, theme_named

PREFIX = "cb-"


_TERMINAL: Mapping[str, str] = {
    "ansi-background": "ansi_black",
    "ansi-foreground": "ansi_white",
    "border-blurred": "ansi_black",
    "block-cursor-foreground": "ansi_black",
    "block-cursor-background": "ansi_white",
    "input-cursor-background": "ansi_white",
    "input-cursor-foreground": "ansi_black",
    "input-selection-background": "ansi_bright_black",
    "input-selection-foreground": "ansi_white",
    "screen-selection-background": "ansi_bright_black",
    "screen-selection-foreground": "ansi_white",
}
"""What Textual asks of themes that use the terminal's own colours."""


def css_variables(theme: Theme) -> dict[str, str]:
    """One CSS variable per role, ``$cb-bg`` and so on."""
    own = {PREFIX + role: _css(color) for role, color in theme.roles.items()}
    return own if theme.kind == "true" else {**own, **_TERMINAL}


def textual_theme(theme: Theme) -> TextualTheme:
    """A Textual theme named ``cbtui-<name>``."""
    role = {name: _css(color) for name, color in theme.roles.items()}
    return TextualTheme(
        name=f"cbtui-{theme.name}",
        primary=role["steel"],
        secondary=role["steel2"],
        warning=role["amber"],
        error=role["vermilion"],
        success=role["good"],
        accent=role["steel"],
        foreground=role["text"],
        background=role["bg"],
        surface=role["panel"],
        panel=role["lift"],
        dark=theme.dark,
        ansi=theme.kind != "true",
        variables=css_variables(theme),
    )


def all_themes() -> list[TextualTheme]:
    """Every theme of the monitor."""
    return [textual_theme(theme_named(name)) for name in THEME_NAMES]


def _css(color: str) -> str:
    """A colour as Textual's CSS writes it: names of terminal colours get their prefix."""
    return color if color.startswith("#") else f"ansi_{color}"

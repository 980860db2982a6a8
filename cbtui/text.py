"""Text that may be hostile: made safe to draw, and wrapped as it grows, a token at a time."""

import re
import unicodedata
from dataclasses import dataclass, field

from rich.cells import cell_len

NEWLINE = "\n"
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC … BEL or ST
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC … ST
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[ -/]*[0-~]?"  # two-character escapes
)
_REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """``text`` without anything that could move the cursor, change colours or reorder what is drawn.

    Escape sequences and control codes go, so do format characters (joiners, direction overrides, variation selectors);
    tabs become one space, all line ends become ``\\n``. What remains has a width that does not depend on neighbours.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text.replace("\r\n", NEWLINE))
    return "".join(map(_safe, text))


def _safe(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() or char == NEWLINE else {"\t": " ", "\r": NEWLINE}.get(char, "")
    category = unicodedata.category(char)
    if category in ("Cc", "Cf", "Mn", "Me", "Sk") and cell_len(f"a{char}") == 1:
        # a mark that joins the cell before it: kept for scripts that need it, dropped where it changes widths
        return char if category in ("Mn", "Me") and not 0xFE00 <= ord(char) <= 0xFE0F else ""
    if category in ("Cc", "Cf"):
        return ""
    if category in ("Zl", "Zp"):
        return NEWLINE
    if category == "Zs":
        return " "
    if category in ("Cs", "Cn", "Co") or 0x1F1E6 <= ord(char) <= 0x1F1FF or 0x1F3FB <= ord(char) <= 0x1F3FF:
        return _REPLACEMENT
    return char


def one_line(text: str, newline: str) -> str:
    """Cleaned text on one line, line ends shown as ``newline``."""
    return clean(text).replace(NEWLINE, newline)


_MARK = re.compile(r"<[^<>\s]{1,40}>")


def asked(prompt: str) -> str:
    """What the person asked: the last user turn of a chat prompt without the marks around it, else the whole prompt."""
    parts = _MARK.split(prompt)
    for index in range(len(parts) - 1, -1, -1):
        role, _, rest = parts[index].partition("\n")
        if role.strip() == "user":
            turn = rest if rest.strip() else (parts[index + 1] if index + 1 < len(parts) else "")
            if turn.strip():
                return turn.strip()
    return prompt


def char_width(char: str) -> int:
    return 1 if char.isascii() else cell_len(char)


@dataclass(slots=True)
class Wrap:
    """A text broken into lines of ``width`` cells while it grows.

    ``feed`` costs what it adds: finished lines are never looked at again. Every line is a list of (text, token number).

    Attributes:
        width: cells of a line.
        newline: the visible sign put where a line ended.
        lines: the lines so far; the last one is still open.
        tokens: how many tokens were fed.
    """

    width: int
    newline: str
    lines: list[list[tuple[str, int]]] = field(default_factory=lambda: [[]])
    tokens: int = 0
    _used: int = 0
    _break: tuple[int, int] | None = None
    """(run, character) after the last space of the open line, where it may be broken."""

    def feed(self, piece: str, token: int) -> None:
        """Append the (cleaned) text of a token."""
        self.tokens += 1
        if piece and piece.isascii() and NEWLINE not in piece and self._used + len(piece) <= self.width:
            self._whole(piece, token)
            return
        for char in piece.replace(NEWLINE, self.newline):
            self._char(char, token)

    def _whole(self, piece: str, token: int) -> None:
        """A piece of plain characters for which there is room: as ``_char`` for each of them."""
        line = self.lines[-1]
        if line and line[-1][1] == token:
            line[-1] = (line[-1][0] + piece, token)
        else:
            line.append((piece, token))
        self._used += len(piece)
        space = piece.rfind(" ")
        if space >= 0:
            self._break = (len(line) - 1, len(line[-1][0]) - len(piece) + space + 1)

    def _char(self, char: str, token: int) -> None:
        size = char_width(char)
        # Twice where a wide character does not fit behind the word that moved down either.
        while self._used and self._used + size > self.width:
            self._start_line(skip_space=char == " ")
            if char == " ":
                return
        line = self.lines[-1]
        if line and line[-1][1] == token:
            line[-1] = (line[-1][0] + char, token)
        else:
            line.append((char, token))
        self._used += size
        if char == " ":
            self._break = (len(line) - 1, len(line[-1][0]))

    def _start_line(self, *, skip_space: bool) -> None:
        line = self.lines[-1]
        rest: list[tuple[str, int]] = []
        if self._break is not None and not skip_space:
            run, at = self._break
            text, token = line[run]
            rest = [(text[at:], token)] if text[at:] else []
            rest += line[run + 1 :]
            kept = [(text[:at], token)] if text[:at] else []
            self.lines[-1] = line[:run] + kept
        self.lines.append(rest)
        self._used = sum(cell_len(text) for text, _ in rest)
        self._break = None


def plain_error(text: str) -> str:
    """An error as a person reads it: the class in front says nothing that the words behind it do not."""
    return re.sub(r"^(?:RuntimeError|EngineError|ValueError): (?=\S+ \S)", "", text)


def unnamed(refusal: str | None) -> str:
    """A refusal without the request's name in front: what it stands beside says which one it is."""
    return re.sub(r"^request '[^']*': ", "", refusal or "")

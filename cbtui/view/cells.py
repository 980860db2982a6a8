"""Rows of styled cells. A row builder counts its cells, so a row is never wider or narrower than it says."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from cbtui.theme import Theme
from cbtui.view.chrome import Hit

Row = tuple[Segment, ...]
Span = tuple[str, Style]


def width_of(text: str) -> int:
    """Terminal cells of a text."""
    return len(text) if text.isascii() else cell_len(text)


def row_width(row: Iterable[Segment]) -> int:
    return sum(width_of(segment.text) for segment in row)


def row_text(row: Iterable[Segment]) -> str:
    return "".join(segment.text for segment in row)


class RowBuilder:
    """Builds one row from left to right.

    Args:
        width: cells of the finished row.
        ground: style of everything that is not written.
    """

    __slots__ = ("width", "used", "ground", "_texts", "_styles")

    def __init__(self, width: int, ground: Style) -> None:
        self.width = width
        self.used = 0
        self.ground = ground
        self._texts: list[str] = []
        self._styles: list[Style] = []

    @property
    def left(self) -> int:
        """Cells not written yet."""
        return self.width - self.used

    def put(self, text: str, style: Style | None = None) -> "RowBuilder":
        """Append text. Too much of it is a bug of the caller: the row refuses."""
        if not text:
            return self
        self.used += len(text) if text.isascii() else cell_len(text)
        assert self.used <= self.width, f"row of {self.width} cells overflows by {self.used - self.width}: {text!r}"
        style = self.ground if style is None else style
        if self._styles and self._styles[-1] is style:
            self._texts[-1] += text
        else:
            self._texts.append(text)
            self._styles.append(style)
        return self

    def spans(self, spans: Iterable[Span]) -> "RowBuilder":
        for text, style in spans:
            self.put(text, style)
        return self

    def to(self, x: int, style: Style | None = None) -> "RowBuilder":
        """Blank cells up to column ``x`` (none when it is already passed)."""
        if x > self.used:
            self.put(" " * (x - self.used), style)
        return self

    def right(self, text: str, width: int, style: Style | None = None) -> "RowBuilder":
        """``text`` flush right in a field of ``width`` cells; cut when it does not fit."""
        text = clip(text, width, "~")
        return self.put(" " * (width - width_of(text)) + text, style)

    def field(self, text: str, width: int, style: Style | None = None) -> "RowBuilder":
        """``text`` flush left in a field of ``width`` cells; cut when it does not fit."""
        text = clip(text, width, "~")
        return self.put(text + " " * (width - width_of(text)), style)

    def piece(self) -> Row:
        """What is written so far, for a row that is put together by other means."""
        return tuple(map(Segment, self._texts, self._styles))

    def done(self) -> Row:
        self.to(self.width)
        assert self.used == self.width, f"row is {self.used} cells wide, not {self.width}"
        return self.piece()


class Panel:
    """A block of rows of one width, and what can be clicked in it.

    ``hits`` may be given as a function: most frames are never clicked, and those of a large map are many.
    """

    __slots__ = ("rows", "_hits")

    def __init__(self, rows: list[Row], hits: list[Hit] | Callable[[], list[Hit]] | None = None) -> None:
        self.rows = rows
        self._hits = [] if hits is None else hits

    @property
    def hits(self) -> list[Hit]:
        """Clickable parts."""
        if callable(self._hits):
            self._hits = self._hits()
        return self._hits


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """At most ``width`` cells of ``text``, hard cut with an ellipsis."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    out, used, room = [], 0, width - width_of(ellipsis)
    if room < 0:
        return text[:width] if text.isascii() else " " * width
    if text.isascii():
        return text[:room] + ellipsis
    for char in text:
        size = width_of(char)
        if used + size > room:
            break
        out.append(char)
        used += size
    return "".join(out) + ellipsis


def choose(wordings: Sequence[str], width: int, ellipsis: str = "…") -> str:
    """The longest wording that fits; else the shortest one, ended at a word border with an ellipsis."""
    fitting = [text for text in wordings if width_of(text) <= width]
    if fitting:
        return max(fitting, key=width_of)
    shortest = min(wordings, key=width_of, default="")
    bare = shortest.lstrip(" ")
    lead, text = " " * (len(shortest) - len(bare)), ""
    for word in bare.split(" "):
        candidate = f"{text} {word}" if text else lead + word
        if width_of(candidate) + 1 + width_of(ellipsis) > width:
            break
        text = candidate
    return f"{text} {ellipsis}" if text else clip(shortest, width, ellipsis)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken at blanks."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            if line and width_of(line) + 1 + width_of(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
            while width_of(line) > width > 1:
                head = _head(line, width)
                lines.append(head)
                line = line[len(head) :]
        lines.append(line)
    return lines


def _head(text: str, width: int) -> str:
    """As many characters of ``text`` as ``width`` cells hold."""
    used = 0
    for place, char in enumerate(text):
        used += width_of(char)
        if used > width:
            return text[:place]
    return text


def wrap_at_most(text: str, width: int, rows: int, ellipsis: str = "…") -> list[str]:
    """The same in at most ``rows`` lines; the last one ends with an ellipsis when there is more."""
    lines = wrap(text, width)
    if len(lines) <= rows:
        return lines
    return [*lines[: rows - 1], choose((" ".join(lines[rows - 1 :]),), width, ellipsis)]


@dataclass(frozen=True, slots=True)
class Part:
    """Words that are shown whole or not at all. The part with the lowest priority goes first."""

    spans: tuple[Span, ...]
    priority: int = 0
    hit: tuple[str, int | str] | None = None

    @property
    def width(self) -> int:
        return sum(width_of(text) for text, _ in self.spans)


def keep_parts(parts: Sequence[Part], width: int, gap: int) -> list[Part]:
    """The parts that fit ``width`` cells with ``gap`` cells between them, in their order."""
    kept = list(parts)
    while kept and sum(part.width for part in kept) + gap * (len(kept) - 1) > width:
        lowest = min(range(len(kept)), key=lambda i: (kept[i].priority, i))
        del kept[lowest]
    return kept


def heading(
    theme: Theme, width: int, title: str, facts: Sequence[Part] = (), right: Sequence[Part] = (), gap: int = 3
) -> Row:
    """A one-line rule: TITLE  facts ───── right. Facts go before the title does."""
    row = RowBuilder(width, theme.style("text"))
    title = clip(title, width, theme.glyphs.ellipsis)
    room = width - width_of(title) - 2
    kept_right = keep_parts(right, max(0, room - 3), 2)
    while True:
        right_width = sum(p.width for p in kept_right) + 2 * max(0, len(kept_right) - 1)
        kept = keep_parts(facts, room - (right_width + 3 if kept_right else 0), gap)
        if kept or not (facts and kept_right):
            break  # a heading without its facts says less than one without its right side
        kept_right.remove(min(kept_right, key=lambda part: part.priority))
    row.put(title, theme.style("bright", bold=True))
    for index, part in enumerate(kept):
        row.put(" " * (gap if index else 2)).spans(part.spans)
    end = width - (right_width + 1 if kept_right else 0)
    if end - row.used >= 2:
        row.put(" ").put(theme.glyphs.rule * (end - row.used), theme.style("rule"))
    row.to(end)
    for index, part in enumerate(kept_right):
        row.put("  " if index else " ").spans(part.spans)
    return row.done()


def blank(theme: Theme, width: int, bg: str = "bg") -> Row:
    return RowBuilder(width, theme.style("text", bg)).done()


def join(left: Panel, right: Panel, gap: int, theme: Theme) -> Panel:
    """Two panels side by side; the shorter one is filled up with empty rows."""
    left_width = row_width(left.rows[0]) if left.rows else 0
    right_width = row_width(right.rows[0]) if right.rows else 0
    rows, space = [], Segment(" " * gap, theme.style("text"))
    for index in range(max(len(left.rows), len(right.rows))):
        a = left.rows[index] if index < len(left.rows) else blank(theme, left_width)
        b = right.rows[index] if index < len(right.rows) else blank(theme, right_width)
        rows.append((*a, space, *b) if gap else (*a, *b))
    shift = left_width + gap

    def hits() -> list[Hit]:
        return left.hits + [Hit(h.y, h.x0 + shift, h.x1 + shift, h.kind, h.value) for h in right.hits]

    return Panel(rows, hits)


def stack(panels: Iterable[Panel]) -> Panel:
    """Panels of one width, one below the other."""
    rows: list[Row] = []
    placed: list[tuple[int, Panel]] = []
    for panel in panels:
        placed.append((len(rows), panel))
        rows += panel.rows

    def hits() -> list[Hit]:
        return [Hit(h.y + top, h.x0, h.x1, h.kind, h.value) for top, panel in placed for h in panel.hits]

    return Panel(rows, hits)

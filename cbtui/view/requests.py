"""The table of requests: one row each, with a reason that is always filled."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from cbtui import sentences
from cbtui.letters import cut_label
from cbtui.stories import Story
from cbtui.text import asked, clean
from cbtui.theme import Glyphs
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, heading, width_of
from cbtui.view.chrome import Hit
from cbtui.view.columns import column_names, figures, why_column
from cbtui.view.scene import Scene

ATTENTION = {
    "waiting": 0, "on_cpu": 0, "to_cpu": 1, "to_gpu": 1, "stalled": 3, "prefill": 3, "decode": 4,
    "refused": 5, "failed": 5, "stopped": 5, "cancelled": 6, "finished": 6,
}  # fmt: skip
WORDS = {
    "to_cpu": "to CPU", "on_cpu": "on CPU", "to_gpu": "to GPU",
}  # fmt: skip
_GLYPHS = {"to_cpu": "out", "to_gpu": "back", "on_cpu": "parked", "stalled": "waiting", "stopped": "failed"}
MOVING = ("waiting", "to_cpu", "to_gpu", "on_cpu", "stalled", "refused", "failed", "stopped")
FULL = 3
"""Wordings of a reason that leave nothing out that matters: the shorter ones are for screens without second lines."""
_ORDERS = {
    "attention": "attention first",
    "arrival": "in order of arrival",
    "blocks": "most blocks first",
    "progress": "most tokens first",
}
GONE = ("finished", "cancelled", "stopped", "failed", "refused")


@dataclass(frozen=True, slots=True)
class Line:
    """A request to show: its story and the word for its state."""

    story: Story
    state: str


def lines(scene: Scene) -> list[Line]:
    """All requests that had arrived by the step shown, filtered and in the chosen order."""
    step = scene.step
    found = []
    for story in scene.state.stories.values():
        if 0 <= story.arrived <= step and matches(scene, story):
            found.append(Line(story, scene.state_of(story)))
    order = scene.chrome.order
    if order == "arrival":
        return sorted(found, key=lambda line: line.story.number)
    if order == "blocks":
        return sorted(found, key=lambda line: (-_held(scene, line.story), line.story.number))
    if order == "progress":
        return sorted(found, key=lambda line: (-line.story.output_at(step), line.story.number))
    place = {key: index for index, key in enumerate(scene.picture.waiting)}

    def attention(line: Line) -> tuple[int, int]:
        story, group = line.story, ATTENTION.get(line.state, 4)
        if group == 0:
            return group, place.get(story.key, 1 << 30)
        if group >= 5:
            return group, -max(story.ended, 0)
        return group, -story.number

    return sorted(found, key=attention)


def glyph_of(glyphs: Glyphs, state: str) -> str:
    """The sign that stands before the word of a state."""
    return str(getattr(glyphs, _GLYPHS.get(state, state), " "))


def matches(scene: Scene, story: Story) -> bool:
    """Whether every word of the filter stands in what the row or the prompt says."""
    words = scene.chrome.filter.lower().split()
    if not words:
        return True
    state = scene.state_of(story)
    reason = sentences.why(scene, story)[0]
    row = (story.label, story.request_id, WORDS.get(state, state), reason, asked(story.prompt)[:200])
    haystack = " ".join(row).lower()
    return all(word in haystack for word in words)


def _held(scene: Scene, story: Story) -> int:
    live = scene.live(story.key)
    return sum(map(live.held, range(len(live.tables)))) if live is not None else 0


def window_of(found: list[Line], rows: int, scroll: int, selected: int | None) -> int:
    """First line shown: the scroll position, moved so that the selected request stays visible."""
    first = max(0, min(scroll, len(found) - rows))
    if selected is not None:
        at = next((i for i, line in enumerate(found) if line.story.key == selected), None)
        if at is not None:
            first = min(first, at) if at < first else max(first, at - rows + 1)
    return first


def requests(scene: Scene, width: int, height: int, *, two_lines: bool = False) -> Panel:
    """Heading, column names, rows."""
    theme, chrome = scene.theme, scene.chrome
    found = lines(scene)
    header_rows = 2 if height >= 4 else 1
    room = height - header_rows
    split = _splitter(scene, width) if two_lines else None
    heights = [1 + (split is not None and split(line)) for line in found]
    first = window_of(found, room, chrome.scroll.get("requests", 0), chrome.selected)
    rows: list[Row] = []
    hits: list[Hit] = []
    last = first
    while last < len(found) and len(rows) + heights[last] <= room:
        made = _rows(scene, found[last], width, double=heights[last] == 2)
        for row in made:
            hits.append(Hit(header_rows + len(rows), 0, width, "request", found[last].story.key))
            rows.append(row)
        last += 1
    if not found:
        rows.append(_empty(scene, width))
    head = _head(scene, width, found, first, last)
    rows = [head, *([column_names(scene, width)] if header_rows == 2 else []), *rows]
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height], [*hits, Hit(0, max(0, width - 18), width, "order", "order")])


def _head(scene: Scene, width: int, found: list[Line], first: int, last: int) -> Row:
    theme, glyphs, chrome = scene.theme, scene.theme.glyphs, scene.chrome
    dim, strong = theme.style("muted"), theme.style("bright", bold=True)
    facts = [Part(((str(len(found)), strong),), 9)]
    if chrome.filter or chrome.filtering:
        amber = theme.style("amber", bold=True)
        caret = glyphs.caret if chrome.filtering else ""
        words = "".join(c for c in clean(chrome.filter) if c != "\n")
        facts.append(Part((("/ ", dim), (f"{words}{caret}", amber)), 8))
    right = Part((("o", strong), (f" {_ORDERS.get(chrome.order, chrome.order)}", dim)), 1)
    hidden = _hidden(glyphs, first, found[last:])
    if hidden:
        room = width - len("REQUESTS  ") - sum(part.width + 3 for part in facts) - 3
        if all(width_of(words) > room - right.width for words in hidden):
            right = Part((("o", strong), (" order", dim)), 1)
        facts.append(Part(((choose(hidden, room - right.width, glyphs.ellipsis), dim),), 5))
    return heading(theme, width, "REQUESTS", facts, [right])


def _hidden(glyphs: Glyphs, above: int, below: list[Line]) -> tuple[str, ...]:
    """Where the requests are that have no row, from long to short; empty when all have one."""
    ups = (f"{glyphs.less} {above} above", f"{glyphs.less} {above}") if above else ("", "")
    counts = Counter(WORDS.get(line.state, line.state) for line in below)
    listed, number = ", ".join(f"{n} {word}" for word, n in counts.items()), len(below)
    downs = (f"{listed} below", f"{number} more below", f"{number} more") if below else ()
    if not downs:
        return ups if above else ()
    texts = [f"{ups[index == 2]}  {glyphs.more} {text}".strip() for index, text in enumerate(downs)]
    return tuple(texts)


def _splitter(scene: Scene, width: int) -> Callable[[Line], bool]:
    room = width - why_column(width)

    def is_long(line: Line) -> bool:
        if line.state not in MOVING:
            return False
        wordings = sentences.why(scene, line.story)
        full = wordings[:-1] or wordings
        return all(width_of(words) > room for words in (full if line.state == "refused" else full[:FULL]))

    return is_long


def _second_choice(wordings: tuple[str, ...]) -> str:
    return wordings[min(1, len(wordings) - 1)]


def _rows(scene: Scene, line: Line, width: int, *, double: bool) -> list[Row]:
    theme, glyphs, story = scene.theme, scene.theme.glyphs, line.story
    selected = scene.chrome.selected == story.key
    bg = "select" if selected else "bg"
    row = RowBuilder(width, theme.style("text", bg))
    row.put(glyphs.cursor if selected else " ", theme.style("bright", bg, bold=True))
    _tile(scene, row, story, line.state, bg)
    row.to(6)
    state_role, data_role, why_role = _roles(line.state, selected=selected)
    glyph = glyph_of(glyphs, line.state)
    row.put(f"{glyph} {WORDS.get(line.state, line.state)}", theme.style(state_role, bg))
    row.put(figures(scene, story, width, row.used), theme.style(data_role, bg)).put("  ")
    style = theme.style(why_role, bg)
    start, wordings = row.used, sentences.why(scene, story)
    if not double:
        row.put(choose(wordings, row.left, glyphs.ellipsis), style)
        return [row.done()]
    first, second = _halves(_second_choice(wordings), row.left, glyphs.ellipsis)
    row.put(first, style)
    below = RowBuilder(width, theme.style("text", bg)).to(start).put(second, style)
    return [row.done(), below.done()]


def _halves(text: str, room: int, ellipsis: str) -> tuple[str, str]:
    cut = text[: room + 1].rfind(" ")
    if cut <= 0:
        return choose((text,), room, ellipsis), ""
    return text[:cut], choose((text[cut + 1 :],), room, ellipsis)


def _tile(scene: Scene, row: RowBuilder, story: Story, state: str, bg: str) -> None:
    theme = scene.theme
    name = cut_label(story.label, 4, theme.glyphs.ellipsis)
    text = {1: f" {name} ", 2: f" {name} ", 3: name}.get(len(name), name)
    if state in GONE:
        role = "vermilion" if state in ("refused", "failed") else "muted"
        row.put(text, theme.style(role, bg, bold=state in ("refused", "failed")))
        return
    row.put(text, theme.tile(story.hue, "head"))


def _roles(state: str, *, selected: bool) -> tuple[str, str, str]:
    """Style roles of the state word, the figures and the reason."""
    if state == "waiting":
        return "amber", "text", "amber"
    if state in ("refused", "failed"):
        return "vermilion", "text", "vermilion"
    if state in ("finished", "cancelled", "stopped"):
        return "muted", "muted", "muted"
    if state == "decode" and not selected:
        return "text", "text", "muted"
    return "text", "text", "text"


def _empty(scene: Scene, width: int) -> Row:
    theme = scene.theme
    row = RowBuilder(width, theme.style("muted"))
    wordings: tuple[str, ...]
    if scene.chrome.filter:
        wordings = ("  nothing matches the filter: esc clears it", "  nothing matches")
    else:
        wordings = ("  no requests yet: a adds one, A a burst of them", "  no requests yet: a adds one", "  none yet")
    return row.put(choose(wordings, width, theme.glyphs.ellipsis)).done()

"""The text of requests as it comes: every token a shade of its own, the newest one bright."""

from typing import cast

from rich.cells import cell_len

from cbtui.sentences import seconds
from cbtui.stories import Story
from cbtui.text import asked, one_line
from cbtui.theme import Theme
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, clip, heading
from cbtui.view.chrome import Hit
from cbtui.view.scene import Scene

LONGEST_WORD = 24
"""Cells looked through for the start of a word; some languages have no blanks."""


def stream_lines(scene: Scene, story: Story, width: int, rows: int) -> list[list[tuple[str, int]]]:
    """The last ``rows`` lines of a request's output at the step shown, as (text, token number) runs."""
    known = story.output_at(scene.step)
    if not known:
        return []
    lines = story.wrapped(width, scene.theme.glyphs.newline).lines
    last = len(lines)
    if known < len(story.pieces):
        last = next((i for i, line in enumerate(lines) if line and line[0][1] >= known), len(lines))
    shown = [[(text, token) for text, token in line if token < known] for line in lines[max(0, last - rows) : last]]
    return shown


def _line(theme: Theme, runs: list[tuple[str, int]], width: int, newest: int, hue: int, *, caret: bool) -> Row:
    row = RowBuilder(width, theme.style("text"))
    row.put(" ")
    shades = theme.style("text", "token0"), theme.style("text", "token1")
    for text, token in runs:
        row.put(text, shades[token % 2] if token != newest else theme.style("bright", "token_new", bold=True))
    if caret and row.left:
        row.put(theme.glyphs.caret, theme.tile(hue, "text"))
    return row.done()


def _kept_lines(scene: Scene, story: Story, width: int, place: int) -> dict[tuple[tuple[str, int], ...], Row]:
    """Lines of the frame before that are complete: they move up, but do not change any more."""
    asked, memo = (story.key, width, id(scene.theme)), scene.state.memo
    before = memo.get(f"stream {place}")
    if before is None or before[0] != asked:
        before = memo[f"stream {place}"] = asked, {}
    return cast(dict[tuple[tuple[str, int], ...], Row], before[1])


def story_rows(scene: Scene, story: Story, width: int, rows: int, place: int = 0) -> list[Row]:
    """Output of one request in ``rows`` rows, filled up with empty ones; ``place`` tells several streams apart."""
    theme = scene.theme
    known = story.output_at(scene.step)
    lines = stream_lines(scene, story, max(1, width - 2), rows)
    alive = story.ended < 0 or story.ended > scene.step
    newest = known - 1 if alive else -1
    kept, drawn = _kept_lines(scene, story, width, place), {}
    out = []
    for index, runs in enumerate(lines):
        caret = alive and index == len(lines) - 1
        whole = not caret and not (runs and runs[-1][1] >= newest >= 0)
        row = kept.get(tuple(runs)) if whole else None
        out.append(row or _line(theme, runs, width, newest, story.hue, caret=caret))
        if whole:
            drawn[tuple(runs)] = out[-1]
    kept.clear()
    kept.update(drawn)
    if not out:
        out.append(_nothing(scene, story, width))
    return out + [blank(theme, width)] * (rows - len(out))


def _nothing(scene: Scene, story: Story, width: int) -> Row:
    theme = scene.theme
    words = "refused: it never ran" if story.is_refused else "no token yet; its prompt:"
    row = RowBuilder(width, theme.style("muted")).put(clip(f" {words} ", width, theme.glyphs.ellipsis))
    prompt = one_line(asked(story.prompt)[: 4 * width], theme.glyphs.newline)
    if row.left > 8 and not story.is_refused:
        row.put(clip(prompt, row.left, theme.glyphs.ellipsis), theme.style("muted", italic=True))
    return row.done()


def _progress(scene: Scene, story: Story, *, long: bool) -> str:
    known = story.output_at(scene.step)
    limit = story.limit
    most = "" if limit is None else f" of at most {limit}" if long else f" of {scene.theme.glyphs.at_most} {limit}"
    return f"token {known}{most}"


def stream(scene: Scene, width: int, height: int) -> Panel:
    """The selected request's stream under a heading; on one row, its letter in front."""
    theme, chrome = scene.theme, scene.chrome
    story = scene.state.story(chrome.selected) if chrome.selected is not None else None
    dim = theme.style("muted")
    if height == 1:
        return Panel([_one_row(scene, story, width)])
    if story is None:
        row = RowBuilder(width, dim).put(clip("  no request selected", width, theme.glyphs.ellipsis))
        rows = [heading(theme, width, "STREAM"), row.done()]
        return Panel((rows + [blank(theme, width)] * height)[:height])
    facts = [Part(((_progress(scene, story, long=False), theme.style("text")),), 2)]
    head = heading(theme, width, f"STREAM {story.label}", facts, [Part((("shade = token", dim),))])
    return Panel([head, *story_rows(scene, story, width, height - 1)])


def _one_row(scene: Scene, story: Story | None, width: int) -> Row:
    theme = scene.theme
    row = RowBuilder(width, theme.style("text"))
    if story is None:
        return row.put(clip(" no request selected", width, theme.glyphs.ellipsis), theme.style("muted")).done()
    row.put(clip(f" {story.label} ", width, theme.glyphs.ellipsis), theme.tile(story.hue, "head")).put(
        " " if row.left else ""
    )
    room = max(1, row.left - 3)
    runs = _tail(_joined(stream_lines(scene, story, room, 3)), room, theme.glyphs.ellipsis)
    known = story.output_at(scene.step)
    alive = story.ended < 0 or story.ended > scene.step
    if not runs:
        prompt = one_line(asked(story.prompt)[: 2 * width], theme.glyphs.newline)
        return row.put(clip(f" {prompt}", row.left, theme.glyphs.ellipsis), theme.style("muted", italic=True)).done()
    for segment in _line(theme, runs, row.left, known - 1 if alive else -1, story.hue, caret=alive):
        row.put(segment.text, segment.style)
    return row.done()


def _joined(lines: list[list[tuple[str, int]]]) -> list[tuple[str, int]]:
    """Wrapped lines as one, with the blank that a break at a word took away."""
    out: list[tuple[str, int]] = []
    for line in lines:
        if out and line and _word_ends(out[-1][0]) and _word_ends(line[0][0][:1]):
            out.append((" ", line[0][1]))
        out += line
    return out


def _word_ends(text: str) -> bool:
    return text[-1:].isascii() and text[-1:] != " "


def _tail(runs: list[tuple[str, int]], width: int, ellipsis: str) -> list[tuple[str, int]]:
    """The end of some runs that fits into ``width`` cells, from the start of a word on where there is one."""
    if sum(cell_len(text) for text, _ in runs) <= width:
        return runs
    kept: list[tuple[str, int]] = []
    width -= cell_len(ellipsis)
    for text, token in reversed(runs):
        fits = len(text)
        while fits and cell_len(text[len(text) - fits :]) > width:
            fits -= 1
        if fits:
            kept.append((text[len(text) - fits :], token))
            width -= cell_len(kept[-1][0])
        if fits < len(text):
            break
    kept.reverse()
    border = next((i for i, (text, _) in enumerate(kept) if " " in text), None)
    if border is not None and sum(cell_len(text) for text, _ in kept[:border]) < LONGEST_WORD:
        text, token = kept[border]
        kept[:border + 1] = [(text[text.index(" ") :], token)]
    return [(ellipsis, kept[0][1]), *kept] if kept else []


def pinned_keys(scene: Scene, most: int) -> list[int]:
    """Streams to show: the selected one, the pinned ones, then running ones, oldest first."""
    stories = scene.state.stories
    wanted = [scene.chrome.selected, *scene.chrome.pinned]
    wanted += [live.key for live in scene.picture.running]
    keys: list[int] = []
    for key in wanted:
        if key is not None and key in stories and key not in keys and stories[key].arrived <= scene.step:
            keys.append(key)
    return keys[:most]


def streams(scene: Scene, width: int, height: int) -> Panel:
    """Several streams, each under a line of its own."""
    theme, glyphs = scene.theme, scene.theme.glyphs
    dim = theme.style("muted")
    keys = pinned_keys(scene, max(1, (height - 1) // 5))
    right = [Part(((glyphs.newline, theme.style("bright", bold=True)), (" newline", dim)))]
    facts = [Part(((f"{len(keys)} shown", theme.style("text")),), 2), Part((("each shade is one token", dim),), 1)]
    rows = [heading(theme, width, "STREAMS", facts, right)]
    hits: list[Hit] = []
    if not keys:
        rows.append(RowBuilder(width, dim).put(clip("  no request to show", width, theme.glyphs.ellipsis)).done())
    body = max(1, (height - 1 - (len(keys) - 1)) // max(1, len(keys)) - 1)
    for place, key in enumerate(keys):
        story = scene.state.stories[key]
        hits += [Hit(len(rows) + y, 0, width, "request", key) for y in range(body + 1)]
        rows.append(_stream_head(scene, story, width))
        rows += [*story_rows(scene, story, width, body, place), blank(theme, width)]
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height], [h for h in hits if h.y < height])


def _stream_head(scene: Scene, story: Story, width: int) -> Row:
    theme = scene.theme
    row = RowBuilder(width, theme.style("text"))
    row.put(clip(f" {story.label} ", width, theme.glyphs.ellipsis), theme.tile(story.hue, "head")).put(
        " " if row.left else ""
    )
    known, limit = story.output_at(scene.step), story.limit
    itl = story.itl(scene.step)
    pace = f"{seconds(itl)} each" if itl is not None else ""
    for text, style in (
        (f" token {known}", theme.style("bright", bold=True)),
        (f" of at most {limit}" if limit is not None else "", theme.style("muted")),
        (f"   {pace}" if pace else "", theme.style("muted")),
    ):
        if len(text) <= row.left:
            row.put(text, style)
    prompt = one_line(asked(story.prompt)[: 4 * width], theme.glyphs.newline)
    if row.left > 12:
        row.put("   ").put(clip(prompt, row.left - 1, theme.glyphs.ellipsis), theme.style("muted", italic=True))
    return row.done()

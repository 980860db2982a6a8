"""Mode 2: one request in full: phases that add up, its events, its block tables, its tokens with probabilities."""

from math import exp

from cbtui import sentences
from cbtui.sentences import count, seconds
from cbtui.stories import Event, Story
from cbtui.text import one_line
from cbtui.view.blocktables import table_cells
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, clip, heading, join, width_of
from cbtui.view.gantt import story_sentence
from cbtui.view.scene import Scene

LEAST_TOKENS = 3
"""Rows of the tokens below the other parts, at least: the heading, the prompt and the newest one."""
PHASES = ("queued", "prefill", "decode", "stalled", "preempted", "offloaded", "paused")


def detail(scene: Scene, width: int, height: int) -> Panel:
    theme = scene.theme
    story = scene.state.story(scene.chrome.selected) if scene.chrome.selected is not None else None
    if story is None:
        row = RowBuilder(width, theme.style("muted")).put(clip("  no request selected", width, theme.glyphs.ellipsis))
        return _fill(Panel([heading(theme, width, "REQUEST"), row.done()]), width, height, scene)
    head = [_head(scene, story, width), *_phases(scene, story, width)]
    room = max(0, height - len(head))
    if width >= 100:
        left_width = width // 2 - 1
        left = _fill(Panel(_left(scene, story, left_width)), left_width, room, scene)
        right = _fill(Panel(_tokens(scene, story, width - left_width - 2, room)), width - left_width - 2, room, scene)
        body = join(left, right, 2, theme).rows if room else []
    else:
        body = _below(scene, story, width, room)
    return _fill(Panel([*head, *body]), width, height, scene)


def _below(scene: Scene, story: Story, width: int, room: int) -> list[Row]:
    """The same in one column. A part has room for its heading and a row of it, or is left out."""
    if room < 2:
        return []
    why, tables, events = _why(scene, story, width), _tables(scene, story, width), _events(scene, story, width)
    left = room - len(why)
    tokens = min(left, LEAST_TOKENS) if left >= 2 else 0
    left -= tokens
    tables = tables if len(tables) <= left else []
    left -= len(tables)
    events = events[:left] if left >= 2 else []
    left -= len(events)
    return [*why, *tables, *events, *(_tokens(scene, story, width, tokens + left) if tokens else ())]


def _fill(panel: Panel, width: int, height: int, scene: Scene) -> Panel:
    rows = panel.rows[:height] + [blank(scene.theme, width)] * (height - len(panel.rows))
    return Panel(rows)


def _head(scene: Scene, story: Story, width: int) -> Row:
    theme = scene.theme
    dim, text = theme.style("muted"), theme.style("text")
    facts = [Part(((clip(one_line(story.request_id, " "), 40, theme.glyphs.ellipsis), text),), 9)]
    if story.info is not None:
        facts.append(Part(((story.info.sampling or "greedy", dim),), 4))
        if story.info.child:
            facts.append(Part(((f"sequence {story.info.child + 1} of its request", dim),), 3))
    return heading(theme, width, f"REQUEST {story.label}", facts)


def _phases(scene: Scene, story: Story, width: int) -> list[Row]:
    """Where its time went: a bar, and the sum in words."""
    theme = scene.theme
    dim, text, strong = theme.style("muted"), theme.style("text"), theme.style("bright", bold=True)
    if story.is_refused or not story.phases:
        return [RowBuilder(width, dim).put(choose(sentences.why(scene, story), width, theme.glyphs.ellipsis)).done()]
    now = min(scene.now, story.ended_time) if 0 <= story.ended <= scene.step else scene.now
    spent = [(kind, story.seconds(kind, now)) for kind in PHASES]
    spent = [(kind, value) for kind, value in spent if value > 0]
    total = sum(value for _, value in spent)
    bar = RowBuilder(width, text).to(1)
    room = width - 2
    looks = {
        "queued": theme.style("amber", "amber_on"), "prefill": theme.tile(story.hue, "head"),
        "decode": theme.tile(story.hue, "body"), "stalled": theme.style("muted", "lift"),
        "preempted": theme.style("amber", "amber_on"), "offloaded": theme.tile(story.hue, "window"),
        "paused": theme.style("muted", "lift"),
    }  # fmt: skip
    used = 0.0
    for kind, value in spent:
        used += value
        cells = 1 + round(used / total * room) - bar.used if total else 0
        if cells > 0:
            word = f" {kind}" if cells > len(kind) + 1 else ""
            bar.put(word + (" " if theme.glyphs.unicode else "=") * (cells - len(word)), looks[kind])
    sums = RowBuilder(width, text).put(" ")
    for index, (kind, value) in enumerate(spent):
        words = f"{' + ' if index else ''}{kind} {seconds(value)}"
        if width_of(words) + 12 > sums.left:
            sums.put(f" + {theme.glyphs.ellipsis}"[: sums.left], dim)
            break
        sums.put(words, text)
    tail = f" = {seconds(total)}"
    if len(tail) <= sums.left:
        sums.put(" = ", dim).put(seconds(total), strong)
    line = RowBuilder(width, dim).put(" ")
    line.put(choose(story_sentence(scene, story), line.left, theme.glyphs.ellipsis))
    return [bar.done(), sums.done(), line.done()]


def event_words(scene: Scene, story: Story, event: Event) -> tuple[str, ...]:
    """One event of a request in words."""
    a, b, c = event.a, event.b, event.c
    plain = {
        "arrived": (f"arrived with {count(a, 'prompt token')}", "arrived"),
        "first_token": ("first token",),
        "admit": (f"admitted: {count(b, 'new block')}, {a} tokens from the prefix cache, chunk of {c}", "admitted"),
        "restore": (f"back from CPU: {count(a, 'block')} copied", "back from CPU"),
        "cancelled": (f"cancelled after {count(a, 'token')}, {count(b, 'block')} freed", "cancelled"),
        "failed": (f"failed after {count(a, 'token')}", "failed"),
        "finished": (f"finished with {count(a, 'token')}, {count(b, 'block')} given back, {c} stay cached", "finished"),
    }
    if event.kind in plain:
        return plain[event.kind]
    if event.kind == "offload":
        return (f"to CPU: {count(c, 'block')} saved, {b} freed to make room for {scene.label(a)}", "to CPU")
    if event.kind == "recompute":
        return (f"preempted for {scene.label(a)}: {count(b, 'block')} dropped, computed again later", "preempted")
    return (event.kind.replace("_", " "),)


def _left(scene: Scene, story: Story, width: int) -> list[Row]:
    """Why, block tables, events."""
    return [*_why(scene, story, width), *_tables(scene, story, width), *_events(scene, story, width)]


def _why(scene: Scene, story: Story, width: int) -> list[Row]:
    theme = scene.theme
    words = choose(sentences.why(scene, story), width - 1, theme.glyphs.ellipsis)
    return [heading(theme, width, "WHY"), RowBuilder(width, theme.style("text")).put(" ").put(words).done()]


def _tables(scene: Scene, story: Story, width: int) -> list[Row]:
    theme, live = scene.theme, scene.live(story.key)
    if live is None or not (any(live.tables) or live.host):
        return []
    rows = [heading(theme, width, "BLOCK TABLES")]
    for group in range(len(live.tables)):
        window = scene.picture.windows[group]
        row = RowBuilder(width, theme.style("muted")).put(" full   " if window is None else " window ")
        cells = table_cells(scene, live, group)
        for glyph, style in cells[-max(1, row.left - 6) :]:
            row.put(glyph, style)
        rows.append(row.put(f" {live.held(group)}"[: row.left], theme.style("text")).done())
    return rows


def _events(scene: Scene, story: Story, width: int) -> list[Row]:
    theme = scene.theme
    dim, text = theme.style("muted"), theme.style("text")
    events = [event for event in story.events if event.step <= scene.step]
    if not events:
        return []
    rows = [heading(theme, width, "EVENTS", [Part((("newest first", dim),))])]
    for event in reversed(events):
        row = RowBuilder(width, dim).right(str(event.step), 7, dim).put("  ")
        rows.append(row.put(choose(event_words(scene, story, event), row.left, theme.glyphs.ellipsis), text).done())
    return rows


def _tokens(scene: Scene, story: Story, width: int, height: int) -> list[Row]:
    """Output tokens, newest last: number, step, probability, text."""
    theme, glyphs = scene.theme, scene.theme.glyphs
    dim, text, strong = theme.style("muted"), theme.style("text"), theme.style("bright", bold=True)
    known = story.output_at(scene.step)
    facts = [Part(((f"{known} so far", text),), 2), Part((("probability before temperature", dim),), 1)]
    rows = [heading(theme, width, "TOKENS", facts)]
    prompt = RowBuilder(width, dim).put(" prompt  "[:width])
    words = one_line(story.prompt[: 4 * width], glyphs.newline)
    rows.append(prompt.put(clip(words, prompt.left, glyphs.ellipsis), theme.style("muted", italic=True)).done())
    room = max(0, height - len(rows))
    scroll = scene.chrome.scroll.get("detail", 0)
    end = max(min(known, room), known - scroll)
    for index in range(max(0, end - room), end):
        logprob = story.logprobs[index]
        share = exp(logprob) if logprob is not None else None
        row = RowBuilder(width, text).right(str(index + 1), 6, dim).right(f"step {story.token_steps[index]}", 11, dim)
        row.right(f"{share * 100:.0f}%" if share is not None else "--", 6, strong if index == known - 1 else text)
        bar = "" if share is None else glyphs.levels[min(7, int(share * 8))]
        row.put(f" {bar or ' '} ", theme.style("steel"))
        piece = one_line(story.pieces[index], glyphs.newline) or f"({story.tokens[index]})"
        rows.append(
            row.put(clip(piece, max(0, row.left), glyphs.ellipsis), theme.style("text", f"token{index % 2}")).done()
        )
    return rows

"""The columns of figures in the table of requests: their names, their widths, and what stands in them.

No figure is cut: where one has more digits than its column has cells, a shorter wording of it stands there. In front of
every figure at least one cell is blank, also beside the longest word of a state.
"""

from cbtui.sentences import brief, seconds
from cbtui.stories import Story
from cbtui.view.cells import Row, RowBuilder, choose
from cbtui.view.scene import Scene

STATE = 6
"""Column where the state begins."""
FULL_WIDTH, MIDDLE_WIDTH = 96, 60
"""A table of so many cells shows all columns, or all but shares and times; narrower ones show the output alone."""
PROMPT_END, DONE_END = 25, 22
"""Columns before which the first figure ends, in a table with and without the prompts."""
DONE, BLOCKS = ("done", 10), ("blocks", 8)
SHARES_AND_TIMES = (("hit%", 5), ("ttft", 6), ("itl", 5))
"""Names of the further columns and their cells, the blank in front included."""


def _beside(width: int) -> tuple[tuple[str, int], ...]:
    """Names and cells of the columns after the first."""
    if width < MIDDLE_WIDTH:
        return ()
    return (DONE, BLOCKS, *SHARES_AND_TIMES) if width >= FULL_WIDTH else (DONE, BLOCKS)


def column_names(scene: Scene, width: int) -> Row:
    """The row of names over the table."""
    row = RowBuilder(width, scene.theme.style("muted"))
    first, end = ("prompt", PROMPT_END) if width >= MIDDLE_WIDTH else ("done", DONE_END)
    text = "  id".ljust(STATE) + "state".ljust(end - STATE - len(first)) + first
    text += "".join(name.rjust(cells) for name, cells in _beside(width)) + "  why"
    return row.put(text[:width]).done()


def why_column(width: int) -> int:
    """Column where the reason starts."""
    return (PROMPT_END if width >= MIDDLE_WIDTH else DONE_END) + sum(cells for _, cells in _beside(width)) + 2


def figures(scene: Scene, story: Story, width: int, used: int) -> str:
    """The figures of one request, from column ``used``, where the word of its state ends, to the reason's blanks."""
    if width < MIDDLE_WIDTH:
        return _right(_both(story.output_at(scene.step), None), DONE_END - used)
    wordings = [_done(scene, story), _blocks(scene, story)]
    if width >= FULL_WIDTH:
        wordings += [(words,) for words in _shares_and_times(scene, story)]
    prompt = _right(_prompt(scene, story), PROMPT_END - used)
    return prompt + "".join(_right(words, cells) for words, (_, cells) in zip(wordings, _beside(width), strict=True))


def _right(wordings: tuple[str, ...], cells: int) -> str:
    return choose(wordings, cells - 1).rjust(cells)


def in_short(number: int) -> str:
    """A count in at most four characters, rounded down: ``950``, ``1.5k``, ``16k``, ``2M``."""
    if number < 1000:
        return str(number)
    unit, size = ("k", 1000) if number < 1_000_000 else ("M", 1_000_000)
    whole, tenth = number // size, number % size * 10 // size
    return f"{whole}.{tenth}{unit}" if whole < 10 and tenth else f"{whole}{unit}"


def _both(part: int, whole: int | None) -> tuple[str, ...]:
    if whole is None:
        return str(part), in_short(part)
    return f"{part}/{whole}", f"{part}/{in_short(whole)}", f"{in_short(part)}/{in_short(whole)}"


def _prompt(scene: Scene, story: Story) -> tuple[str, ...]:
    total = story.prompt_tokens
    if total is None:
        return ("--",)
    live = scene.live(story.key)
    if live is not None and 0 < live.change.computed < total and not live.output:
        return *_both(live.change.computed, total), *_both(total, None)
    return _both(total, None)


def _done(scene: Scene, story: Story) -> tuple[str, ...]:
    return ("--",) if story.is_refused else _both(story.output_at(scene.step), story.limit)


def _blocks(scene: Scene, story: Story) -> tuple[str, ...]:
    live = scene.live(story.key)
    if live is None or live.change.place == "done":
        return ("--",)
    held = [live.held(group) for group in range(len(live.tables))]
    total = sum(held)
    if not scene.hybrid or not total:
        return _both(total, None)
    full = sum(n for group, n in enumerate(held) if not scene.picture.is_window(group))
    return f"{full}+{total - full}", f"{in_short(full)}+{in_short(total - full)}", *_both(total, None)


def _shares_and_times(scene: Scene, story: Story) -> tuple[str, str, str]:
    live = scene.live(story.key)
    change = live.change if live is not None else story.change
    hit = "--"
    if change is not None and story.prompt_tokens and 0 <= story.started <= scene.step:
        hit = f"{100 * change.cached_tokens / story.prompt_tokens:.0f}%"
    return hit, seconds(story.ttft(scene.step)), brief(story.itl(scene.step))

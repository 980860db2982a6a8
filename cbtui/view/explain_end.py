"""The page of the explain dialog about a request that is over: how it ended or why it was refused, and its figures."""

from itertools import chain

from cbtui import sentences
from cbtui.sentences import count, seconds
from cbtui.stories import Story
from cbtui.view.cells import Row, RowBuilder, blank, heading, wrap
from cbtui.view.explain import on_ground
from cbtui.view.scene import Scene

_KINDS = ("queued", "prefill", "decode", "stalled", "preempted", "offloaded", "paused")
"""Ways of spending time, see ``Story.seconds``."""


def end_rows(scene: Scene, story: Story, width: int, bg: str = "panel") -> list[Row]:
    """Rows for a dialog with the given ground, as many as there is to say. ``story`` has ended or was refused."""
    theme = scene.theme
    head = RowBuilder(width, theme.style("text", bg))
    head.put(f" {story.label} "[:width], theme.tile(story.hue, "head"))
    title = f"  Why was {story.label} refused?" if story.is_refused else f"  How did {story.label} end?"
    head.put(title[: head.left], theme.style("bright", bg, bold=True))
    rows = [head.done(), blank(theme, width, bg), *_lines(scene, [_ending(scene, story)], "amber", width, bg)]
    asked = _asked(story)
    if story.is_refused:
        came = f"It came at step {story.arrived} and never entered the queue. {asked}".strip()
        return rows + _lines(scene, [came], "text", width, bg)
    if asked:
        rows += _lines(scene, [asked], "text", width, bg)
    for name, lines in (("STEPS", _steps(scene, story)), ("BLOCKS", _blocks(story)), ("TIME", _time(story))):
        if lines:
            rows += [blank(theme, width, bg), on_ground(heading(theme, width, name), width, bg, scene)]
            rows += _lines(scene, lines, "text", width, bg)
    return rows


def _lines(scene: Scene, lines: list[str], role: str, width: int, bg: str) -> list[Row]:
    style = scene.theme.style(role, bg)
    parts = chain.from_iterable(wrap(line, max(10, width - 1)) for line in lines)
    return [RowBuilder(width, style).put(" ").put(part, style).done() for part in parts]


def _ending(scene: Scene, story: Story) -> str:
    """The whole reason: what the engine said, else what is known of it in numbers."""
    if story.is_refused:
        return sentences.refusal(story.refusal)[0]
    error = story.error or (story.change.error if story.change is not None else None)
    words = sentences.why(scene, story)[0]
    return words if not error or error in words else f"{words}: {error}"


def _asked(story: Story) -> str:
    if story.info is None:
        return ""
    prompt, made = count(len(story.info.prompt_ids), "prompt token"), len(story.tokens)
    return f"{prompt}, {made} of at most {count(story.info.max_new_tokens, 'new token')} made."


def _steps(scene: Scene, story: Story) -> list[str]:
    """When it came, began and ended, and how often it was held up on the way."""
    began = f", first computed in step {story.started}" if story.started >= 0 else ", never computed"
    lines = [f"came at step {story.arrived}{began}, ended at step {story.ended}"]
    moved = [
        f"{count(number, name)}"
        for name, kind in (("preemption", "preempted"), ("stay on the CPU", "offloaded"))
        if (number := sum(phase.kind == kind for phase in story.phases))
    ]
    return lines + ([f"on the way: {', '.join(moved)}"] if moved else [])


def _blocks(story: Story) -> list[str]:
    if not story.peak_blocks:
        return []
    return [f"at most {count(story.peak_blocks, 'block')} at once, {story.freed} given back at the end"]


def _time(story: Story) -> list[str]:
    spent = [(kind, story.seconds(kind, story.ended_time)) for kind in _KINDS]
    parts = [f"{kind} {seconds(value)}" for kind, value in spent if value > 0]
    lines = [" + ".join(parts)] if parts else []
    if story.ttft() is not None:
        between = f", then {seconds(story.itl())} from token to token" if story.itl() is not None else ""
        lines.append(f"first token after {seconds(story.ttft())}{between}")
    return lines

"""``cbtui --once``: prompts run without a terminal, and one frame of the monitor as text."""

import sys
from typing import TYPE_CHECKING

from cbtui.headless import FAILED, OK, prompt_ids
from cbtui.options import Choices
from cbtui.sentences import count
from cbtui.show import LoadLine, StatusLine, tell_cut, tell_loaded
from cbtui.start import ask_fetch, load_model, requests_of
from cbtui.text import unnamed
from engine.core.errors import EngineError

if TYPE_CHECKING:
    from cbtui.offscreen import Offscreen


def once(choices: Choices, size: tuple[int, int], theme: str, ascii: bool, mode: int, steps: int | None) -> int:
    """Runs the prompts on an engine without threads and prints one frame of the monitor as text.

    Args:
        size: columns and rows of the frame. theme, ascii, mode: as the monitor's.
        steps: stop after so many steps; None runs until all requests have ended.

    Returns:
        0, or 1 when a request was refused.

    Raises:
        EngineError: the engine died; the frame that shows it was printed.
    """
    from cbtui.offscreen import Offscreen
    from cbtui.theme import theme_named
    from cbtui.view.frame import screen_text

    specs = requests_of(choices)
    with LoadLine() as line:
        loaded = load_model(choices, line, ask_fetch)
    monitor = Offscreen(loaded, choices.config)
    tell_loaded(loaded, monitor.notices)
    prompts = [prompt_ids(loaded.tokenizer, spec) for spec in specs]
    tell_cut(specs, prompts, monitor.engine.config.max_length.value)
    for spec in specs:
        monitor.add(spec)
    with StatusLine() as line:
        monitor.run(steps, lambda: line.show(_progress(monitor)))
    print(screen_text(monitor.rows(size, theme_named(theme, ascii_only=ascii), mode=mode)), end="")
    for prompt, reason in monitor.refused:
        print(f"cbtui: refused: {prompt[:60]}: {unnamed(reason)}", file=sys.stderr)
    if monitor.error is not None:
        raise EngineError(monitor.error)
    return FAILED if monitor.refused else OK


def _progress(monitor: "Offscreen") -> str:
    stories = monitor.state.stories.values()
    ended = sum(story.ended >= 0 for story in stories)
    return f"step {monitor.state.step}  {ended} of {count(len(stories), 'request')} ended"

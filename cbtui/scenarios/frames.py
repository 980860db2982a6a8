"""A scenario without a terminal: the frame of each caption as text."""

import sys
from dataclasses import replace

from cbtui.offscreen import Offscreen
from cbtui.options import Choices
from cbtui.scenarios.plot import Scenario
from cbtui.scenarios.telling import missing_words
from cbtui.show import LoadLine
from cbtui.start import ask_fetch, load_model
from cbtui.theme import Theme
from cbtui.view.frame import screen_text
from engine.core.errors import EngineError


def print_frames(choices: Choices, scenario: Scenario, size: tuple[int, int], look: Theme, mode: int | None) -> int:
    """Plays a scenario on an engine without threads and prints the monitor's frame at each caption.

    Args:
        choices: the model and fields of the engine the scenario leaves open.
        size: columns and rows. mode: the mode shown, None for the scenario's.

    Returns:
        0, or 1 when a caption did not come.

    Raises:
        ScenarioError: the model does not fit. LoadError, ConfigError, EngineError: as they come.
    """
    if not choices.own_model:
        choices = replace(choices, model=scenario.model)
    with LoadLine() as line:
        loaded = load_model(choices, line, ask_fetch)
    monitor = Offscreen(loaded, {**choices.config, **scenario.config, "host_blocks": scenario.host_blocks})
    views = {"map_view": scenario.map_view} if scenario.map_view else {}
    told = 0
    for moment in monitor.play(scenario):
        caption = monitor.caption(scenario, moment)
        rows = monitor.rows(size, look, mode=mode or scenario.mode, caption=caption, **views)
        print(screen_text(rows))
        told += 1
    if monitor.error is not None:
        raise EngineError(monitor.error)
    missing = len(scenario.captions) - told
    if missing:
        print(f"cbtui: {missing_words(scenario, missing, monitor.state)}", file=sys.stderr)
    return 1 if missing else 0

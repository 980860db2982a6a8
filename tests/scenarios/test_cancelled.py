"""A scenario in which somebody cancels a request: its captions tell nothing that did not happen."""

import re

import pytest

from cbtui.offscreen import Offscreen
from cbtui.scenarios import find_scenario
from cbtui.scenarios.telling import missing_words
from tests.scenarios.run import loaded_for, run_of


def told_without(name: str, lost: str, after: int) -> tuple[dict[int, str], str]:
    """Captions by number, with a request cancelled after some steps; and what is said of those that did not come."""
    scenario = find_scenario(name)
    monitor, told = Offscreen(loaded_for(scenario.model), {**scenario.config, "host_blocks": scenario.host_blocks}), {}
    try:
        playing = monitor.play(scenario)
        moment, asked = next(playing, None), False
        while moment is not None:
            told[moment.caption + 1] = monitor.caption(scenario, moment).texts[0]
            if not asked and monitor.state.step >= after:
                monitor.engine.cancel(lost)
                asked = True
            moment = next(playing, None)
        return told, missing_words(scenario, len(scenario.captions) - len(told), monitor.state)
    finally:
        monitor.close()


@pytest.mark.parametrize(
    ("name", "lost", "after", "last"),
    [
        ("offload", "C", 5, 5), ("recompute", "C", 5, 5), ("first-tokens", "A", 6, 5), ("safety-margin", "C", 5, 4),
        ("static-and-continuous", "B", 1, 3),
    ],
)  # fmt: skip
def test_who_was_cancelled_is_not_done(name: str, lost: str, after: int, last: int) -> None:
    told, missing = told_without(name, lost, after)
    text = told[last]
    assert re.fullmatch(rf"{lost} was cancelled at step \d+, so what this scenario shows here did not happen", text)
    later = [text for text in told.values() if re.search(rf"\b{lost} (is done|has|needs|waits there)\b", text)]
    assert all("cancelled" in text for text in later), later
    if len(told) < len(find_scenario(name).captions):
        assert missing.endswith("captions did not come: " + text.partition(", so")[0])


def test_a_cancellation_that_belongs_to_the_scenario_is_told_as_it_is_written() -> None:
    for name in ("cancel-storm", "rush-hour"):
        assert not [texts for _, texts in run_of(name).told if "did not happen" in texts[0]]

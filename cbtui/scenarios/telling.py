"""Captions as lines for the screen, and whether a model can show a scenario at all."""

from collections.abc import Mapping
from typing import Any

from cbtui.model import MonitorState
from cbtui.scenarios.figures import Moment, Sight
from cbtui.scenarios.plot import Scenario, ScenarioError
from cbtui.scenarios.wording import word
from cbtui.view.chrome import CaptionLine


def check_model(scenario: Scenario, loaded: Any) -> None:
    """Raises ``ScenarioError`` when the loaded model lacks what the scenario shows."""
    facts = getattr(loaded, "facts", None)
    if scenario.needs == "window" and facts is not None and not any(facts.windows):
        raise ScenarioError(
            f"{scenario.title}: {loaded.name} has no sliding-window layers; leave --model out, or give one that has"
        )


def line_of(
    scenario: Scenario, moment: Moment, state: MonitorState, keys: Mapping[str, tuple[str, ...]],
    hints: tuple[str, ...] = (),
) -> CaptionLine:  # fmt: skip
    """A caption in its wordings, figures filled in from the records."""
    caption, members, sight = scenario.captions[moment.caption], scenario.members, Sight.at(state, moment)
    texts = tuple(word(text, sight, members, keys) for text in dict.fromkeys((caption.text, caption.short)))
    return CaptionLine(moment.caption + 1, len(scenario.captions), texts, hints)


def missing_words(scenario: Scenario, missing: int, state: MonitorState) -> str:
    """That captions did not come, and what the engine said first of a request it refused or that failed."""
    words = f"{missing} of {len(scenario.captions)} captions did not come"
    for story in sorted(state.stories.values(), key=lambda story: story.number):
        reason = story.refusal or story.error
        if reason:
            name = story.request_id or story.label
            reason = reason.removeprefix(f"request {name!r}: ")
            return f"{words}; request {name} was {'refused' if story.started < 0 else 'lost'}: {reason}"
    return f"{words} with this model"

"""Captions as lines for the screen, and whether a model can show a scenario at all."""

from collections.abc import Mapping, Sequence
from typing import Any

from cbtui.model import MonitorState
from cbtui.scenarios.figures import Moment, Sight
from cbtui.scenarios.plot import Caption, Scenario, ScenarioError
from cbtui.scenarios.wording import fields_of, word
from cbtui.stories import Story
from cbtui.view.chrome import CaptionLine
from engine.core.request import FinishReason

_LOST = {
    FinishReason.CANCELLED: "was cancelled",
    FinishReason.FAILED: "failed",
    FinishReason.STOPPED: "was stopped",
}


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
    """A caption in its wordings, figures filled in from the records.

    A caption is written for requests that go their way. One that speaks of a request which somebody cancelled, or which
    failed, would tell what did not happen: it says that instead.
    """
    caption, members, sight = scenario.captions[moment.caption], scenario.members, Sight.at(state, moment)
    lost = _lost(scenario, caption, sight)
    texts = tuple(word(text, sight, members, keys) for text in dict.fromkeys((caption.text, caption.short)))
    return CaptionLine(moment.caption + 1, len(scenario.captions), _lost_words(lost) if lost else texts, hints)


def _lost(scenario: Scenario, caption: Caption, sight: Sight) -> list[Story]:
    """Requests that a caption speaks of and that had ended by its step in a way the scenario does not know of."""
    when, members = caption.when, scenario.members
    names = {name.partition(".")[0] for text in (caption.text, caption.short) for name, _ in fields_of(text)}
    names |= {when.of} if when.event == "ends" else set()
    ids = {request_id for name in names for request_id in members.get(name, ())}
    keys = {key for name, key in (("who", sight.moment.seq), ("other", sight.moment.a)) if name in names}
    return [
        story
        for story in sight.state.stories.values()
        if (story.request_id in ids or story.key in keys)
        and 0 <= story.ended <= sight.moment.step
        and _is_lost(scenario, story)
    ]


def _is_lost(scenario: Scenario, story: Story) -> bool:
    """Whether a request was cancelled or failed although no command and no moment of the scenario expects that."""
    reason = story.finish_reason
    if reason is FinishReason.FAILED and story.started < 0:
        return False  # it was refused: there are scenarios about that
    return reason in _LOST and story.request_id not in _cancelled_by(scenario)


def _cancelled_by(scenario: Scenario) -> set[str]:
    """Requests whose cancellation belongs to the scenario: it cancels them, or waits for somebody to do so."""
    whens = [part.when for part in scenario.parts] + [command.when for command in scenario.commands]
    whens += [caption.when for caption in scenario.captions]
    names = {command.target for command in scenario.commands if command.kind == "cancel"}
    names |= {when.of for when in whens if when.event == "cancelled"}
    members = scenario.members
    return {request_id for name in (members if "" in names else names) for request_id in members[name]}


def _lost_words(lost: Sequence[Story]) -> tuple[str, ...]:
    """What became of requests, in words from long to short."""
    short = ", ".join(f"{s.label} {_LOST[s.finish_reason]} at step {s.ended}" for s in lost if s.finish_reason)
    return (f"{short}, so what this scenario shows here did not happen", short)


def missing_words(scenario: Scenario, missing: int, state: MonitorState) -> str:
    """That captions did not come, and what the engine said first of a request it refused or that failed."""
    words = f"{missing} of {len(scenario.captions)} captions did not come"
    for story in sorted(state.stories.values(), key=lambda story: story.number):
        reason = story.refusal or story.error
        if reason:
            name = story.request_id or story.label
            reason = reason.removeprefix(f"request {name!r}: ")
            return f"{words}; request {name} was {'refused' if story.started < 0 else 'lost'}: {reason}"
    lost = [story for story in state.stories.values() if _is_lost(scenario, story)]
    if lost:
        return f"{words}: {_lost_words(lost)[-1]}"
    return f"{words} with this model"

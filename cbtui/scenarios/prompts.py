"""Prompts of an exact number of tokens, whatever the tokenizer: a filling text, cut to measure, before the question."""

from dataclasses import dataclass, replace
from typing import Any

from cbtui.launch import RequestSpec
from cbtui.prompts import encode
from cbtui.scenarios.plot import Part, Scenario, ScenarioError

_FILLING = (
    "{first} goes for a walk one day and looks at the trees, the sky and the water. The sun is warm and the wind is "
    "soft. Then {topic} meets a friend, and they talk about the weather, share some food and sing a song. When it gets "
    "dark they go home, sit by the fire and tell each other what they saw. The next day {topic} goes out again. "
)


@dataclass(frozen=True, slots=True)
class Frame:
    """What a tokenizer's chat template puts before and behind the text of a user."""

    before: tuple[int, ...]
    behind: tuple[int, ...]


def frame_of(tokenizer: Any, chat: bool) -> Frame:
    """The parts of an encoded prompt that two different texts have in common."""
    first, second = (encode(tokenizer, text, chat) for text in ("One", "two things"))
    before = 0
    while before < min(len(first), len(second)) and first[before] == second[before]:
        before += 1
    behind = 0
    while behind < min(len(first), len(second)) - before and first[-1 - behind] == second[-1 - behind]:
        behind += 1
    return Frame(tuple(first[:before]), tuple(first[len(first) - behind :]))


def prompt_of(part: Part, tokenizer: Any) -> tuple[int, ...]:
    """The token ids of a request's prompt: exactly ``part.tokens`` where that is given.

    Raises:
        ScenarioError: the template and the text alone are longer than that.
    """
    spec = part.spec
    if not part.tokens:
        return tuple(encode(tokenizer, spec.text, spec.chat))
    frame = frame_of(tokenizer, spec.chat)
    ask = _plain(tokenizer, f". {spec.text}") if spec.text else []
    room = part.tokens - len(frame.before) - len(frame.behind) - len(ask)
    if room < 0:
        raise ScenarioError(
            f"request {part.name}: tokens = {part.tokens} is too short, its text and the model's template alone take "
            f"{part.tokens - room}; give at least that many"
        )
    filling = _plain(tokenizer, _FILLING.format(topic=part.topic, first=part.topic[:1].upper() + part.topic[1:]))
    body = [filling[i % len(filling)] for i in range(room)]
    return (*frame.before, *body, *ask, *frame.behind)


def _plain(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def prepare(scenario: Scenario, tokenizer: Any) -> dict[str, RequestSpec]:
    """The requests of a scenario by name, their prompts as token ids.

    Raises:
        ScenarioError: a prompt cannot be as short as it should be; names the file.
    """
    try:
        return {part.name: replace(part.spec, prompt_ids=prompt_of(part, tokenizer)) for part in scenario.parts}
    except ScenarioError as error:
        raise ScenarioError(f"{scenario.path}: {error}") from error

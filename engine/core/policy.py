"""Pure choices of the scheduler: who goes first, what the margin keeps, who may overtake, who has to go."""

import math
from collections.abc import Iterator, Mapping

from engine.core.layout import SchedulerSettings
from engine.core.request import SamplingParams, Sequence

POLICIES = ("fifo", "prefill_first")


def prefill_leads(settings: SchedulerSettings, held: Mapping[int, int]) -> bool:
    """Whether running prefills are visited before decodes in this step.

    Args:
        settings: the current settings.
        held: sequence key -> consecutive steps in which its decode was held back for a prefill.

    Returns:
        Always False for ``fifo``. For ``prefill_first`` True, until some decode was held back for
        ``max_steps_without_decode`` steps; then decodes lead for one step.
    """
    if settings.policy != "prefill_first":
        return False
    return not held or max(held.values()) < settings.max_steps_without_decode


def margin_blocks(settings: SchedulerSettings, num_blocks: int) -> int:
    """Blocks that a new prefill must leave usable: the margin's share of the pool, rounded up."""
    return math.ceil(settings.safety_margin * num_blocks - 1e-9)


def newer_than(seq: Sequence, running: dict[int, Sequence]) -> Iterator[Sequence]:
    """Running sequences admitted after ``seq``, the newest first: the order in which victims are looked for.

    Nobody makes room by pushing out somebody older. So the oldest running sequence always gets what it needs, ends some
    day, and hands its place on: nobody can push each other out in turns.
    """
    for key in reversed(running):
        other = running[key]
        if other is seq:
            return
        yield other


def needs_known_tokens(sampling: SamplingParams) -> bool:
    """Whether the choice of a token depends on the one before it beyond the model itself.

    Such a sequence cannot be planned while its last token is still in flight.
    """
    return (
        sampling.repetition_penalty != 1.0
        or sampling.presence_penalty != 0.0
        or sampling.frequency_penalty != 0.0
        or sampling.no_repeat_ngram > 0
        or any(len(word) > 1 for word in sampling.bad_words)
    )

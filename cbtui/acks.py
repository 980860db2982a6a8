"""What became of a command, as a sentence."""

from collections.abc import Callable, Sequence

from cbtui.text import unnamed
from engine.core.observe import CommandAck

UNTIL = {
    "preemption": "a preemption",
    "offload": "an offload",
    "first_token": "a first token",
    "end": "a request ends",
    "free_below": "few blocks are free",
    "invariant": "an invariant is broken",
    "step": "a step is reached",
}
"""What a run waits for, by the kind of its condition."""
DONE = {
    "stop": "stopping from step {step}: what was accepted is finished first",
    "hard_stop": "everything was stopped at step {step}",
    "clear_prefix_cache": "the prefix cache was cleared at step {step}",
}
_WRITTEN = {"True": "on", "False": "off", "None": "auto"}
"""Values as a person writes them."""


def told(
    ack: CommandAck, step: int, named: Callable[[str], str], name_of: Callable[[str], str] = lambda target: target
) -> str:
    """What a command did at the start of a step, or why it was refused.

    Args:
        named: puts letters in place of the keys of sequences. name_of: the letter of a request id.
    """
    if not ack.accepted:
        what = f"{ack.kind.replace('_', ' ')} {name_of(ack.target)}".strip()
        reason = unnamed(ack.detail)
        return f"{what} refused: {reason}"
    detail = named(ack.detail)
    if ack.kind == "config":
        return settings_told([ack], step)
    if ack.kind == "pause":
        return f"paused: {detail}" if detail else f"paused at step {step}"
    return _done(ack, step, name_of) + (f", {detail}" if detail else "")


def settings_told(acks: Sequence[CommandAck], step: int) -> str:
    """Settings that were taken at the start of one step, with their values; of one set twice the last."""
    values = {ack.target: _WRITTEN.get(ack.detail, ack.detail) for ack in acks}
    return f"from step {step}: " + ", ".join(f"{name} is {value}" for name, value in values.items())


def _done(ack: CommandAck, step: int, name_of: Callable[[str], str]) -> str:
    kind, target = ack.kind, ack.target
    if kind == "add":
        return f"{name_of(target)} queued at step {step}"
    if kind == "resume":
        return f"running from step {step}" + (f" until {UNTIL.get(target, target)}" if target else "")
    if kind == "step":
        return f"step {step}, then a pause" if target == "1" else f"{target} steps from step {step}, then a pause"
    if kind == "rate":
        return f"{pace_words(None if target == 'None' else float(target))} from step {step}"
    if kind == "cancel":
        return f"{name_of(target)} was cancelled at step {step}"
    return DONE.get(kind, f"{kind.replace('_', ' ')}: done at step {{step}}").format(step=step)


def pace_words(rate: float | None) -> str:
    """A rate in steps per second, None for no limit."""
    return "full speed" if rate is None else f"at most {rate:g} step{'' if rate == 1 else 's'} per second"

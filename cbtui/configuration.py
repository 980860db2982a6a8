"""The configuration as the editor shows it: fields as text, what an edit would mean, and whether it is allowed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cbtui.view.chrome import ConfigField
from engine.core.config import CHANGEABLE, ResolvedConfig, change
from engine.core.errors import ConfigError
from engine.core.options import RULES, check_field

EDITABLE = (
    "scheduler_type",
    "max_batch_tokens",
    "max_requests_per_batch",
    "safety_margin",
    "allow_block_sharing",
    "skip_limit",
    "max_steps_without_decode",
    "page_size",
    "num_blocks",
    "cpu_offload_space",
)
"""Fields of the editor, those that change between two steps first."""

AUTO = "auto"
"""How the editor writes None."""
WHILE_RUNNING, RESTART = "next step", "restart"
GROWS = ("max_batch_tokens", "max_requests_per_batch")
"""Changed between two steps within what the buffers hold, by a restart beyond it."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """What a person decided: fields for the next step, fields for a new engine, and what becomes of the requests.

    ``requests`` is "again" (unfinished ones are added to the new engine), "finish" (the old engine finishes first) or
    "fail"; it matters only with ``restart``.
    """

    now: Mapping[str, Any] = field(default_factory=dict)
    restart: Mapping[str, Any] = field(default_factory=dict)
    requests: str = "again"


def config_fields(config: ResolvedConfig | None) -> tuple[ConfigField, ...]:
    """All decided fields with the reason of each, the editable ones first."""
    if config is None:
        return ()
    decided = dict(config.items())
    order = [*EDITABLE, *(name for name in decided if name not in EDITABLE)]
    return tuple(
        ConfigField(name, write(decided[name].value), effect=_effect(name), note=decided[name].reason) for name in order
    )


def _effect(name: str) -> str:
    return WHILE_RUNNING if name in CHANGEABLE else RESTART if name in RULES else "fixed"


def write(value: Any) -> str:
    """A value as the editor shows it."""
    if value is None:
        return AUTO
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(map(write, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def read(name: str, text: str, now: Any) -> Any:
    """The value a person wrote, of the kind the field has.

    Raises:
        ConfigError: it cannot be read, or is out of the field's range.
    """
    text = text.strip()
    if text.lower() in ("auto", "none"):
        value: Any = None
    elif isinstance(now, bool):
        if text.lower() not in ("on", "off"):
            raise ConfigError(f"{name} cannot be {text!r}: {limits_of(name)}")
        value = text.lower() == "on"
    elif isinstance(now, str):
        value = text
    else:
        value = _number(name, text, whole=isinstance(now, int))
    try:
        check_field(name, value)
    except ConfigError:
        raise ConfigError(f"{name} cannot be {text!r}: {limits_of(name)}") from None
    return value


def _number(name: str, text: str, *, whole: bool) -> int | float:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        raise ConfigError(f"{name} cannot be {text!r}: {limits_of(name)}") from None


def limits_of(name: str) -> str:
    """What a field may be and what to try, in words for people who write ``auto``, ``on`` and ``off``."""
    rule = RULES[name]
    if rule.ok(True) and not rule.ok(1):
        return f"it must be on or off{f', or {AUTO}' if rule.ok(None) else ''}"
    return f"it must be {rule.range}; {rule.advice}".replace("None", AUTO)


Plan = Callable[[Mapping[str, Any]], ResolvedConfig]
"""What a new engine with some fields changed would have; raises ConfigError when it would not fit."""


def judge(
    texts: Mapping[str, str], config: ResolvedConfig, built: ResolvedConfig, plan: Plan
) -> tuple[ConfigChange, tuple[ConfigField, ...]]:
    """What the texts of the editor ask for.

    Args:
        texts: field name -> what stands in its input.
        config: what runs now. built: what the buffers were made for.
        plan: asked about a restart.

    Returns:
        The change, without the fields in error, and every editable field with its effect and error.
    """
    now: dict[str, Any] = {}
    later: dict[str, Any] = {}
    fields = []
    for row in config_fields(config)[: len(EDITABLE)]:
        text = texts.get(row.name, row.now)
        row = replace(row, new=text.strip())
        if row.changed:
            row = _judge_one(row, config, built, now, later)
        fields.append(row)
    _judge_together(fields, config, now, later)
    if later and not any(row.error for row in fields):
        _judge_restart(fields, now, later, plan)
    return ConfigChange(now, later), tuple(fields)


def _judge_one(
    row: ConfigField, config: ResolvedConfig, built: ResolvedConfig, now: dict[str, Any], later: dict[str, Any]
) -> ConfigField:
    current = getattr(config, row.name).value
    try:
        value = read(row.name, row.new, current)
    except ConfigError as error:
        return replace(row, effect="refused", error=str(error))
    if row.name not in CHANGEABLE:
        later[row.name] = value
        return row
    try:
        change(config, built, **{row.name: value})
    except ConfigError as error:
        if row.name not in GROWS:
            return replace(row, effect="refused", error=str(error))
        later[row.name] = value
        return replace(row, effect=RESTART, note="more than the buffers hold")
    now[row.name] = value
    return row


def _judge_together(
    fields: list[ConfigField], config: ResolvedConfig, now: dict[str, Any], later: dict[str, Any]
) -> None:
    """Rows need at least one token each."""
    wanted = {**{name: getattr(config, name).value for name in GROWS}, **now, **later}
    rows, tokens = wanted["max_requests_per_batch"], wanted["max_batch_tokens"]
    if rows is None or tokens is None or rows <= tokens:
        return
    name = "max_requests_per_batch" if "max_requests_per_batch" in {**now, **later} else "max_batch_tokens"
    error = f"{rows} rows: every row needs at least one of the {tokens} batch tokens"
    _replace(fields, name, effect="refused", error=error)
    now.pop(name, None)
    later.pop(name, None)


def _judge_restart(fields: list[ConfigField], now: dict[str, Any], later: dict[str, Any], plan: Plan) -> None:
    """What does not fit is refused with the engine's sentence, what it would make something else of is noted."""
    try:
        planned = dict(plan({**now, **later}).items())
    except ConfigError as error:
        name = _too_much(now, later, plan)
        later.pop(name)
        _replace(fields, name, effect="refused", error=str(error))
        return
    for name, value in later.items():
        decided = planned[name]
        if decided.value != value and decided.reason != "user":
            shown = decided.reason if value is not None else f"{write(decided.value)}: {decided.reason}"
            _replace(fields, name, note=shown)


def _too_much(now: Mapping[str, Any], later: Mapping[str, Any], plan: Plan) -> str:
    """The field without which the others would fit, else the first."""
    for name in later:
        others = {**now, **{other: value for other, value in later.items() if other != name}}
        try:
            plan(others)
        except ConfigError:
            continue
        return name
    return next(iter(later))


def _replace(fields: list[ConfigField], name: str, **changed: Any) -> None:
    for index, row in enumerate(fields):
        if row.name == name:
            fields[index] = replace(row, **changed)

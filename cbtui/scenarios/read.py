"""From a TOML file to a ``Scenario``, every value checked."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cbtui.launch import RequestSpec
from cbtui.scenarios.plot import EVENTS, Caption, Command, Part, Scenario, ScenarioError, When
from cbtui.scenarios.wording import FigureError, check_text
from cbtui.view.chrome import MAP_VIEWS
from engine.core.config import CHANGEABLE
from engine.core.errors import ConfigError
from engine.core.options import DEPRECATED, RULES, check_field

SHORT = 74
"""Characters of a caption's short form, so that it fits a screen of 80 columns. A figure counts as three of them."""
TEXT = 150
"""The same of the long form."""
Check = Callable[[Any], str | None]
"""None for a value that is right, else what it must be."""


def _text(least: int, most: int) -> Check:
    words = f"a text of {least} to {most} characters"
    return lambda v: None if isinstance(v, str) and least <= len(v) <= most and "\n" not in v else words


def _whole(low: int, high: int) -> Check:
    words = f"a whole number from {low} to {high}"
    return lambda v: None if isinstance(v, int) and not isinstance(v, bool) and low <= v <= high else words


def _real(low: float, high: float) -> Check:
    words = f"a number from {low:g} to {high:g}"
    return lambda v: None if isinstance(v, int | float) and not isinstance(v, bool) and low <= v <= high else words


def _one_of(names: Iterable[str]) -> Check:
    allowed = tuple(names)
    return lambda v: None if v in allowed else f"one of {', '.join(allowed)}"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _table(value: Any) -> str | None:
    return None if isinstance(value, dict) else "a table"


def _tables(value: Any) -> str | None:
    return None if isinstance(value, list) and all(isinstance(v, dict) for v in value) else "a list of tables"


def _length(text: str) -> int:
    """Characters of a caption once its figures are filled in, about."""
    return len(re.sub(r"\{[^}:]*(?::([^}]*))?\}", lambda field: f"123 {field[1]}s" if field[1] else "123", text))


def _sentence(most: int) -> Check:
    words = f"a text of 5 to {most} characters, a figure counted as 3"
    return lambda v: None if isinstance(v, str) and 5 <= _length(v) <= most and "\n" not in v else words


_NAME = _text(1, 24)
_TOP: Mapping[str, Check] = {
    "title": _text(3, 48), "teaches": _text(10, 160), "model": _text(1, 80), "needs": _one_of(("window",)),
    "rate": _real(0.25, 1000), "mode": _whole(1, 6), "map_view": _one_of(MAP_VIEWS), "host_blocks": _whole(0, 10_000),
    "config": _table, "requests": _tables, "commands": _tables, "captions": _tables,
}  # fmt: skip
_MOMENT: Mapping[str, Check] = {
    "at": _whole(0, 100_000), "when": _one_of(EVENTS), "of": _NAME, "nth": _whole(1, 1000), "after": _whole(0, 10_000),
}  # fmt: skip
_SAMPLING: Mapping[str, Check] = {
    "max_new_tokens": _whole(1, 100_000), "temperature": _real(0, 100), "top_k": _whole(0, 1_000_000),
    "top_p": _real(0.001, 1), "seed": _whole(0, 2**63 - 1), "copies": _whole(1, 64), "chat": _flag,
    "ignore_eos": _flag,
}  # fmt: skip
_REQUEST: Mapping[str, Check] = {
    **_MOMENT, **_SAMPLING, "name": _NAME, "group": _NAME, "text": _text(0, 4000), "tokens": _whole(1, 100_000),
    "topic": _text(1, 80),
}  # fmt: skip
_COMMAND: Mapping[str, Check] = {**_MOMENT, "cancel": _NAME, "set": _table, "pause": _flag}
_CAPTION: Mapping[str, Check] = {**_MOMENT, "text": _sentence(TEXT), "short": _sentence(SHORT), "pause": _flag}


def read_scenario(path: Path) -> Scenario:
    """The scenario of a file.

    Raises:
        ScenarioError: the file cannot be read, or a value is not right.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path} is not TOML: {error}") from error
    try:
        return _scenario(path, given)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from error


def _scenario(path: Path, given: Mapping[str, Any]) -> Scenario:
    values = _checked("", given, _TOP, ("title", "teaches", "requests", "captions"))
    parts = tuple(_part(f"requests, number {n}", item) for n, item in enumerate(values["requests"], 1))
    if not 1 <= len(parts) <= 200:
        raise ScenarioError(f"requests holds {len(parts)} of them; give 1 to 200")
    config = values.get("config", {})
    _config("config", config)
    if "host_blocks" in values and "cpu_offload_space" in config:
        raise ScenarioError("host_blocks and config.cpu_offload_space say the same; keep host_blocks")
    scenario = Scenario(
        name=path.stem, path=path, title=values["title"], teaches=values["teaches"],
        model=values.get("model", "demo"), parts=parts,
        captions=tuple(_caption(f"captions, number {n}", item) for n, item in enumerate(values["captions"], 1)),
        commands=tuple(_command(f"commands, number {n}", item) for n, item in enumerate(values.get("commands", ()), 1)),
        needs=values.get("needs", ""), config=config, host_blocks=values.get("host_blocks", 0),
        rate=float(values.get("rate", 4.0)), mode=values.get("mode", 1), map_view=values.get("map_view", ""),
    )  # fmt: skip
    _check_whole(scenario)
    return scenario


def _checked(
    where: str, given: Mapping[str, Any], allowed: Mapping[str, Check], needed: Iterable[str] = ()
) -> Mapping[str, Any]:
    """The values, each known and in its range."""
    start = f"{where}: " if where else ""
    for name, value in given.items():
        if name not in allowed:
            raise ScenarioError(f"{start}{name} is not known; there are {', '.join(allowed)}")
        wrong = allowed[name](value)
        if wrong is not None:
            raise ScenarioError(f"{start}{name} = {value!r} must be {wrong}")
    for name in needed:
        if name not in given:
            raise ScenarioError(f"{start}{name} is missing; it must be {allowed[name](None)}")
    return given


def _when(where: str, given: Mapping[str, Any], otherwise: int | None) -> When:
    if ("at" in given) == ("when" in given):
        if "at" in given or otherwise is None:
            raise ScenarioError(f"{where}: give either at (a step) or when (an event)")
        return When(at=otherwise)
    if "at" in given:
        loose = [name for name in ("of", "nth", "after") if name in given]
        if loose:
            raise ScenarioError(f"{where}: {loose[0]} goes with when (an event), not with at")
        return When(at=given["at"])
    return When(-1, given["when"], given.get("of", ""), given.get("nth", 1), given.get("after", 0))


def _part(where: str, given: Mapping[str, Any]) -> Part:
    values = _checked(where, given, _REQUEST, ("name", "max_new_tokens"))
    if not values.get("text", "").strip() and "tokens" not in values:
        raise ScenarioError(f"{where}: the request has neither text nor tokens; give one of them, or both")
    if "topic" in values and "tokens" not in values:
        raise ScenarioError(f"{where}: topic fills a prompt up to tokens; give tokens too")
    sampling = {name: values[name] for name in _SAMPLING if name in values}
    spec = RequestSpec(
        text=values.get("text", ""), request_id=values["name"], streaming=False,
        **{"ignore_eos": True, **sampling},
    )  # fmt: skip
    return Part(
        values["name"], _when(where, values, 0), spec, values.get("group", ""), values.get("tokens", 0),
        values.get("topic", "a small cat"),
    )  # fmt: skip


def _command(where: str, given: Mapping[str, Any]) -> Command:
    values = _checked(where, given, _COMMAND)
    kinds = [name for name in ("cancel", "set", "pause") if name in values]
    if len(kinds) != 1:
        raise ScenarioError(f"{where}: give exactly one of cancel, set and pause")
    kind, when = kinds[0], _when(where, values, None)
    if kind == "set":
        _config(f"{where}: set", values["set"])
        fixed = [name for name in values["set"] if name not in CHANGEABLE]
        if fixed or not values["set"]:
            raise ScenarioError(f"{where}: set changes what can change while it runs: {', '.join(CHANGEABLE)}")
        return Command("set", when, fields=values["set"])
    return Command(kind, when, values["cancel"] if kind == "cancel" else "")


def _caption(where: str, given: Mapping[str, Any]) -> Caption:
    values = _checked(where, given, _CAPTION, ("text",))
    if "short" not in values and _length(values["text"]) > SHORT:
        raise ScenarioError(f"{where}: text has {_length(values['text'])} characters; add short, of at most {SHORT}")
    return Caption(
        _when(where, values, None), values["text"], values.get("short", values["text"]), values.get("pause", True)
    )


def _config(where: str, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if name not in RULES or name in DEPRECATED:
            raise ScenarioError(f"{where}: {name} is no field of the configuration; {_fields_like(name)}")
        try:
            check_field(name, value)
        except ConfigError as error:
            raise ScenarioError(f"{where}: {error}") from error


def _fields_like(name: str) -> str:
    """The fields a wrong name may mean, and all there are."""
    there = [field for field in RULES if field not in DEPRECATED]
    close = get_close_matches(name, there, n=2)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}there are {', '.join(there)}"


def _check_whole(scenario: Scenario) -> None:
    """What can only be said with everything at hand: names, references, figures."""
    if not 1 <= len(scenario.captions) <= 12:
        raise ScenarioError(f"captions holds {len(scenario.captions)} of them; give 1 to 12")
    names = [part.name for part in scenario.parts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ScenarioError(f"requests: the name {twice[0]!r} is given twice; every request needs its own")
    groups = {part.group for part in scenario.parts if part.group}
    if groups & set(names):
        raise ScenarioError(f"requests: {min(groups & set(names))!r} names a request and a group; rename one")
    members = scenario.members
    moments = [
        *((f"requests, {part.name}", part.when) for part in scenario.parts),
        *((f"commands, number {n}", command.when) for n, command in enumerate(scenario.commands, 1)),
        *((f"captions, number {n}", caption.when) for n, caption in enumerate(scenario.captions, 1)),
    ]
    for where, when in moments:
        if when.of and when.of not in members:
            raise ScenarioError(f"{where}: of = {when.of!r} is no request or group; there are {', '.join(members)}")
    for n, command in enumerate(scenario.commands, 1):
        if command.kind == "cancel" and command.target not in members:
            raise ScenarioError(f"commands, number {n}: cancel = {command.target!r} is no request or group")
    for n, caption in enumerate(scenario.captions, 1):
        for name, text in (("text", caption.text), ("short", caption.short)):
            try:
                check_text(text, members)
            except FigureError as error:
                raise ScenarioError(f"captions, number {n}: {name}: {error}") from error

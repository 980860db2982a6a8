"""From a TOML file to a ``Scenario``, every value checked."""

import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from cbtui.launch import RequestSpec
from cbtui.scenarios.mistakes import Mistakes, told
from cbtui.scenarios.plot import Caption, Command, Part, Scenario, ScenarioError, When, members_of
from cbtui.scenarios.tables import CAPTION, COMMAND, REQUEST, SAMPLING, SHORT, TOP, check_table, length_of
from cbtui.scenarios.wording import FigureError, check_text
from engine.core.config import CHANGEABLE
from engine.core.errors import ConfigError
from engine.core.options import DEPRECATED, RULES, check_field

T = TypeVar("T")
Tables = list[Mapping[str, Any]]
KINDS = ("requests", "commands", "captions")
MOST = {"requests": 200, "captions": 12}
"""Tables of a kind there may be; at least one of them must be there."""


def read_scenario(path: Path) -> Scenario:
    """The scenario of a file.

    Raises:
        ScenarioError: the file cannot be read, or values are not right; then each of them is told.
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
        raise ScenarioError(told(path, error)) from error


def _scenario(path: Path, values: Mapping[str, Any]) -> Scenario:
    wrong = Mistakes()
    with wrong.noted():
        check_table("", values, TOP, ("title", "teaches", "requests", "captions"))
    config = values["config"] if isinstance(values.get("config"), dict) else {}
    with wrong.noted():
        _config("config", config)
    if "host_blocks" in values and "cpu_offload_space" in config:
        wrong.add("host_blocks and config.cpu_offload_space say the same; keep host_blocks")
    tables = {kind: _tables(values, kind) for kind in KINDS}
    for kind, most in MOST.items():
        if isinstance(values.get(kind), list) and not 1 <= len(values[kind]) <= most:
            wrong.add(f"{kind} holds {len(values[kind])} of them; give 1 to {most}")
    parts = _read_all("requests", tables, _part, wrong)
    commands = _read_all("commands", tables, _command, wrong)
    captions = _read_all("captions", tables, _caption, wrong)
    _check_names(tables, wrong)
    wrong.raise_any()
    return Scenario(
        name=path.stem, path=path, title=values["title"], teaches=values["teaches"],
        model=values.get("model", "demo"), parts=parts, captions=captions, commands=commands,
        needs=values.get("needs", ""), config=config, host_blocks=values.get("host_blocks", 0),
        rate=float(values.get("rate", 4.0)), mode=values.get("mode", 1), map_view=values.get("map_view", ""),
    )  # fmt: skip


def _tables(values: Mapping[str, Any], kind: str) -> Tables:
    """The tables of a kind as they were written; what is no table was told already."""
    given = values.get(kind)
    return [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []


def _read_all(
    kind: str, tables: Mapping[str, Tables], read: Callable[[str, Mapping[str, Any]], T], wrong: Mistakes
) -> tuple[T, ...]:
    """What can be read; what is wrong with the others is noted."""
    found = []
    for n, item in enumerate(tables[kind], 1):
        with wrong.noted():
            found.append(read(f"{kind}, number {n}", item))
    return tuple(found)


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


def _part(where: str, values: Mapping[str, Any]) -> Part:
    wrong = Mistakes()
    with wrong.noted():
        check_table(where, values, REQUEST, ("name", "max_new_tokens"))
    if not str(values.get("text", "")).strip() and "tokens" not in values:
        wrong.add(f"{where}: the request has neither text nor tokens; give one of them, or both")
    if "topic" in values and "tokens" not in values:
        wrong.add(f"{where}: topic fills a prompt up to tokens; give tokens too")
    when = When(at=0)
    with wrong.noted():
        when = _when(where, values, 0)
    wrong.raise_any()
    sampling = {name: values[name] for name in SAMPLING if name in values}
    spec = RequestSpec(
        text=values.get("text", ""), request_id=values["name"], streaming=False,
        **{"ignore_eos": True, **sampling},
    )  # fmt: skip
    return Part(
        values["name"], when, spec, values.get("group", ""), values.get("tokens", 0),
        values.get("topic", "a small cat"),
    )  # fmt: skip


def _command(where: str, values: Mapping[str, Any]) -> Command:
    wrong = Mistakes()
    with wrong.noted():
        check_table(where, values, COMMAND)
    kinds = [name for name in ("cancel", "set", "pause") if name in values]
    if len(kinds) != 1:
        wrong.add(f"{where}: give exactly one of cancel, set and pause")
    when = When(at=0)
    with wrong.noted():
        when = _when(where, values, None)
    fields = values["set"] if isinstance(values.get("set"), dict) else {}
    with wrong.noted():
        _config(f"{where}: set", fields)
    if "set" in values and (not fields or any(name in RULES and name not in CHANGEABLE for name in fields)):
        wrong.add(f"{where}: set changes what can change while it runs: {', '.join(CHANGEABLE)}")
    wrong.raise_any()
    return Command(kinds[0], when, values.get("cancel", ""), fields)


def _caption(where: str, values: Mapping[str, Any]) -> Caption:
    wrong = Mistakes()
    with wrong.noted():
        check_table(where, values, CAPTION, ("text",))
    text = values.get("text")
    if "short" not in values and isinstance(text, str) and length_of(text) > SHORT:
        wrong.add(f"{where}: text has {length_of(text)} characters; add short, of at most {SHORT}")
    when = When(at=0)
    with wrong.noted():
        when = _when(where, values, None)
    wrong.raise_any()
    return Caption(when, values["text"], values.get("short", values["text"]), values.get("pause", True))


def _config(where: str, fields: Mapping[str, Any]) -> None:
    wrong = Mistakes()
    for name, value in fields.items():
        if name not in RULES or name in DEPRECATED:
            wrong.add(f"{where}: {name} is no field of the configuration; {_fields_like(name)}")
            continue
        try:
            check_field(name, value)
        except ConfigError as error:
            wrong.add(f"{where}: {error}")
    wrong.raise_any()


def _fields_like(name: str) -> str:
    """The fields a wrong name may mean, and all there are."""
    there = [field for field in RULES if field not in DEPRECATED]
    close = get_close_matches(name, there, n=2)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}there are {', '.join(there)}"


def _check_names(tables: Mapping[str, Tables], wrong: Mistakes) -> None:
    """Names, and what refers to them: of all tables, so that a mistake in one does not hide those of others."""
    named = [item for item in tables["requests"] if isinstance(item.get("name"), str)]
    names = [item["name"] for item in named]
    groups = {item["group"] for item in named if isinstance(item.get("group"), str)}
    for name in sorted({name for name in names if names.count(name) > 1}):
        wrong.add(f"requests: the name {name!r} is given twice; every request needs its own")
    for name in sorted(groups & set(names)):
        wrong.add(f"requests: {name!r} names a request and a group; rename one")
    members = members_of((item["name"], item.get("group", ""), item.get("copies", 1)) for item in named)
    there = ", ".join(members)
    for kind in KINDS:
        for n, item in enumerate(tables[kind], 1):
            where = f"requests, {item.get('name', n)}" if kind == "requests" else f"{kind}, number {n}"
            for field in ("of", "cancel"):
                if isinstance(item.get(field), str) and item[field] not in members:
                    wrong.add(f"{where}: {field} = {item[field]!r} is no request or group; there are {there}")
    for n, item in enumerate(tables["captions"], 1):
        for field in ("text", "short"):
            if isinstance(item.get(field), str):
                try:
                    check_text(item[field], members)
                except FigureError as error:
                    wrong.add(f"captions, number {n}: {field}: {error}")

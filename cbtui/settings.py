"""What the monitor remembers between two runs: one TOML file in the platform's configuration folder."""

import json
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import platformdirs

FILE = "settings.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    """The remembered choices.

    ``keymap`` maps an action's id to the Textual key names that take the place of the built-in ones.
    """

    theme: str = "dark"
    ascii: bool = False
    order: str = "attention"
    map_view: str = "owner"
    map_order: str = "auto"
    keymap: dict[str, tuple[str, ...]] = field(default_factory=dict)


class SettingsFile:
    """Reads and writes ``Settings``.

    A file that cannot be understood is reported in ``problem`` and never written over: it is a person's work.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or Path(platformdirs.user_config_dir("cbtui", appauthor=False))) / FILE
        self.problem: str | None = None
        self._told = False
        self.settings = self._read()

    def save(self, **changes: Any) -> str:
        """Remembers ``changes``. A folder that cannot be written is reported in ``problem``; the choice still holds.

        Returns:
            What to tell the person: the first time that a choice is not kept, that it is not and why; else "".
        """
        wanted = replace(self.settings, **changes)
        if wanted == self.settings:
            return ""
        self.settings = wanted
        if self.problem is None:
            self._write(wanted)
        if self.problem is None or self._told:
            return ""
        self._told = True
        return f"choices like this one are not kept for the next start: {self.problem}"

    def _write(self, wanted: Settings) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft = self.path.with_suffix(".new")
            draft.write_text(to_toml(wanted), encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            self.problem = f"{self.path} cannot be written ({error.strerror or error})"

    def _read(self) -> Settings:
        try:
            with self.path.open("rb") as file:
                return from_toml(tomllib.load(file))
        except FileNotFoundError:
            return Settings()
        except (OSError, ValueError) as error:
            self.problem = f"{self.path} is not used and not changed: {error}"
            return Settings()


def from_toml(table: dict[str, Any]) -> Settings:
    """Settings from a parsed TOML table.

    Raises:
        ValueError: an unknown name, or a value of the wrong kind.
    """
    known = {item.name: item for item in fields(Settings)}
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            raise ValueError(f"unknown setting {name!r}, known are {', '.join(known)}")
        if name == "keymap":
            values[name] = {action: _keys(action, wanted) for action, wanted in _table(value).items()}
            continue
        kind = bool if name == "ascii" else str
        if not isinstance(value, kind):
            raise ValueError(f"{name} must be {'true or false' if kind is bool else 'a text'}, not {value!r}")
        values[name] = value
    return Settings(**values)


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"keymap must be a table of action = key, not {value!r}")
    return value


def _keys(action: str, wanted: Any) -> tuple[str, ...]:
    keys = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError(f"keymap.{action} must be a key name or a list of them, not {wanted!r}")
    return tuple(keys)


def to_toml(settings: Settings) -> str:
    """The file's text; TOML's basic strings and arrays are written as JSON writes them."""
    lines = [
        f"{item.name} = {json.dumps(getattr(settings, item.name), ensure_ascii=False)}"
        for item in fields(Settings)
        if item.name != "keymap"
    ]
    if settings.keymap:
        lines += ["", "[keymap]"]
        lines += [f"{name} = {json.dumps(list(keys), ensure_ascii=False)}" for name, keys in settings.keymap.items()]
    return "\n".join(lines) + "\n"

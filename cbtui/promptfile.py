"""Prompts from a file: one a line, or one JSON object a line with fields of its own."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cbtui.forms import REQUEST_FIELDS
from cbtui.launch import RequestSpec
from cbtui.options import EMPTY_PROMPT
from cbtui.sampling import FURTHER, check_further

_OTHERS = ("stop_strings", "further")
_READERS = {field.name: field.read for row in REQUEST_FIELDS for field in row if field.name not in _OTHERS}
FIELDS = ("prompt", "id", "chat", "stop", "logprobs", *_READERS, *FURTHER)
"""What a JSON object in the file may hold."""


MOST_MISTAKES = 10
"""Mistakes told at once."""


class PromptFileError(ValueError):
    """A file of prompts that cannot be used: names the file, and each line with what is wrong with it."""


def read_prompts(path: Path, base: RequestSpec) -> list[RequestSpec]:
    """The requests of a file; ``base`` gives what a line leaves open.

    A file whose name ends in ``.jsonl`` holds JSON objects. Any other holds one prompt a line. Empty lines are
    left out.

    Raises:
        PromptFileError: the file cannot be read or lines are not right; the first ten of them are told.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise PromptFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PromptFileError(f"{path} is not UTF-8 text (byte {error.start})") from error
    is_json = path.suffix.lower() in (".jsonl", ".ndjson")
    mistakes: list[str] = []
    found = list(_requests(lines, is_json, base, mistakes))
    if len(mistakes) == 1:
        raise PromptFileError(f"{path}, {mistakes[0]}")
    if mistakes:
        more = len(mistakes) - MOST_MISTAKES
        told = [*mistakes[:MOST_MISTAKES], *([f"and {more} more"] if more > 0 else [])]
        raise PromptFileError(f"{path}: {len(mistakes)} lines are not right\n  " + "\n  ".join(told))
    if not found:
        raise PromptFileError(f"{path} holds no prompt")
    return found


def _requests(lines: list[str], is_json: bool, base: RequestSpec, mistakes: list[str]) -> Iterator[RequestSpec]:
    """The requests of the lines that are right; a sentence for each other one goes to ``mistakes``."""
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            spec = _from_object(json.loads(line), base) if is_json else replace(base, text=line)
            if not spec.prompt_ids and not spec.text.strip():
                raise ValueError(EMPTY_PROMPT)
            if spec.request_id is not None and (first := seen.setdefault(spec.request_id, number)) != number:
                raise ValueError(f"the id {spec.request_id!r} stands in line {first} already")
        except json.JSONDecodeError as error:
            mistakes.append(f"line {number}: not JSON ({error.msg} at column {error.colno})")
        except ValueError as error:
            mistakes.append(f"line {number}: {error}")
        else:
            yield spec


def _from_object(given: Any, base: RequestSpec) -> RequestSpec:
    if isinstance(given, str):
        return replace(base, text=given)
    if not isinstance(given, Mapping):
        raise ValueError("must be a JSON object or a JSON string")
    unknown = [name for name in given if name not in FIELDS]
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; there are {', '.join(FIELDS)}")
    if not isinstance(given.get("prompt"), str | list):
        raise ValueError('"prompt" must be a text or a list of token ids')
    values: dict[str, Any] = _prompt(given["prompt"])
    for name, read in _READERS.items():
        if given.get(name) is not None:
            if isinstance(given[name], bool | str | list | dict):
                raise ValueError(f'"{name}" must be a number, not {json.dumps(given[name])}')
            values[name] = read(str(given[name]))
    further = dict(base.further)
    for name in FURTHER:
        if given.get(name) is not None:
            further[name] = check_further(name, given[name])
    values["further"] = tuple(further.items())
    for name in ("chat", "logprobs"):
        if name in given:
            values[name] = _switch(name, given[name])
    if "stop" in given:
        values["stop_strings"] = _stops(given["stop"])
    if given.get("id") is not None:
        values["request_id"] = str(given["id"])
    return replace(base, **values)


def _prompt(value: str | list[Any]) -> dict[str, Any]:
    if isinstance(value, str):
        return {"text": value, "prompt_ids": ()}
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in value) or not value:
        raise ValueError('"prompt" as a list must hold token ids, at least one')
    return {"text": "", "prompt_ids": tuple(value)}


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f'"{name}" must be true or false, not {json.dumps(value)}')
    return value


def _stops(value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise ValueError('"stop" must be a text or a list of texts, none of them empty')
    return tuple(words)

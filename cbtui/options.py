"""The command line's options: one table for what a person may say, read and checked in one place.

Options of the engine come from the fields of ``ContinuousBatchingConfig`` and their help from its docstring, so that
neither can drift from the engine. Nothing here imports torch.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any

import typer
from rich.markup import escape

from cbtui.configuration import limits_of
from cbtui.forms import optional_seed, real, whole
from cbtui.launch import RequestSpec
from cbtui.sampling import FURTHER, More, read_further
from cbtui.view.layout import MIN_HEIGHT, MIN_WIDTH
from engine.core.errors import ConfigError
from engine.core.options import DEPRECATED, RULES, ContinuousBatchingConfig, check_field

MODEL, REQUESTS, MONITOR, ENGINE = "Model", "Requests", "Monitor", "Engine"
DEFAULT_MODEL = "demo"
WATCHABLE_BLOCKS = 256
"""Blocks of the pool, over all layer groups, that still make a picture in a terminal."""

WATCHABLE: Mapping[str, Any] = {"page_size": 16, "max_batch_tokens": 64, "max_requests_per_batch": 16}
"""The monitor's own defaults: small enough that pages fill, budgets bind and rows run out while somebody looks."""

MIN_SIZE, MAX_SIZE = (MIN_WIDTH, MIN_HEIGHT), (1000, 1000)
"""Columns and rows of a frame."""

EMPTY_PROMPT = "the text is empty; give it at least one character that is no space"
_TEXT, _MANY, _SWITCH = str | None, list[str] | None, bool | None


class OptionError(Exception):
    """A value that cannot be used: one line that names the option, the value, the range and what to try."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person chose, checked. ``config`` holds only the engine fields that were set.

    ``own_model``: the model was chosen and is not the default. ``prompts`` are texts as given; ``prompts_file`` is read
    later, with ``spec`` for whatever a line leaves open.
    """

    model: str
    own_model: bool
    device: str
    dtype: str
    attn: str
    trust_remote_code: bool
    threads: int | None
    yes: bool
    config: Mapping[str, Any]
    prompts: tuple[str, ...]
    prompts_file: str | None
    spec: RequestSpec


def _say(
    name: str, kind: Any, help: str, panel: str, *, flag: str = "", metavar: str | None = None, hidden: bool = False
) -> inspect.Parameter:
    """One option; None means that it was not given."""
    flags = flag or "--" + name.replace("_", "-")
    option = typer.Option(
        flags, help=escape(help), rich_help_panel=panel, metavar=metavar, hidden=hidden, show_default=False
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


MODEL_OPTIONS = (
    _say(
        "model", _TEXT, f"Short name, hub name, folder or .gguf file. Default: {DEFAULT_MODEL}.", MODEL, metavar="NAME"
    ),
    _say("device", _TEXT, "auto, cpu, cuda, cuda:N or mps. Default: auto.", MODEL, metavar="DEVICE"),
    _say("dtype", _TEXT, "auto, float32, bfloat16 or float16. Default: auto.", MODEL, metavar="DTYPE"),
    _say(
        "attn",
        _TEXT,
        "auto, eager, sdpa, flash_attention_2 or flash_attention_3. Default: auto.",
        MODEL,
        metavar="BACKEND",
    ),
    _say(
        "threads",
        _TEXT,
        "CPU threads of the model. Default: physical cores, less one where there are more than two.",
        MODEL,
        metavar="N",
    ),
    _say("trust_remote_code", _SWITCH, "Run Python code that comes with the model.", MODEL, flag="--trust-remote-code"),
    _say("yes", _SWITCH, "Download a known model without asking.", MODEL, flag="--yes"),
)
REQUEST_OPTIONS = (
    _say("prompt", _MANY, "A prompt; may be given several times.", REQUESTS, metavar="TEXT"),
    _say("prompts_file", _TEXT, "One prompt a line, or JSONL with fields per request.", REQUESTS, metavar="FILE"),
    _say("max_new_tokens", _TEXT, "New tokens per request, at most. Default: 128.", REQUESTS, metavar="N"),
    _say("temperature", _TEXT, "0 is greedy. Default: 0.", REQUESTS, metavar="T"),
    _say("top_k", _TEXT, "Keep the K likeliest tokens; 0: as the model has it. Default: 0.", REQUESTS, metavar="K"),
    _say("top_p", _TEXT, "Keep the most likely tokens up to this mass. Default: 1.", REQUESTS, metavar="P"),
    _say("min_p", _TEXT, "Keep tokens at least this share as likely as the best. Default: 0.", REQUESTS, metavar="P"),
    _say(
        "sampling",
        _MANY,
        f"Any other: {', '.join(FURTHER)}. May be given several times.",
        REQUESTS,
        metavar="NAME=VALUE",
    ),
    _say("stop", _MANY, "A text that ends a request; may be given several times.", REQUESTS, metavar="TEXT"),
    _say(
        "chat",
        _SWITCH,
        "Use the model's chat template where it has one. Default: chat.",
        REQUESTS,
        flag="--chat/--no-chat",
    ),
)
MONITOR_OPTIONS = (
    _say("scenario", _TEXT, "Play one: a name of `cbtui scenarios`, or a .toml file.", MONITOR, metavar="NAME"),
    _say("once", _SWITCH, "No terminal: print a frame as text, at the end or at each caption.", MONITOR, flag="--once"),
    _say("steps", _TEXT, "With --once: stop after N steps and show that moment.", MONITOR, metavar="N"),
    _say("size", _TEXT, "With --once: size of the frame. Default: 120x36.", MONITOR, metavar="WxH"),
    _say("mode", _TEXT, "The mode shown first, 1 to 6. Default: the scenario's, else 1.", MONITOR, metavar="N"),
    _say("theme", _TEXT, "A theme of the monitor. Default: as last time.", MONITOR, metavar="NAME"),
    _say("ascii", _SWITCH, "Draw with ASCII characters only.", MONITOR, flag="--ascii/--no-ascii"),
    _say("rate", _TEXT, "Steps per second at the start. Default: as fast as it goes.", MONITOR, metavar="R"),
    _say("paused", _SWITCH, "Start with the engine held; the space bar lets it go.", MONITOR, flag="--paused"),
)


def engine_options() -> tuple[inspect.Parameter, ...]:
    """One option for each field of ``ContinuousBatchingConfig``; deprecated ones work but are not shown."""
    words = field_help(ContinuousBatchingConfig.__doc__ or "")
    found = []
    for item in fields(ContinuousBatchingConfig):
        help = words.get(item.name, "")
        if item.default is not MISSING and item.default is not None:
            own = f" (monitor: {WATCHABLE[item.name]})" if item.name in WATCHABLE else ""
            help = f"{help} Default: {_word(item.default)}{own}."
        elif item.name in WATCHABLE:
            help = f"{help} Monitor: {WATCHABLE[item.name]}."
        elif item.name == "num_blocks":
            help = f"{help} Monitor: {WATCHABLE_BLOCKS}, shared by the layer groups."
        found.append(
            _say(item.name, _TEXT, help.strip(), ENGINE, metavar=_metavar(item.default), hidden=item.name in DEPRECATED)
        )
    return tuple(found)


def _metavar(default: Any) -> str:
    return "ON|OFF" if isinstance(default, bool) else "VALUE"


def _word(default: Any) -> str:
    return ("off", "on")[default] if isinstance(default, bool) else str(default)


def field_help(docstring: str) -> dict[str, str]:
    """The entries of a docstring's ``Attributes`` section: name -> first clause, for names joined by commas as well."""
    section = re.search(r"Attributes:\n(.*?)(?:\n\s*\n|\Z)", docstring, re.DOTALL)
    entries = re.findall(r"^ {8}(\w[\w, ]*): (.*(?:\n {12}.*)*)", section.group(1) if section else "", re.MULTILINE)
    found = {}
    for names, text in entries:
        sentence = re.sub(r"``(.*?)``", lambda m: m.group(1).strip('"'), " ".join(text.split()))
        for name in names.split(","):
            is_value = text.startswith("``")  # a value keeps its case
            found[name.strip()] = sentence if is_value else sentence[:1].upper() + sentence[1:]
    return found


def with_options(
    *options: inspect.Parameter, context: bool = False, **flags: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a function that takes ``**values`` the signature typer reads its options from.

    ``context`` adds typer's context as first parameter; ``flags`` are further switches (name -> annotation), off.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(name, keyword, default=False, annotation=kind) for name, kind in flags.items()]
    first = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [*([first] if context else []), *options, *more]

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return function

    return wrap


def read_choices(values: Mapping[str, Any]) -> Choices:
    """Checks what the options say.

    Raises:
        OptionError: for the first value that cannot be used.
    """
    prompts = tuple(values["prompt"] or ())
    if not all(text.strip() for text in prompts):
        raise OptionError(f"--prompt: {EMPTY_PROMPT}.")
    return Choices(
        model=values["model"] or DEFAULT_MODEL,
        own_model=values["model"] is not None,
        device=values["device"] or "auto",
        dtype=values["dtype"] or "auto",
        attn=values["attn"] or "auto",
        trust_remote_code=bool(values["trust_remote_code"]),
        threads=read_option(values, "threads", whole("threads", 1, 1024)),
        yes=bool(values["yes"]),
        config=read_config(values),
        prompts=prompts,
        prompts_file=values["prompts_file"],
        spec=_read_spec(values),
    )


def read_option(values: Mapping[str, Any], name: str, read: Callable[[str], Any], default: Any = None) -> Any:
    """One value that was given as text, or ``default`` when it was not given."""
    text = values.get(name)
    if text is None:
        return default
    try:
        return read(text)
    except ValueError as error:
        raise OptionError(f"--{name.replace('_', '-')} {text}: {error}.") from error


def read_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """The engine fields that were set, each checked against its range."""
    found: dict[str, Any] = {}
    for item in fields(ContinuousBatchingConfig):
        given = values.get(item.name)
        if given is None:
            continue
        found[item.name] = read_value(given)
        if item.name in DEPRECATED:
            continue
        if found[item.name] is None and not RULES[item.name].ok(None):
            found[item.name] = given  # a field that has a value called "auto" of its own
        try:
            check_field(item.name, found[item.name])
        except ConfigError as error:
            limits = "must be ON or OFF" if isinstance(item.default, bool) else limits_of(item.name)
            raise OptionError(f"--{item.name.replace('_', '-')} {given}: {limits}.") from error
    return found


def read_value(text: str) -> Any:
    """A value of an engine field from text: JSON, or "none"/"auto" for None, "true,false" for a pair, else the text."""
    lowered = text.strip().lower()
    if lowered in ("none", "auto"):
        return None
    words = {"true": True, "false": False, "on": True, "off": False}
    parts = [part.strip() for part in lowered.split(",")]
    if all(part in words for part in parts):
        return words[parts[0]] if len(parts) == 1 else tuple(words[part] for part in parts)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def read_size(text: str) -> tuple[int, int]:
    """Columns and rows from "120x36"."""
    match = re.fullmatch(r"(\d{1,4})[xX×](\d{1,4})", text.strip())
    size = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    if not all(low <= given <= high for low, given, high in zip(MIN_SIZE, size, MAX_SIZE, strict=True)):
        limits = f"{MIN_SIZE[0]}x{MIN_SIZE[1]} to {MAX_SIZE[0]}x{MAX_SIZE[1]}"
        raise ValueError(f"must be columns x rows, from {limits}, for example 120x36")
    return size


def _read_spec(values: Mapping[str, Any]) -> RequestSpec:
    return RequestSpec(
        chat=values["chat"] is not False,
        max_new_tokens=read_option(values, "max_new_tokens", whole("max new tokens", 1), RequestSpec().max_new_tokens),
        stop_strings=tuple(values["stop"] or ()),
        temperature=read_option(values, "temperature", real("temperature", 0, 100), 0.0),
        top_k=read_option(values, "top_k", whole("top_k", 0), 0),
        top_p=read_option(values, "top_p", real("top_p", 0, 1, open_low=True), 1.0),
        min_p=read_option(values, "min_p", real("min_p", 0, 1), 0.0),
        further=_read_further(values["sampling"] or ()),
        seed=read_option(values, "seed", optional_seed),
    )


def _read_further(given: Iterable[str]) -> More:
    """What stands in all ``--sampling`` options; of a name given twice the last one holds."""
    found: dict[str, Any] = {}
    for text in given:
        try:
            found.update(read_further(text))
        except ValueError as error:
            raise OptionError(f"--sampling {text}: {error}.") from error
    return tuple(found.items())

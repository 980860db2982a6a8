"""The ``cbtui`` command: the monitor, ``generate``, ``bench``, ``scenarios``, ``info`` and ``models``.

Exit codes: 0 all went well; 1 a request failed or was refused; 2 an option or a file of prompts is not right; 3 the
model cannot be loaded; 4 the engine failed; 5 a full disk, nothing more can be written; 129 hung up; 130 interrupted;
141 nobody reads the output any more; 143 terminated.
"""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, TextIO

import typer

from cbtui.options import (
    MODEL_OPTIONS,
    MONITOR_OPTIONS,
    REQUEST_OPTIONS,
    OptionError,
    engine_options,
    read_choices,
    read_option,
    read_size,
    with_options,
)
from cbtui.ranks import follow, follows, leading
from cbtui.scenarios.plot import ScenarioError
from cbtui.version import __version__
from engine.core.errors import ConfigError, EngineError, LoadError

FAILED, USAGE, NO_MODEL, ENGINE_FAILED, NO_ROOM, INTERRUPTED, NO_READER = 1, 2, 3, 4, 5, 130, 141
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says when a disk, a quota or a file has no more room."""

_EPILOG = (
    "Exit codes: 0 well, 1 a request failed, 2 wrong option, 3 model not loaded, 4 engine failed, 5 disk full, "
    "129 hung up, 130 interrupted, 141 output closed, 143 terminated."
)
app = typer.Typer(
    name="cbtui",
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
models = typer.Typer(help="The models with short names: list, fetch, remove.", no_args_is_help=True)
app.add_typer(models, name="models")
_ENGINE_OPTIONS = engine_options()


def _version(value: bool) -> None:
    if value:
        typer.echo(f"cbtui {__version__}")
        raise typer.Exit


_VERSION = Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)]
"""Declared by the group alone; see ``with_options`` for the others."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command line and returns the exit code. Every expected failure becomes one line on standard error."""
    try:
        code = _run(arguments)
        if sys.stdout is not None:  # it is None when it was closed from the start
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        _give_up(sys.stdout)
        return NO_READER
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # this is how rich, which prints the help, takes it
            return NO_READER
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        place = "" if error.filename is None else f" ({error.filename})"
        code = _fail(f"nothing more can be written: {error.strerror}{place}", NO_ROOM)
        _give_up(sys.stdout)
        return code


def _run(arguments: Sequence[str]) -> int:
    try:
        command = typer.main.get_command(app)
        with command.make_context("cbtui", list(arguments)) as context, leading():
            command.invoke(context)
        return 0
    except typer.Exit as ending:
        return ending.exit_code
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except OptionError as error:
        return _fail(str(error), USAGE)
    except ScenarioError as error:
        return _fail(f"{str(error).rstrip('.')}.", USAGE)
    except ConfigError as error:
        return _fail(f"the configuration cannot be used: {error}", USAGE)
    except LoadError as error:
        return _fail(str(error), NO_MODEL)
    except EngineError as error:
        return _fail(f"the engine failed: {error}", ENGINE_FAILED)
    except typer.Abort:
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:
        if not hasattr(
            error, "format_message"
        ):  # anything but a complaint of the option parser is a fault: show it whole
            raise
        return _fail(f"{error.format_message()} Try cbtui --help.", USAGE)


def _give_up(stream: TextIO) -> None:
    """What still waits in a stream goes nowhere: Python would complain once more when it closes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fail(message: str, code: int) -> int:
    try:
        print(f"cbtui: {message}", file=sys.stderr)
    except OSError:  # nobody can be told
        _give_up(sys.stderr)
    return code


@app.callback(
    invoke_without_command=True,
    epilog=_EPILOG,
    help="Watch continuous batching: runs a model and shows every decision of the scheduler, live.",
)
@with_options(*MODEL_OPTIONS, *REQUEST_OPTIONS, *MONITOR_OPTIONS, *_ENGINE_OPTIONS, context=True, version=_VERSION)
def monitor(ctx: typer.Context, **values: Any) -> None:
    """The monitor itself, unless a subcommand follows."""
    if ctx.invoked_subcommand is not None:
        given = [name for name, value in values.items() if value not in (None, False)]
        if given and given != ["yes"]:
            flag = "--" + given[0].replace("_", "-")
            raise OptionError(f"{flag} stands before {ctx.invoked_subcommand}; options of a command stand behind it.")
        return
    from cbtui.theme import THEME_NAMES, theme_named

    choices = read_choices(values)
    if follows():
        raise typer.Exit(follow(choices))
    if values["theme"] is not None and values["theme"] not in THEME_NAMES:
        raise OptionError(f"--theme {values['theme']}: there are {', '.join(THEME_NAMES)}.")
    from cbtui.forms import real, whole
    from cbtui.scenarios import find_scenario
    from cbtui.scenarios.find import FIRST

    scenario = None
    if values["scenario"] is not None:
        scenario = find_scenario(values["scenario"])
    elif not (choices.own_model or choices.prompts or choices.prompts_file or values["once"]):
        scenario = find_scenario(FIRST)
    if scenario is not None and (choices.prompts or choices.prompts_file):
        raise OptionError("--scenario brings its own prompts; leave --prompt and --prompts-file out.")
    steps = read_option(values, "steps", whole("steps", 1))
    size = read_option(values, "size", read_size, (120, 36))
    mode = read_option(values, "mode", whole("mode", 1, 6))
    rate = read_option(values, "rate", real("steps per second", 0, 1000, open_low=True))
    if values["once"] and scenario is not None:
        from cbtui.scenarios.frames import print_frames

        look = theme_named(values["theme"] or "dark", ascii_only=bool(values["ascii"]))
        raise typer.Exit(print_frames(choices, scenario, size, look, mode))
    if values["once"]:
        from cbtui.once import once

        raise typer.Exit(once(choices, size, values["theme"] or "dark", bool(values["ascii"]), mode or 1, steps))
    from cbtui.start import launch

    raise typer.Exit(
        launch(
            choices,
            mode=mode,
            theme=values["theme"],
            ascii=values["ascii"],
            rate=rate,
            paused=bool(values["paused"]),
            scenario=scenario,
        )
    )


@app.command(
    epilog=_EPILOG, help="Run prompts without the monitor: progress on standard error, results on standard output."
)
@with_options(
    *MODEL_OPTIONS,
    *REQUEST_OPTIONS,
    *_ENGINE_OPTIONS,
    json=Annotated[
        bool, typer.Option("--json", help="One JSON object a line for each result.", rich_help_panel="Output")
    ],
)
def generate(**values: Any) -> None:
    """Runs the given prompts, or one read from standard input."""
    from cbtui.headless import generate as run_prompts

    choices = read_choices(values)
    raise typer.Exit(follow(choices) if follows() else run_prompts(choices, as_json=bool(values["json"])))


@app.command(epilog=_EPILOG, help="Measure how quick the engine is with a model on this machine.")
@with_options(
    *MODEL_OPTIONS,
    *_ENGINE_OPTIONS,
    json=Annotated[bool, typer.Option("--json", help="One JSON object.", rich_help_panel="Output")],
)
def bench(**values: Any) -> None:
    """Runs made-up prompts in batches of several sizes and prints what they took."""
    from cbtui.bench import bench as measure

    no_requests = {option.name: None for option in REQUEST_OPTIONS}
    choices = read_choices({**no_requests, **values})
    raise typer.Exit(follow(choices) if follows() else measure(choices, as_json=bool(values["json"])))


@app.command()
def info() -> None:
    """Versions, devices, attention backends and why not, where models are looked for, threads."""
    from cbtui.info import lines

    for line in lines():
        typer.echo(line)


@app.command()
def scenarios() -> None:
    """The scenarios at hand: names for --scenario, titles, and the model each is made for."""
    from cbtui.scenarios.find import all_scenarios, own_folder

    shelf = all_scenarios()
    wide = max(len(scenario.name) for scenario in shelf.scenarios)
    for scenario in shelf.scenarios:
        typer.echo(f"{scenario.name:<{wide}}  {scenario.title:<42}  {scenario.model}")
    for problem in shelf.problems:
        typer.echo(f"cbtui: {problem}", err=True)
    typer.echo(f"Your own: files in {own_folder()}, or --scenario path.toml", err=True)


@models.command("list")
def list_models() -> None:
    """The models with short names, and which of them are on this machine."""
    from cbtui.info import model_lines

    for line in model_lines():
        typer.echo(line)


_NAME = Annotated[str, typer.Argument(help="A short name, as `cbtui models list` shows it.")]


@models.command("fetch")
def fetch_model(name: _NAME, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Download a model and keep it in the platform's cache folder."""
    from cbtui.start import fetch

    typer.echo(f"{name} is in {fetch(name, yes=yes)}")


@models.command("remove")
def remove_model(name: _NAME) -> None:
    """Delete what was downloaded and converted for a model."""
    from engine.models import remove_known

    freed = remove_known(name)
    typer.echo(f"{name}: {freed / 1e6:.0f} MB freed" if freed else f"{name} was not on this machine")

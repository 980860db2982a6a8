"""What the monitor is started with. Imports neither torch nor Textual, so the command line can build it at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from engine.models.progress import LoadProgress

if TYPE_CHECKING:
    from cbtui.scenarios.plot import Scenario

Progress = Callable[[LoadProgress], None]
"""Called as loading goes on; raises ``engine.models.LoadCancelled`` once a person gave up."""


class Loaded(Protocol):
    """What ``LaunchOptions.load`` returns, as far as the monitor looks at it."""

    name: str
    tokenizer: Any


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request as a person writes it, before its text becomes token ids.

    Attributes:
        text: the prompt, any characters; ``prompt_ids`` are used instead when they are given.
        chat: put the text through the model's chat template when it has one.
        max_new_tokens: limit on new tokens, > 0.
        stop_strings: texts that end the output.
        copies: how many requests to add from this one, > 0; they can share prefix blocks. Copy i draws with seed + i.
        temperature: 0 is greedy.
        top_k: 0 keeps all tokens. top_p: in (0, 1]. min_p: in [0, 1].
        further: every other sampling parameter under the engine's own name, see ``cbtui.sampling``.
        seed: None lets the engine draw one.
        streaming: have the engine deliver partial outputs too, as for a caller who reads along; the screen needs none.
        logprobs: also return the log-probability of every sampled token.
        request_id: a name, or None for the next letter.
        ignore_eos: write all of ``max_new_tokens``: the model cannot end the text before.
    """

    text: str = ""
    prompt_ids: tuple[int, ...] = ()
    chat: bool = True
    max_new_tokens: int = 128
    stop_strings: tuple[str, ...] = ()
    copies: int = 1
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    further: tuple[tuple[str, Any], ...] = ()
    seed: int | None = None
    streaming: bool = False
    logprobs: bool = False
    request_id: str | None = None
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Everything ``run_monitor`` needs.

    Attributes:
        name: model name or path, shown while it loads.
        load: runs on the load thread, after the first frame; may import torch. Its exceptions become the error screen,
            so their text is one clear sentence and what to try.
        make_manager: builds an engine from what was loaded, not started. The second argument holds configuration fields
            a person changed in the configuration editor (empty at first); it is called again for every restart.
        prompts: requests to add as soon as the engine runs.
        defaults: what the add dialog starts with.
        mode: 1 … 6, the mode shown first; None for the scenario's own, and 1 without one.
        theme: a theme's name, or None for the remembered one.
        ascii: draw with ASCII glyphs only; None for the remembered choice.
        rate: steps per second at the start, None for as fast as it goes.
        paused: start with the engine held.
        scenario: played as soon as the engine runs, None for none.
        load_named: loads the model a scenario is made for, by its short name; None keeps the one of ``load``, because
            a person chose it.
        config_dir: where settings are kept; None is the platform's folder.
    """

    name: str
    load: Callable[[Progress], Any]
    make_manager: Callable[[Any, Mapping[str, Any]], Any]
    prompts: tuple[RequestSpec, ...] = ()
    defaults: RequestSpec = field(default_factory=RequestSpec)
    mode: int | None = None
    theme: str | None = None
    ascii: bool | None = None
    rate: float | None = None
    paused: bool = False
    scenario: "Scenario | None" = None
    load_named: Callable[[str, Progress], Any] | None = None
    config_dir: Path | None = None

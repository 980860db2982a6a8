"""What a scenario is: requests that arrive, commands that are given, captions that explain, each tied to a moment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cbtui.launch import RequestSpec
from engine.core.observe import Verdict

EVENTS: Mapping[str, str] = {
    "arrives": "a request joins the line",
    "refused": "a request is refused",
    "admitted": "a request gets a row and its first tokens are computed",
    "prefix_hit": "a request finds tokens of its prompt in the prefix cache",
    "chunk": "a further part of a prompt is computed",
    "first_token": "a request has its first output token",
    "ends": "a request, or the last one of a group, is over",
    "all_end": "nobody is left",
    "cancelled": "a request is cancelled",
    "recompute": "a request loses its cache",
    "offload": "a request moves to the host pool",
    "restore": "a request comes back from the host pool",
    "wait_rows": "a request waits for a row",
    "wait_tokens": "a request waits for token budget",
    "wait_blocks": "a request waits for blocks",
    "wait_margin": "the safety margin holds a request back",
    "wait_order": "a request waits behind another",
    "wait_prefill": "a decode is held back for prefills",
    "recycle": "a block behind a window goes back to the pool",
    "evict": "a cached block is given up",
    "setting": "a setting has its new value",
}
"""What a moment can be tied to, and what it means."""

VERDICTS: Mapping[Verdict, str] = {
    Verdict.ADMIT: "admitted",
    Verdict.CHUNK: "chunk",
    Verdict.CANCELLED: "cancelled",
    Verdict.RECOMPUTE: "recompute",
    Verdict.OFFLOAD: "offload",
    Verdict.RESTORE: "restore",
    Verdict.WAIT_ROWS: "wait_rows",
    Verdict.WAIT_TOKENS: "wait_tokens",
    Verdict.WAIT_BLOCKS: "wait_blocks",
    Verdict.WAIT_MARGIN: "wait_margin",
    Verdict.WAIT_ORDER: "wait_order",
    Verdict.WAIT_PREFILL: "wait_prefill",
}
"""Decisions of the scheduler that are events, and their names."""


class ScenarioError(ValueError):
    """A scenario that cannot be used: names the file, the field, the value, the limit and what to try."""


@dataclass(frozen=True, slots=True)
class When:
    """A moment of a scenario.

    Attributes:
        at: a step, counted from the scenario's beginning over the steps that compute something; -1 with an event. A
            request or command of step n is in time for it, a caption of step n comes after it; 0 is the beginning.
        event: a name of ``EVENTS``; "" with ``at``.
        of: request or group it must happen to, "" for any.
        nth: which time it happens, from 1.
        after: steps that pass between the event and the moment.
    """

    at: int = -1
    event: str = ""
    of: str = ""
    nth: int = 1
    after: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One request of a scenario.

    Attributes:
        name: its request id. group: requests that belong together in captions, "" for none.
        when: its arrival.
        spec: what is asked for; ``spec.text`` is what a person would type.
        tokens: exact length of the prompt in tokens, template included; 0 leaves it as long as it is.
        topic: what the text is about that fills the prompt up to ``tokens``. Two requests with the same topic begin
            with the same tokens.
    """

    name: str
    when: When
    spec: RequestSpec
    group: str = ""
    tokens: int = 0
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """Something a person could do: "cancel" a request or group, "set" configuration fields, or "pause"."""

    kind: str
    when: When
    target: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Caption:
    """A sentence with figures in braces, its shorter form for narrow screens, and whether the engine pauses for it."""

    when: When
    text: str
    short: str
    pause: bool = True


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as its file tells it.

    Attributes:
        name: of the file, without its ending. path: the file.
        title, teaches: a few words, and what it teaches in one sentence.
        model: short name of the model it is made for; a person's own choice overrides it.
        needs: "window" when it needs sliding-window layers, else "".
        config: fields of the engine's configuration.
        host_blocks: blocks of the host pool, whatever a block takes in this model; 0 for none.
        rate: suggested steps per second.
        mode: the mode shown, 1 to 6. map_view: the view of the block map, "" for owners.
    """

    name: str
    path: Path
    title: str
    teaches: str
    model: str
    parts: tuple[Part, ...]
    captions: tuple[Caption, ...]
    commands: tuple[Command, ...] = ()
    needs: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    host_blocks: int = 0
    rate: float = 4.0
    mode: int = 1
    map_view: str = ""

    @property
    def members(self) -> Mapping[str, tuple[str, ...]]:
        """Request ids by the name of a request or of a group; copies of a request count with it."""
        return members_of((part.name, part.group, part.spec.copies) for part in self.parts)


def members_of(named: Iterable[tuple[str, Any, Any]]) -> Mapping[str, tuple[str, ...]]:
    """Request ids by the name of a request or of a group, from (name, group, copies) of each request."""
    found: dict[str, tuple[str, ...]] = {}
    for name, group, copies in named:
        more = range(2, copies + 1) if isinstance(copies, int) else ()
        found[name] = ids = (name, *(f"{name}-{copy}" for copy in more))
        if group and isinstance(group, str):
            found[group] = (*found.get(group, ()), *ids)
    return found

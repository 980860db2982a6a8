"""What the views need to know beside the engine's records: selection, cursor, mode, notices, keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ORDERS = ("attention", "arrival", "blocks", "progress")
MAP_VIEWS = ("owner", "state", "fill", "age", "refs")
MAP_ORDERS = ("auto", "owner", "physical", "tables")
MODES = ("monitor", "requests", "blocks", "timeline", "offload", "config")


@dataclass(frozen=True, slots=True)
class KeyHint:
    """One entry of the key bar. ``enabled`` False draws it struck out; higher ``priority`` survives longer."""

    keys: str
    label: str
    enabled: bool = True
    priority: int = 0
    action: str = ""
    """what a click on it asks for; empty is not clickable."""


@dataclass(frozen=True, slots=True)
class Loading:
    """Weights on their way: the phase in words, seconds so far, bytes or layers done of total (0 when unknown)."""

    phase: str
    seconds: float = 0.0
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class ConfigField:
    """A row of the configuration page: current and edited value as text, and what an edit would mean."""

    name: str
    now: str
    new: str = ""
    effect: str = "next step"
    note: str = ""
    error: str = ""

    @property
    def changed(self) -> bool:
        return self.new not in ("", self.now)


@dataclass(frozen=True, slots=True)
class CaptionLine:
    """The caption of a scenario: number ``number`` of ``total``, its wordings, and what to press, best one first."""

    number: int
    total: int
    texts: tuple[str, ...]
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chrome:
    """Everything around the records that a frame depends on. The app replaces it whole; views only read it.

    Attributes:
        model: short name of the model, "" while unknown.
        engine: "new", "loading", "running", "held", "draining", "stopped" or "failed".
        error: why it failed, one sentence.
        past: the step shown instead of the live one, None when live.
        left: the step that was live when the past was gone to: the block map keeps its places.
        frozen: the view stands still while the engine runs on.
        rate: the slow-motion limit in steps per second, None for full speed.
        step_seconds: how long the step in progress has been running, None when nothing is late.
        mode: index into MODES plus one, 1 … 6.
        selected: key of the selected sequence; pinned: keys of further streams; block: selected block id.
        filter: request filter text; order, map_view, map_order: one of the tuples above.
        scroll: pane name -> first row shown.
        maximised: pane name that fills the mode, None for all; focus: pane with the keys.
        mark: step A of a difference; difference: show it (needs mark).
        zoom: steps per cell of the Gantt chart, 0 fits everything.
        keys: the key bar; notice: one sentence shown instead of the key bar's tail, with its kind "info" or "error".
        block_bytes: bytes of one block, 0 when unknown.
        caption: the line of a scenario below the HUD, None without one.
        clock: name of the clock shown beside times ("" for the wall clock).
    """

    model: str = ""
    engine: str = "running"
    error: str | None = None
    past: int | None = None
    left: int | None = None
    frozen: bool = False
    rate: float | None = None
    step_seconds: float | None = None
    mode: int = 1
    selected: int | None = None
    pinned: tuple[int, ...] = ()
    block: int | None = None
    filter: str = ""
    filtering: bool = False
    order: str = "attention"
    map_view: str = "owner"
    map_order: str = "auto"
    scroll: Mapping[str, int] = field(default_factory=dict)
    maximised: str | None = None
    focus: str | None = None
    mark: int | None = None
    difference: bool = False
    zoom: int = 0
    keys: tuple[KeyHint, ...] = ()
    notice: str = ""
    notice_kind: str = "info"
    block_bytes: int = 0
    loading: Loading | None = None
    config: tuple[ConfigField, ...] = ()
    config_cursor: int = 0
    caption: CaptionLine | None = None


class Hit(NamedTuple):
    """A clickable part of a row: cells ``x0 <= x < x1`` of row ``y`` stand for ``value``.

    ``kind``: "request" (sequence key), "block" (block id), "host" (slot), "step" (step number), "key" (action name),
    "order", "field" (config row).
    """

    y: int
    x0: int
    x1: int
    kind: str
    value: int | str

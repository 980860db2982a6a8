"""Every action of the monitor, once: its keys, words, group, and when it can be used.

The key bar, the `?` screen, the command palette, the bindings and the table in the README all come from ``ACTIONS``.
When an action can be used is decided by the predicates of ``cbtui.situation``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cbtui.situation import (
    Predicate,
    accepting,
    always,
    copyable,
    engine_there,
    explainable,
    has_history,
    has_steps,
    in_past,
    live,
    marked,
    on_live_request,
    on_request,
    openable,
    playable,
    played,
    playing,
    startable,
    stoppable,
    undoable,
)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a person can do.

    Attributes:
        id: stable name, used by the keymap in the settings and by the method that carries it out.
        keys: Textual key names; the first is the one shown.
        label: a word or two, for the key bar and the palette.
        help: one sentence, for the `?` screen and the README.
        check: None when it can be used, else why not.
    """

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    check: Predicate = always


# fmt: off
ENGINE = (
    Action("pause", ("space",), "pause", "Pause the engine between two steps, or let it run on.", live),
    Action("step", ("full_stop",), "step", "Run one step, then pause.", live),
    Action("steps", ("n",), "n steps", "Run a number of steps, then pause.", live),
    Action("run_until", ("b",), "run until",
           "Run until a preemption, offload, first token, end, few free blocks, broken invariant.", live),
    Action("slower", ("minus",), "slower", "Slow down, to one step in four seconds; in the Timeline: zoom out.",
           engine_there),
    Action("faster", ("plus", "equals_sign"), "faster", "Speed up, to full speed; in the Timeline: zoom in.",
           engine_there),
    Action("stop", ("s",), "stop", "Finish the accepted requests, take no new ones, then stop.", stoppable),
    Action("hard_stop", ("X",), "stop all", "Stop now: unfinished requests fail with a reason. Asks first; y confirms.",
           engine_there),
    Action("start", ("S",), "start", "Start the engine again after a stop or a failure.", startable),
    Action("config", ("comma",), "config", "Change settings: what holds from the next step, what needs a restart.",
           engine_there),
)

REQUESTS = (
    Action("add", ("a",), "add", "Write a prompt and add it as a request.", accepting),
    Action("burst", ("A",), "burst", "Add many requests of given lengths at a given rate.", accepting),
    Action("duplicate", ("d",), "duplicate", "Add the selected request once more; its prompt blocks can be shared.",
           copyable),
    Action("cancel", ("c",), "cancel", "Cancel the selected request; its blocks are free after the step.",
           on_live_request),
    Action("undo", ("u",), "undo", "Add the request cancelled last once more.", undoable),
    Action("previous", ("up", "k"), "up", "Select the request above, or scroll the focused pane.", always),
    Action("next", ("down", "j"), "down", "Select the request below, or scroll the focused pane.", always),
    Action("page_up", ("pageup",), "page up", "Go up by a page.", always),
    Action("page_down", ("pagedown",), "page down", "Go down by a page.", always),
    Action("detail", ("enter",), "detail", "Show the story of the selected request; in the Config: edit.", openable),
    Action("pin", ("i",), "pin", "Keep the stream of the selected request in view, or let it go.", on_request),
    Action("filter", ("slash",), "filter", "Show only requests whose id, state or reason holds a text.", always),
    Action("order", ("o",), "order", "Change the order of the requests.", always),
)

TIME = (
    Action("older", ("left_square_bracket",), "scrub", "Look at the step before.", has_history),
    Action("newer", ("right_square_bracket",), "scrub on", "Look at the step after.", in_past),
    Action("left", ("left",), "left", "Look at the step before; in the Blocks: to the block on the left.", always),
    Action("right", ("right",), "right", "Look at the step after; in the Blocks: to the block on the right.", always),
    Action("older10", ("left_curly_bracket",), "back ×10", "Go back ten steps.", has_history),
    Action("newer10", ("right_curly_bracket",), "on ×10", "Go ten steps on.", in_past),
    Action("oldest", ("home",), "oldest", "Go to the oldest step that is kept.", has_history),
    Action("live", ("end",), "go live", "Go back to the latest step and follow the engine.", in_past),
    Action("freeze", ("f",), "freeze", "Freeze what is shown while the engine runs on, or let it follow.", has_steps),
    Action("preview", ("p",), "preview", "Show what the next step would do: a dry run that changes nothing.", live),
    Action("mark", ("m",), "mark", "Mark the step shown as A, for the difference.", has_steps),
    Action("difference", ("M",), "difference", "Show what changed between A and the step shown.", marked),
)

VIEW = (
    *(Action(f"mode{number}", (str(number),), name.lower(), f"Go to mode {number}, {name}.", always)
      for number, name in enumerate(("Monitor", "Requests", "Blocks", "Timeline", "Offload", "Config"), start=1)),
    Action("next_pane", ("tab",), "next pane", "Move the focus to the next pane.", always),
    Action("previous_pane", ("shift+tab",), "pane before", "Move the focus to the pane before.", always),
    Action("zoom", ("z",), "maximise", "Give the whole screen to the pane in focus, or take it back.", always),
    Action("explain", ("e",), "why?",
           "Explain the selected request, the step in focus, or the figures of the first line.",
           explainable),
    Action("map_view", ("v",), "map view", "Draw the block map by owner, state, fill, age or references.", always),
    Action("map_order", ("l",), "map order", "Order the block map by owner, by place, or one row per request.", always),
    Action("theme", ("t",), "theme", "Go to the next theme; it is remembered.", always),
)

SCENARIOS = (
    Action("scenarios", ("r",), "scenarios", "Choose a scenario: requests and captions that show one thing.", playable),
    Action("next_scenario", ("N",), "next one", "Begin the scenario after the one played.", played),
    Action("again", ("R",), "again", "Begin the scenario once more.", played),
    Action("leave", ("x",), "leave", "Leave the scenario; the engine and its requests go on.", playing),
)

PROGRAM = (
    Action("copy", ("y",), "copy", "Copy the selected request as JSON to the clipboard.", on_request),
    Action("picture", ("w",), "picture", "Write the screen as an SVG and a text file into the current folder.", always),
    Action("palette", ("colon", "ctrl+p"), "commands", "Search all commands by name.", always),
    Action("glossary", ("g",), "glossary", "Show what the terms and figures mean.", always),
    Action("help", ("question_mark",), "keys", "Show every key; type to search.", always),
    Action("pane_help", ("f1",), "pane help", "Explain the pane in focus.", always),
    Action("back", ("escape",), "back", "Close what is open: loading, difference, pane, past, filter.", always),
    Action("quit", ("q", "ctrl+c"), "quit", "Quit. The engine is stopped; it never takes over a second.", always),
)
# fmt: on

GROUPS: Mapping[str, tuple[Action, ...]] = {
    "Engine": ENGINE,
    "Requests": REQUESTS,
    "Time": TIME,
    "View": VIEW,
    "Scenarios": SCENARIOS,
    "Program": PROGRAM,
}

ACTIONS: tuple[Action, ...] = tuple(action for group in GROUPS.values() for action in group)

BY_ID: Mapping[str, Action] = {action.id: action for action in ACTIONS}

_NAMES = {
    "full_stop": ".", "comma": ",", "minus": "-", "plus": "+", "equals_sign": "=", "slash": "/", "colon": ":",
    "question_mark": "?", "left_square_bracket": "[", "right_square_bracket": "]", "left_curly_bracket": "{",
    "right_curly_bracket": "}", "f1": "F1", "pageup": "pgup", "pagedown": "pgdn", "up": "↑", "down": "↓",
    "left": "←", "right": "→", "escape": "esc",
}  # fmt: skip


def key_name(key: str) -> str:
    """How a key is written for people: ``full_stop`` is ``.``, ``ctrl+p`` is ``^p``."""
    if key.startswith("ctrl+"):
        return "^" + key_name(key[5:])
    return _NAMES.get(key, key)


def keymap(overrides: Mapping[str, tuple[str, ...]] | None = None) -> dict[str, tuple[str, ...]]:
    """The keys of every action, with those of the settings in place of the built-in ones.

    Raises:
        ValueError: an override names an unknown action or no key, or two actions would share a key.
    """
    keys = {action.id: action.keys for action in ACTIONS}
    for name, wanted in (overrides or {}).items():
        if name not in keys:
            raise ValueError(f"unknown action {name!r} in the keymap; the ? screen lists them")
        if not wanted:
            raise ValueError(f"the keymap leaves {name!r} without a key")
        keys[name] = tuple(wanted)
    taken: dict[str, str] = {}
    for name, wanted in keys.items():
        for key in wanted:
            if key in taken:
                raise ValueError(f"the key {key_name(key)!r} is given to both {taken[key]!r} and {name!r}")
            taken[key] = name
    return keys


def markdown() -> str:
    """The table of all keys for the README."""
    lines = ["| key | action | |", "|---|---|---|"]
    for group, actions in GROUPS.items():
        lines.append(f"| **{group}** | | |")
        for action in actions:
            names = " ".join(f"`{key_name(key)}`" for key in action.keys)
            lines.append(f"| {names} | {action.label} | {action.help} |")
    return "\n".join(lines) + "\n"

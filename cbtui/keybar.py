"""Which actions the key bar shows, in which order, and what gives way first on a narrow screen."""

from collections.abc import Mapping

from cbtui.keys import BY_ID, key_name
from cbtui.situation import Situation
from cbtui.view.chrome import KeyHint

Entry = tuple[str, str, int]
"""Action ids joined by "+", the word beside them ("" takes the action's own), and the priority: higher stays longer."""

LIVE: tuple[Entry, ...] = (
    ("pause", "", 90),
    ("step", "", 86),
    ("older+newer", "scrub", 80),
    ("add", "", 89),
    ("cancel", "", 84),
    ("explain", "", 78),
    ("config", "", 50),
    ("filter", "", 45),
    ("run_until", "", 40),
    ("mark", "", 35),
    ("hard_stop", "", 60),
    ("mode1+mode6", "modes", 70),
    ("scenarios", "", 55),
    ("theme", "", 20),
    ("palette", "", 30),
    ("help", "", 95),
    ("quit", "", 94),
)

PAST: tuple[Entry, ...] = (
    ("live", "", 99),
    ("older+newer", "scrub", 92),
    ("older10+newer10", "×10", 80),
    ("mark", "set A", 84),
    ("difference", "", 82),
    ("explain", "", 40),
    ("pause", "", 60),
    ("step", "", 50),
    ("add", "", 48),
    ("cancel", "", 46),
    ("help", "", 95),
    ("quit", "", 90),
)

TIMELINE: tuple[Entry, ...] = (
    ("older+newer", "step", 80),
    ("previous+next", "request", 85),
    ("faster+slower", "zoom", 84),
    ("explain", "", 60),
    ("detail", "detail", 50),
    ("mark", "mark A", 70),
    ("order", "", 45),
    ("mode1", "", 90),
    ("help", "", 95),
    ("quit", "", 88),
)

STOPPED: tuple[Entry, ...] = (
    ("start", "", 99),
    ("older+newer", "scrub", 80),
    ("mark", "", 60),
    ("mode1+mode6", "modes", 70),
    ("copy", "", 40),
    ("help", "", 95),
    ("quit", "", 97),
)

LOADING: tuple[Entry, ...] = (
    ("back", "cancel", 95),
    ("help", "", 90),
    ("glossary", "", 60),
    ("theme", "", 50),
    ("quit", "", 99),
)

FAILED: tuple[Entry, ...] = (("start", "load again", 95), ("help", "", 90), ("theme", "", 50), ("quit", "", 99))


def entries(now: Situation, mode: int) -> tuple[Entry, ...]:
    """The bar that fits the situation."""
    if now.phase != "ready":
        return FAILED if now.phase == "failed" else LOADING
    if now.past is not None:
        return PAST
    if now.engine in ("stopped", "failed", "detached"):
        return STOPPED
    if mode == 4:
        return TIMELINE
    return (*LIVE[:2], ("leave", "", 87), ("next_scenario", "", 56), *LIVE[2:]) if now.scenario else LIVE


def hints(now: Situation, mode: int, keys: Mapping[str, tuple[str, ...]]) -> tuple[KeyHint, ...]:
    """The key bar as the view draws it; what cannot be used stays, marked."""
    return tuple(_hint(entry, now, keys) for entry in entries(now, mode))


def _hint(entry: Entry, now: Situation, keys: Mapping[str, tuple[str, ...]]) -> KeyHint:
    names, label, priority = entry
    actions = [BY_ID[name] for name in names.split("+")]
    shown = [key_name(keys[action.id][0]) for action in actions]
    joint = "–" if names == "mode1+mode6" else " "
    word = label or label_of(actions[0].id, now)
    enabled = any(action.check(now) is None for action in actions)
    return KeyHint(joint.join(shown), word, enabled, priority, actions[0].id)


def label_of(name: str, now: Situation) -> str:
    """The word beside a key; `space` and `X` say what they would do now."""
    if name == "pause" and now.engine == "held":
        return "run"
    if name == "hard_stop" and now.hung:
        return "give up"
    return BY_ID[name].label

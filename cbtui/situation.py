"""What decides whether an action can be used, and the predicates that do: each says None, or why not, for a person."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Situation:
    """What decides whether an action can be used, taken anew at each tick.

    Attributes:
        phase: "loading", "failed" (no engine came of it) or "ready".
        loaded: there is a model.
        engine: state of the manager: "new", "running", "held", "draining", "stopped", "failed" or "detached".
        past: the step shown when it is one of the past, else None.
        frozen: the view stands still while the engine may run.
        kept: how many steps the history holds, 2 for any more.
        selected: id of the request under the cursor.
        selected_ended: that request has ended.
        mark: the step marked as A, or None.
        can_undo: a cancelled request can be added again.
        has_work: some request is not finished.
        rate: steps per second asked for, None for full speed.
        mode: the mode shown, 1 … 6. pane: the pane in focus.
        scenario: title of the scenario that is played, "" for none. played: one was played in this session.
        hung: seconds a step has been going on since a stop was asked for, once that is too long; else 0.
    """

    phase: str = "ready"
    loaded: bool = True
    engine: str = "running"
    past: int | None = None
    frozen: bool = False
    kept: int = 0
    selected: str | None = None
    selected_ended: bool = False
    mark: int | None = None
    can_undo: bool = False
    has_work: bool = False
    rate: float | None = None
    mode: int = 1
    pane: str = "requests"
    hung: float = 0.0
    scenario: str = ""
    played: bool = False


Reason = str | None
Predicate = Callable[[Situation], Reason]


def always(situation: Situation) -> Reason:
    """Can be used in every state."""
    return None


def engine_there(now: Situation) -> Reason:
    """An engine exists that takes commands."""
    if now.phase == "loading":
        return "the model is still loading"
    if now.phase == "failed":
        return "no engine could be built; S tries again" if now.loaded else "no model is loaded"
    return {
        "failed": "the engine died; S starts it again",
        "stopped": "the engine is stopped; S starts it again",
        "detached": "the engine was given up; S starts a new one",
    }.get(now.engine)


def live(now: Situation) -> Reason:
    """The engine takes commands and the view shows its latest step."""
    if now.past is not None:
        return f"step {now.past} is the past; end goes back to LIVE"
    return engine_there(now)


def accepting(now: Situation) -> Reason:
    """New requests can be taken."""
    return live(now) or ("the engine is stopping and takes nothing new" if now.engine == "draining" else None)


def on_request(now: Situation) -> Reason:
    """A request is under the cursor."""
    return None if now.selected else "no request is selected; a adds one"


def openable(now: Situation) -> Reason:
    """There is something to open: a configuration field, else a request under the cursor."""
    return engine_there(now) if now.mode == 6 else on_request(now)


def on_live_request(now: Situation) -> Reason:
    """A request that has not ended is under the cursor and commands are taken."""
    reason = live(now) or on_request(now)
    return reason or (f"{now.selected} has already ended" if now.selected_ended else None)


STEP_PANES = ("batch", "timeline", "log", "gantt")
"""Panes that are about steps and not about a request."""


def explains(now: Situation) -> str:
    """What ``e`` explains: "request", "step" or "figures". The scheduler can only be asked about the present."""
    if now.pane == "hud":
        return "figures"
    if now.pane in STEP_PANES or now.past is not None or not now.selected:
        return "step"
    return "request" if now.selected_ended or engine_there(now) is None else "step"


def explainable(now: Situation) -> Reason:
    """There is a request to ask the engine about, or a step to look at."""
    return None if explains(now) == "request" else has_steps(now)


def copyable(now: Situation) -> Reason:
    """The request under the cursor can be added again."""
    return accepting(now) or on_request(now)


def undoable(now: Situation) -> Reason:
    """A request was cancelled here and can be added again."""
    return accepting(now) or (None if now.can_undo else "nothing was cancelled yet")


def stoppable(now: Situation) -> Reason:
    """The engine can be told to finish what it has."""
    return engine_there(now) or ("the engine is already finishing its work" if now.engine == "draining" else None)


def startable(now: Situation) -> Reason:
    """Loading failed, or there is a loaded model and no running engine."""
    if now.phase == "failed" or (now.phase == "ready" and now.engine in ("stopped", "failed", "detached")):
        return None
    if now.engine == "draining":
        return "the engine is finishing its work; X ends it at once, and then S starts it again"
    return engine_there(now) or "the engine is running"


def has_history(now: Situation) -> Reason:
    """More than the step shown is kept."""
    return None if now.kept > 1 else "no earlier step is kept yet"


def has_steps(now: Situation) -> Reason:
    """At least one step can be looked at."""
    return None if now.kept else "no step has run yet"


def in_past(now: Situation) -> Reason:
    """An earlier step, or a frozen one, is shown."""
    return None if now.past is not None or now.frozen else "the view is LIVE already"


def marked(now: Situation) -> Reason:
    """A step to compare with was marked."""
    return has_steps(now) or (None if now.mark is not None else "mark a step with m first")


def playable(now: Situation) -> Reason:
    """A scenario can begin: nothing is being loaded."""
    return "the model is still loading" if now.phase == "loading" else None


def playing(now: Situation) -> Reason:
    """A scenario is being played."""
    return playable(now) or (None if now.scenario else "no scenario is played")


def played(now: Situation) -> Reason:
    """A scenario is being played, or was."""
    return playable(now) or (None if now.played else "no scenario was played yet")

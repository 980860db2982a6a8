"""What each action of ``cbtui.keys`` does. A method's name is the action's id."""

from cbtui.actions.engine import EngineActions
from cbtui.actions.program import ProgramActions
from cbtui.actions.requests import RequestActions
from cbtui.actions.scenarios import ScenarioActions
from cbtui.actions.time import TimeActions
from cbtui.actions.view import ViewActions

GROUPS = (EngineActions, RequestActions, TimeActions, ViewActions, ScenarioActions, ProgramActions)

__all__ = ["GROUPS"]

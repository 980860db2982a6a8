"""Scenarios: a configuration, requests and captions that show one thing the engine does.

``read`` makes a ``Scenario`` (``plot``) of a TOML file, ``find`` knows where the files are, ``prompts`` cuts prompts to
measure, a ``Script`` goes along with the engine, and ``figures`` fills captions with numbers from its records.
"""

from cbtui.scenarios.find import all_scenarios, find_scenario
from cbtui.scenarios.plot import Scenario, ScenarioError

__all__ = ["Scenario", "ScenarioError", "all_scenarios", "find_scenario"]

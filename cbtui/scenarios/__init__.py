"""Scenarios: a configuration, requests and captions that show one thing the engine does.

``read`` makes a ``Scenario`` (``plot``) of a TOML file, ``find`` knows where the files are, ``prompts`` cuts prompts to
measure, a ``Script`` goes along with the engine, ``figures`` are numbers from its records, ``wording`` puts them in
sentences.
"""

from cbtui.scenarios.find import all_scenarios, find_scenario
from cbtui.scenarios.plot import Scenario, ScenarioError

__all__ = ["Scenario", "ScenarioError", "all_scenarios", "find_scenario"]

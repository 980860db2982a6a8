"""Actions on scenarios: choose one, the next one, once more, leave."""

from typing import TYPE_CHECKING

from cbtui.scenarios import Scenario, ScenarioError, all_scenarios
from cbtui.scenarios.find import Shelf
from cbtui.scenarios.telling import check_model
from cbtui.screens.scenarios import ScenarioDialog
from cbtui.screens.small import ConfirmDialog

if TYPE_CHECKING:
    from cbtui.app import MonitorApp


class ScenarioActions:
    """Each scenario gets an engine of its own; a person's own unfinished requests are asked about first."""

    def __init__(self, app: "MonitorApp") -> None:
        self._app = app

    def scenarios(self) -> None:
        shelf, player = self._shelf(), self._app.player
        now = "" if player.scenario is None else player.scenario.name
        dialog = ScenarioDialog(self._app.look, shelf, now, self._unfit(shelf))
        self._app.push_screen(dialog, self._chosen)

    def next_scenario(self) -> None:
        played = self._app.player.scenario
        if played is not None:
            begin(self._app, self._shelf().after(played.name))

    def again(self) -> None:
        played = self._app.player.scenario
        if played is not None:
            begin(self._app, played)

    def leave(self) -> None:
        self._app.player.leave()
        self._app.session.say("the engine and its requests go on; r lists the scenarios")

    def _shelf(self) -> Shelf:
        """Read anew each time, so that a file a person just wrote is there."""
        return all_scenarios(self._app.session.launch.config_dir)

    def _unfit(self, shelf: Shelf) -> dict[str, str]:
        """Scenarios the model that was chosen cannot show, with the reason."""
        session = self._app.session
        if session.launch.load_named is not None or session.loaded is None:
            return {}
        reasons = {}
        for scenario in shelf.scenarios:
            try:
                check_model(scenario, session.loaded)
            except ScenarioError as error:
                reasons[scenario.name] = str(error)
        return reasons

    def _chosen(self, scenario: Scenario | None) -> None:
        if scenario is not None:
            begin(self._app, scenario)


def begin(app: "MonitorApp", scenario: Scenario) -> None:
    """Begins a scenario. What one itself added may go; what a person added is asked about."""
    if not app.player.own_requests():
        app.play(scenario)
        return

    def losses() -> list[str]:
        names = app.player.own_requests()
        who = f"{'requests' if len(names) > 1 else 'request'} {' '.join(names[:8])}{' …' if len(names) > 8 else ''}"
        lost = f"Your {who} would end with it." if names else "Nothing of yours would be lost."
        return ["A scenario begins with an engine of its own; the one that runs is stopped.", lost]

    dialog = ConfirmDialog(app.look, f"Begin {scenario.title}?", losses, "begin")
    app.push_screen(dialog, lambda yes: app.play(scenario) if yes else None)

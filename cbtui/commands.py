"""The command palette: every action of the registry by name, with its keys, and with the reason where it is off; and
every scenario by its title."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from cbtui.keys import BY_ID, GROUPS, key_name
from cbtui.scenarios import all_scenarios

if TYPE_CHECKING:
    from cbtui.app import MonitorApp


class ActionProvider(Provider):
    """Feeds Textual's palette."""

    @property
    def _monitor(self) -> "MonitorApp":
        from cbtui.app import MonitorApp

        assert isinstance(self.app, MonitorApp)
        return self.app

    def _actions(self) -> list[tuple[str, str, str, Callable[[], None]]]:
        """(name, what is shown below it, what is searched beside the name, what it does)"""
        monitor = self._monitor
        now, keys = monitor.situation, monitor.keys
        entries: list[tuple[str, str, str, Callable[[], None]]] = []
        for group, actions in GROUPS.items():
            for action in actions:
                if action.id in ("palette", "back"):
                    continue
                reason = action.check(now)
                name = f"{group}: {action.label}  ({' '.join(map(key_name, keys[action.id]))})"
                shown = f"Not now: {reason}." if reason else action.help
                entries.append((name, shown, action.help, partial(monitor.perform, action.id)))
        return entries

    def _scenarios(self) -> list[tuple[str, str, str, Callable[[], None]]]:
        """The same of the scenarios, as long as one can begin."""
        from cbtui.actions.scenarios import begin

        monitor = self._monitor
        if BY_ID["scenarios"].check(monitor.situation) is not None:
            return []
        found = all_scenarios(monitor.session.launch.config_dir).scenarios
        return [(f"Scenario: {one.title}", one.teaches, one.teaches, partial(begin, monitor, one)) for one in found]

    async def discover(self) -> Hits:
        for name, shown, _, act in self._actions():
            yield DiscoveryHit(name, act, help=shown)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, shown, help, act in (*self._actions(), *self._scenarios()):
            score = max(matcher.match(name), matcher.match(help) * 0.8)
            if score > 0:
                yield Hit(score, matcher.highlight(name), act, help=shown)

"""The command palette: every action of the registry by name, with its keys, and with the reason where it is off."""

from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from cbtui.keys import GROUPS, Action, key_name

if TYPE_CHECKING:
    from cbtui.app import MonitorApp


class ActionProvider(Provider):
    """Feeds Textual's palette."""

    @property
    def _monitor(self) -> "MonitorApp":
        from cbtui.app import MonitorApp

        assert isinstance(self.app, MonitorApp)
        return self.app

    def _entries(self) -> list[tuple[str, str, Action]]:
        now, keys = self._monitor.situation, self._monitor.keys
        entries = []
        for group, actions in GROUPS.items():
            for action in actions:
                if action.id in ("palette", "back"):
                    continue
                reason = action.check(now)
                name = f"{group}: {action.label}  ({' '.join(map(key_name, keys[action.id]))})"
                entries.append((name, f"Not now: {reason}." if reason else action.help, action))
        return entries

    async def discover(self) -> Hits:
        for name, text, action in self._entries():
            yield DiscoveryHit(name, partial(self._monitor.perform, action.id), help=text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, text, action in self._entries():
            score = max(matcher.match(name), matcher.match(action.help) * 0.8)
            if score > 0:
                yield Hit(score, matcher.highlight(name), partial(self._monitor.perform, action.id), help=text)

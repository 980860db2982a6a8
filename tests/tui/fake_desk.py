"""Where a scenario's script stands at the fake manager."""

from functools import partial
from typing import TYPE_CHECKING, Any

from engine.core.config import change
from engine.core.request import Request

if TYPE_CHECKING:
    from tests.tui.fake_manager import FakeManager


class FakeDesk:
    """Where a scenario's script hands in its commands, see ``cbtui.scenarios.script.Desk``."""

    def __init__(self, manager: "FakeManager") -> None:
        self._manager = manager

    @property
    def has_work(self) -> bool:
        return self._manager.scheduler.has_work or any(ack.kind == "add" for ack, _ in self._manager._commands)

    def add(self, spec: Any) -> None:
        manager = self._manager
        request = Request(
            spec.request_id, tuple(spec.prompt_ids), max_new_tokens=spec.max_new_tokens, created_time=manager.clock()
        )
        manager._queue("add", request.request_id, lambda: manager._add(request))

    def cancel(self, request_id: str) -> None:
        manager = self._manager
        manager._queue("cancel", request_id, lambda: manager.scheduler.cancel(request_id, manager.clock()) and "")

    def set(self, fields: Any) -> None:
        manager = self._manager
        wanted = change(manager.status.config, manager.config, **fields)
        for name in fields:
            manager._queue("config", name, partial(manager._configure, wanted, name))

    def hold(self) -> None:
        self._manager._become("held")

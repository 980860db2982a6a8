"""A script at a real engine."""

from collections.abc import Mapping
from typing import Any

from cbtui.launch import RequestSpec
from cbtui.scenarios.script import Script
from cbtui.submit import submit
from engine.core.errors import ConfigError, RequestError
from engine.core.observe import StepRecord
from engine.loop import Engine


class EngineDesk:
    """Hands a script's commands to an engine, on the engine's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def has_work(self) -> bool:
        return self._engine.has_work or self._engine.waiting > 0

    def add(self, spec: RequestSpec) -> None:
        """A refusal is acknowledged like any other command, so that a record tells of it."""
        for copy in range(spec.copies):
            try:
                submit(self._engine.submit, spec, spec.prompt_ids, copy, streaming=False)
            except RequestError as error:
                self._refuse("add", spec.request_id or "", str(error))

    def cancel(self, request_id: str) -> None:
        self._engine.cancel(request_id)

    def set(self, fields: Mapping[str, Any]) -> None:
        try:
            self._engine.configure(**fields)
        except ConfigError as error:
            self._refuse("config", ", ".join(fields), str(error))

    def hold(self) -> None:
        self._engine.pace.hold()

    def _refuse(self, kind: str, target: str, reason: str) -> None:
        def refuse() -> str | None:
            raise RequestError(reason)

        self._engine.post(kind, target, refuse)


class ScriptFollower:
    """A script that goes along with an engine, see ``engine.follow``."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def begin(self, engine: Engine) -> str | None:
        self.script.begin(EngineDesk(engine), engine.scheduler.step)
        return self.script.scenario.title

    def let_go(self, engine: Engine) -> None:
        self.script.let_go(EngineDesk(engine), engine.scheduler.step)

    def heard(self, engine: Engine, record: StepRecord) -> None:
        self.script.heard(EngineDesk(engine), record)

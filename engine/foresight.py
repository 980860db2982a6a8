"""Questions of "what if" to a running engine: a copy is made between two steps, the dry run is the caller's time."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.blueprint import layout_of
from engine.core.config import CHANGEABLE, change, resolve
from engine.core.forecast import FARTHEST_PLACE, Explanation, Trial
from engine.core.options import check_field
from engine.core.rehearsal import Forecast, Rehearsal, forecast, rehearse
from engine.core.resolved import ResolvedConfig
from engine.core.scheduler import Scheduler
from engine.loop import Engine
from engine.thread import SOON
from engine.worker import Worker

PROBE = "\0forecast"
"""Id of a request that is never queued."""


def foresee_request(worker: Worker, prompt: Any, timeout: float | None, wanted: Mapping[str, Any]) -> Forecast:
    """See ``ContinuousBatchingManager.forecast``."""
    request = worker.engine.build_request(prompt, PROBE, **wanted)
    (twin, queued), (least, most) = worker.ask(lambda: (_copy(worker.engine), _numbers(worker.engine)), timeout)
    found = forecast(twin, request, queued)
    return found if found.step is None else replace(found, step=found.step + most, early=most - least)


def foresee_config(worker: Worker, timeout: float | None, fields: Mapping[str, Any]) -> Rehearsal:
    """See ``ContinuousBatchingManager.rehearse``."""
    engine = worker.engine
    if not needs_restart(engine, fields):
        settings = change(engine.config, engine.blueprint.config, **fields).scheduler_settings()
        twin, queued = worker.ask(lambda: _copy(engine), timeout)
        return rehearse(twin, settings, None, queued)
    planned = plan_restart(engine, fields)
    twin, queued = worker.ask(lambda: _copy(engine), timeout)
    return rehearse(twin, planned.scheduler_settings(), layout_of(planned, twin.layout.groups), queued)


def needs_restart(engine: Engine, fields: Mapping[str, Any]) -> bool:
    """Whether some of these fields cannot change between two steps, or not so far."""
    for name, value in fields.items():
        if name not in CHANGEABLE:
            return True
        if name in ("max_batch_tokens", "max_requests_per_batch") and value is not None:
            if value > getattr(engine.blueprint.config, name).value:
                return True
    return False


def plan_restart(engine: Engine, fields: Mapping[str, Any]) -> ResolvedConfig:
    """See ``ContinuousBatchingManager.plan_restart``."""
    for name, value in fields.items():
        check_field(name, value)
    blueprint = engine.blueprint
    now, built = dict(engine.config.items()), dict(blueprint.config.items())
    changed = {name: now[name].value for name in CHANGEABLE if now[name].value != built[name].value}
    return resolve(replace(blueprint.wanted, **{**changed, **fields}), blueprint.facts_without())


def numbered(engine: Engine, why: Explanation) -> Explanation:
    """What would change the place of a sequence, with the step number that doing it takes, at most; on its thread."""
    _, most = _numbers(engine)
    if not most:
        return why

    def later(trial: Trial) -> Trial:
        step = None if trial.step is None else trial.step + most
        return replace(trial, step=step, ended=tuple((key, end + most) for key, end in trial.ended))

    return replace(why, trials=tuple(trial if trial.kind == "wait" else later(trial) for trial in why.trials))


def _copy(engine: Engine) -> tuple[Scheduler, int]:
    """A copy of the scheduler as it stands between two steps, and how many wait in the original."""
    return engine.scheduler.copy(FARTHEST_PLACE), len(engine.scheduler.state.line)


def _numbers(engine: Engine) -> tuple[int, int]:
    """How many step numbers a command takes for itself before the next step that computes, at least and at most.

    It has one where no step can begin, and where it comes so long before the next one that it does not wait for it.
    """
    pace = engine.pace
    if not pace.open:
        return 1, 1
    far = pace.rate is not None and 1.0 / pace.rate > SOON
    if not far or (not engine.has_work and pace.delay(engine.clock()) <= SOON):
        return 0, 0
    return 0, 1

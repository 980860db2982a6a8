"""Questions of "what if" to a running engine: a copy is made between two steps, the dry run is the caller's time."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.core.config import CHANGEABLE, change
from engine.core.errors import ConfigError
from engine.core.forecast import FARTHEST_PLACE
from engine.core.layout import SchedulerSettings
from engine.core.rehearsal import Forecast, Rehearsal, forecast, layout_with, rehearse
from engine.core.scheduler import Scheduler
from engine.loop import Engine
from engine.thread import SOON
from engine.worker import Worker

PROBE = "\0forecast"
"""Id of a request that is never queued."""
SETTING_OF = {
    "scheduler_type": "policy", "max_batch_tokens": "max_batch_tokens", "safety_margin": "safety_margin",
    "max_requests_per_batch": "max_requests_per_batch", "allow_block_sharing": "allow_block_sharing",
    "skip_limit": "skip_limit", "max_steps_without_decode": "max_steps_without_decode",
}  # fmt: skip
"""Configuration field -> what the scheduler calls it."""


def foresee_request(worker: Worker, prompt: Any, timeout: float | None, wanted: Mapping[str, Any]) -> Forecast:
    """See ``ContinuousBatchingManager.forecast``."""
    request = worker.engine.build_request(prompt, PROBE, **wanted)
    (twin, queued), (least, most) = worker.ask(lambda: (_copy(worker.engine), _numbers(worker.engine)), timeout)
    found = forecast(twin, request, queued)
    return found if found.step is None else replace(found, step=found.step + most, early=most - least)


def foresee_config(worker: Worker, timeout: float | None, fields: Mapping[str, Any]) -> Rehearsal:
    """See ``ContinuousBatchingManager.rehearse``."""
    engine = worker.engine
    now, later = _sorted(engine, fields)
    changed = change(engine.config, engine.blueprint.config, **now)
    settings = changed.scheduler_settings()
    twin, queued = worker.ask(lambda: _copy(engine), timeout)
    if not later:
        return rehearse(twin, settings, None, queued)
    undecided = [name for name, value in later.items() if value is None]
    if undecided:
        raise ConfigError(f"{', '.join(undecided)}: the machine decides at the restart, nothing can be said before")
    return rehearse(twin, _with(settings, later), layout_with(twin.layout, later), queued)


def _copy(engine: Engine) -> tuple[Scheduler, int]:
    """A copy of the scheduler as it stands between two steps, and how many wait in the original."""
    return engine.scheduler.copy(FARTHEST_PLACE), len(engine.scheduler.state.line)


def _numbers(engine: Engine) -> tuple[int, int]:
    """How many step numbers an add takes for itself before the next step that computes, at least and at most.

    It has one where no step can begin, and where it comes so long before the next one that it does not wait for it.
    """
    pace = engine.pace
    if not pace.open:
        return 1, 1
    far = pace.rate is not None and 1.0 / pace.rate > SOON
    if not far or (not engine.has_work and pace.delay(engine.clock()) <= SOON):
        return 0, 0
    return 0, 1


def _sorted(engine: Engine, fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields that take effect between two steps, and those that need a new engine."""
    now: dict[str, Any] = {}
    later: dict[str, Any] = {}
    for name, value in fields.items():
        built = getattr(engine.blueprint.config, name).value if name in SETTING_OF else None
        grows = name in ("max_batch_tokens", "max_requests_per_batch") and value is not None and value > built
        (later if grows or name not in CHANGEABLE else now)[name] = value
    return now, later


def _with(settings: SchedulerSettings, fields: Mapping[str, Any]) -> SchedulerSettings:
    known = {SETTING_OF[name]: value for name, value in fields.items() if name in SETTING_OF}
    return replace(settings, **known)

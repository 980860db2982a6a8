"""Continuous batching for ``transformers`` models. What is exported here is the public surface.

Importing this package does not import torch; the first use of a name that needs it does.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.api import (
        continuous_batching_context_manager as continuous_batching_context_manager,
    )
    from engine.api import (
        destroy_cached_continuous_batching_manager as destroy_cached_continuous_batching_manager,
    )
    from engine.api import generate_batch as generate_batch
    from engine.api import init_continuous_batching as init_continuous_batching
    from engine.blueprint import WorkloadHints as WorkloadHints
    from engine.control import RunUntil as RunUntil
    from engine.core.config import ResolvedConfig as ResolvedConfig
    from engine.core.errors import ConfigError as ConfigError
    from engine.core.errors import EngineError as EngineError
    from engine.core.errors import RequestError as RequestError
    from engine.core.options import ContinuousBatchingConfig as ContinuousBatchingConfig
    from engine.core.request import FinishReason as FinishReason
    from engine.core.request import GenerationOutput as GenerationOutput
    from engine.core.request import RequestStatus as RequestStatus
    from engine.detokenize import TextStream as TextStream
    from engine.loop import Engine as Engine
    from engine.manager import ContinuousBatchingManager as ContinuousBatchingManager
    from engine.status import ManagerStatus as ManagerStatus
    from engine.status import QueueFullError as QueueFullError

_HOMES = {
    "generate_batch": "engine.api",
    "init_continuous_batching": "engine.api",
    "continuous_batching_context_manager": "engine.api",
    "destroy_cached_continuous_batching_manager": "engine.api",
    "ContinuousBatchingManager": "engine.manager",
    "ManagerStatus": "engine.status",
    "QueueFullError": "engine.status",
    "RunUntil": "engine.control",
    "Engine": "engine.loop",
    "ContinuousBatchingConfig": "engine.core.options",
    "ResolvedConfig": "engine.core.config",
    "WorkloadHints": "engine.blueprint",
    "TextStream": "engine.detokenize",
    "FinishReason": "engine.core.request",
    "GenerationOutput": "engine.core.request",
    "RequestStatus": "engine.core.request",
    "ConfigError": "engine.core.errors",
    "EngineError": "engine.core.errors",
    "RequestError": "engine.core.errors",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]

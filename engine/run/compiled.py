"""The model's modules through ``torch.compile``, one compiled callable per path."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from engine.core.resolved import ResolvedConfig
from engine.run.shapes import PATHS

ACCEPTED = ("fullgraph", "dynamic", "backend", "mode", "options")
"""What ``torch.compile`` takes of a compile config."""

MOST_SHAPES = 64
"""Shapes one function may be compiled for. Beyond them it runs as it is; PyTorch's own limit is 8."""


def compiled_models(model: Any, resolved: ResolvedConfig) -> dict[str, Callable[..., Any]]:
    """Path -> the model as that path calls it, for the paths that are compiled. Nothing is compiled before a call."""
    settings = {
        path: getattr(resolved, f"{path}_compile_config").value
        for path in PATHS
        if getattr(resolved, f"{path}_compile_config").value is not None
    }
    return {path: compiled(model, arguments_of(config)) for path, config in settings.items()}


def arguments_of(config: Any) -> dict[str, Any]:
    """Arguments for ``torch.compile`` from a dict or a ``transformers`` ``CompileConfig``."""
    given: Mapping[str, Any] = config if isinstance(config, Mapping) else config.to_dict()
    arguments = {name: given[name] for name in ACCEPTED if given.get(name) is not None}
    if arguments.get("options"):
        arguments.pop("mode", None)  # torch.compile takes one of the two
    return arguments


def is_static(config: Any) -> bool:
    """Whether a path is compiled anew for every size of its input, so that sizes have to be few."""
    return config is not None and arguments_of(config).get("dynamic") is False


def compiled(model: Any, arguments: dict[str, Any]) -> Callable[..., Any]:
    """A callable with the model's arguments. The model itself stays as it is, and so do its hooks."""
    inner = torch.compile(model.forward, **arguments)

    def call(**inputs: Any) -> Any:
        with torch._dynamo.config.patch(recompile_limit=MOST_SHAPES):
            return inner(**inputs)

    return call

"""Attention over the paged cache, one file per backend, and how a model is made to use it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engine.core.errors import ConfigError
from engine.run.attention.eager import attend as eager
from engine.run.attention.exchange import register, settings_of
from engine.run.attention.flash import attend as flash
from engine.run.attention.flash_kernels import FLASH_2, FLASH_3
from engine.run.attention.sdpa import attend as sdpa

PORTABLE: dict[str, Callable[..., torch.Tensor]] = {"eager": eager, "sdpa": sdpa}
"""Backends that run on every device and attend over batches."""

BACKENDS: dict[str, Callable[..., torch.Tensor]] = {**PORTABLE, FLASH_2: flash, FLASH_3: flash}
"""All backends; the others attend over inputs in buffers, with kernels that are given to the context."""


class AttentionSwitch:
    """Turns a model's attention into one over the paged cache, for the length of one forward pass at a time.

    Between passes the model has its own setting. A pass that others make at the same time, on another thread, gets the
    model's own attention too, because it does not bring the keyword ``paged``.
    """

    def __init__(self, model: Any, backend: str, *, apart: bool = False) -> None:
        """Check that the model's attention can be exchanged; it is left as it was.

        Args:
            apart: keep ``torch.compile`` out of it, for models that are compiled.

        Raises:
            ConfigError: the backend does not exist, or the model does not attend through the exchangeable interface.
        """
        if backend not in BACKENDS:
            raise ConfigError(f"attention backend {backend!r} is not known; choose one of {', '.join(BACKENDS)}")
        settings = settings_of(model)
        before = [config._attn_implementation for config in settings]
        self._name = register(backend, BACKENDS[backend], model.config._attn_implementation or "eager", apart=apart)
        try:
            model.set_attn_implementation(self._name)
            if model.config._attn_implementation != self._name:
                raise ConfigError(f"{type(model).__name__} does not let its attention be exchanged")
            self._settings = [config for config in settings if config._attn_implementation == self._name]
        finally:
            _assign(settings, before)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """The paged attention is on inside."""
        before = [config._attn_implementation for config in self._settings]
        _assign(self._settings, [self._name] * len(before))
        try:
            yield
        finally:
            _assign(self._settings, before)


def _assign(settings: list[Any], names: list[str | None]) -> None:
    """Parents stand before their parts, so that what a parent hands down is overwritten by the part's own value."""
    for config, name in zip(settings, names, strict=True):
        config._attn_implementation = name

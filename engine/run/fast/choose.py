"""Which forward pass runs a model on this machine, and why."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from engine.core.errors import ConfigError
from engine.core.layout import CacheLayout
from engine.run.fast import build
from engine.run.fast.build import BuildError, Compilation, Waiting, load_kernels
from engine.run.fast.native import NativeForward
from engine.run.fast.packed_modules import PackedModulesForward, packing_problem
from engine.run.fast.spec import ARCHITECTURES, UnknownModel, read_spec
from engine.run.forward import Forward, ModulesForward
from engine.run.kv_store import KVStore

Make = Callable[[CacheLayout, KVStore, str], Forward]
"""Builds a forward pass for a cache; the last argument is the attention backend of the model's modules."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A forward pass that works here.

    Attributes:
        kind: "fast" (compiled kernels), "packed" (the model's modules, oneDNN weights) or "modules".
        reason: why this one, for the configuration page.
        notice: a sentence when a quicker one was expected and is not to be had, else "".
        make: builds it.
    """

    kind: str
    reason: str
    notice: str
    make: Make


def prepare_kernels(model: Any, waiting: Waiting) -> None:
    """Compile now, with somebody watching, what ``choose_forward`` would compile for this model.

    Where that is not possible nothing happens: ``choose_forward`` says what runs instead, and why.
    """
    if model.device.type != "cpu":
        return
    with suppress(UnknownModel, BuildError):
        load_kernels(read_spec(model).dtype, waiting=waiting)


def begin_kernels(kind: str, dtype: str, waiting: Waiting | None = None) -> Compilation | None:
    """Begin to compile what a model will need that is still to be read, for ``prepare_kernels`` to find.

    Args:
        kind: ``model_type`` of its configuration. dtype: of its weights, for example "float32".
        waiting: see ``build.begin_kernels``.

    Returns:
        The compiler at work, or None when there is nothing to compile, or nothing that can be.
    """
    return build.begin_kernels(getattr(torch, dtype), waiting=waiting) if kind in ARCHITECTURES else None


def choose_forward(model: Any, wanted: str = "auto", *, compiles: bool = False) -> Choice:
    """Decide, trying what has to be tried: the kernels are compiled here on first use (a few seconds).

    Args:
        wanted: "auto" takes the quickest that works; "fast", "packed" and "modules" ask for one.
        compiles: a person asked for ``torch.compile``, which works on the model's modules.

    Raises:
        ConfigError: what was asked for cannot run this model here.
    """
    device, dtype = model.device, model.dtype

    def modules(layout: CacheLayout, store: KVStore, backend: str) -> Forward:
        return ModulesForward(model, layout, store, backend)

    def packed(layout: CacheLayout, store: KVStore, backend: str) -> Forward:
        return PackedModulesForward(model, layout, store, backend)

    if wanted == "modules":
        return Choice("modules", "user", "", modules)
    if wanted == "auto" and compiles:
        return Choice("modules", "compilation was asked for", "", modules)
    if device.type != "cpu":
        if wanted != "auto":
            raise ConfigError(f"forward={wanted!r} is for models on the CPU, this one is on {device}; use 'auto'")
        return Choice("modules", f"{device.type} model", "", modules)
    trouble = ""
    if wanted in ("auto", "fast"):
        try:
            make = _fast(model)
            return Choice("fast", "user" if wanted == "fast" else "known architecture, compiler found", "", make)
        except (UnknownModel, BuildError) as error:
            trouble = str(error)
        if wanted == "fast":
            raise ConfigError(f"forward='fast' cannot run this model here: {trouble}; use 'auto'")
    problem = packing_problem(dtype)
    if problem is None:
        return Choice("packed", "user" if wanted == "packed" else trouble, _slower(trouble), packed)
    if wanted == "packed":
        raise ConfigError(f"forward='packed' cannot run this model here: {problem}; use 'auto'")
    return Choice("modules", f"{trouble}; {problem}", _slower(trouble), modules)


def _slower(trouble: str) -> str:
    return f"the fast CPU path is off ({trouble}); the model's own modules run, which is slower" if trouble else ""


def _fast(model: Any) -> Make:
    library = load_kernels(read_spec(model).dtype)

    def make(layout: CacheLayout, store: KVStore, backend: str) -> Forward:
        return NativeForward(model, library, layout, store)

    return make

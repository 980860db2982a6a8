"""Which attention backend runs a model on its device, and why."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.run.attention.flash_kernels import (
    DTYPES,
    FLASH_2,
    FLASH_3,
    HEAD_LIMIT,
    PAGE_MULTIPLE,
    FlashKernels,
    find_kernels,
)
from engine.run.facts import ModelFacts

PORTABLE_NAMES = ("eager", "sdpa")
FLASH_NAMES = (FLASH_2, FLASH_3)
Find = Callable[[str], FlashKernels | str]


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """A backend that works here.

    Attributes:
        name: "eager", "sdpa", "flash_attention_2" or "flash_attention_3".
        reason: why this one.
        kernels: of a flash backend.
        page_multiple: tokens a page must be a multiple of.
    """

    name: str
    reason: str
    kernels: FlashKernels | None = None

    @property
    def page_multiple(self) -> int:
        return PAGE_MULTIPLE.get(self.name, 1)


def choose_attention(
    setting: str | None,
    facts: ModelFacts,
    *,
    page_size: int = 256,
    auto_switch: bool = True,
    sinks: bool = False,
    capability: tuple[int, int] | None = None,
    find: Find = find_kernels,
) -> AttentionChoice:
    """Decide by the model's own setting, the device and what is installed.

    Args:
        setting: the model's attention; "paged|sdpa" and "sdpa" are one.
        page_size: asked for. A flash backend somebody chose may change it; one that is only an improvement may not.
        auto_switch: take a flash backend instead of eager and sdpa where one can be used.
        sinks: some layer has attention sinks.
        capability: of the CUDA device, asked from it when None.
        find: looks for kernels.
    """
    name = (setting or "sdpa").rsplit("|", 1)[-1]
    if name in FLASH_NAMES:
        found = usable_kernels(name, facts, sinks, capability, find)
        if not isinstance(found, str):
            return AttentionChoice(name, f"model; {found.source}", found)
        return AttentionChoice("sdpa", f"{name} → sdpa: {found}")
    reason = "model"
    if name not in PORTABLE_NAMES:
        name, reason = "sdpa", f"{name} → sdpa: {name} is not available"
    if facts.device.type != "cuda":
        return AttentionChoice(name, reason)
    if not auto_switch:
        return AttentionChoice(name, f"{reason}; auto_switch_to_flash is off")
    troubles = []
    for better in (FLASH_3, FLASH_2):
        multiple = PAGE_MULTIPLE[better]
        if page_size % multiple:
            troubles.append(f"{better}: pages of {page_size} tokens are no multiple of {multiple}")
            continue
        found = usable_kernels(better, facts, sinks, capability, find)
        if not isinstance(found, str):
            return AttentionChoice(better, f"{name} → {better}: auto_switch_to_flash, {found.source}", found)
        troubles.append(f"{better}: {found}")
    return AttentionChoice(name, f"{reason}; no {', no '.join(troubles)}")


def usable_kernels(
    name: str, facts: ModelFacts, sinks: bool, capability: tuple[int, int] | None, find: Find
) -> FlashKernels | str:
    """The kernels of a flash backend, or in words why this model cannot have them here.

    What costs nothing is asked first: ``find`` may fetch something.
    """
    if facts.device.type != "cuda":
        return f"needs a CUDA device, this is {facts.device.type}"
    if facts.dtype not in DTYPES:
        return f"takes float16 and bfloat16, not {str(facts.dtype).removeprefix('torch.')}"
    if facts.head_dim > HEAD_LIMIT or facts.head_dim % 8:
        return f"takes heads of a multiple of 8 up to {HEAD_LIMIT} numbers, not of {facts.head_dim}"
    if sinks:
        return "takes no attention sinks"
    major, minor = capability or torch.cuda.get_device_capability(facts.device)
    if name == FLASH_3 and major != 9:
        return f"is written for compute capability 9, this device has {major}.{minor}"
    if major < 8:
        return f"needs compute capability 8 or more, this device has {major}.{minor}"
    return find(name)


def has_sinks(model: torch.nn.Module) -> bool:
    """Whether some layer has attention sinks, by the name their models give the parameter."""
    return any(name.rsplit(".", 1)[-1] == "sinks" for name, _ in model.named_parameters())

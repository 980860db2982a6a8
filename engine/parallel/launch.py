"""What the launcher says about this process, and joining the others. Importing this does not import torch."""

import datetime
import os
from dataclasses import dataclass

from engine.core.errors import ConfigError, LoadError

LOAD_TIMEOUT = datetime.timedelta(hours=2)
"""How long the ranks wait for each other until the model is loaded: one of them may download it first."""

_KEY = "cbtui/load"


@dataclass(frozen=True, slots=True)
class Launch:
    """One of ``size`` processes, ``local_size`` of them on this machine. Ranks count from 0."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @property
    def leads(self) -> bool:
        return self.rank == 0


def launched() -> Launch | None:
    """What ``torchrun`` (or another launcher with its variables) started; None for an ordinary process.

    Raises:
        ConfigError: the variables make no sense.
    """
    try:
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size <= 1:
            return None
        rank = int(os.environ["RANK"])
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    except (KeyError, ValueError) as error:
        raise ConfigError(f"WORLD_SIZE is set, but the variables of a launcher are not complete: {error}") from error
    return Launch(rank, size, local_rank, local_size)


def join(launch: Launch) -> str:
    """Connect this process to the others, unless that was done; the kind of device all of them compute on.

    Raises:
        LoadError: the device cannot be used by several processes, or the others cannot be reached.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        raise LoadError("This torch is built without torch.distributed.", "Start one process, without torchrun.")
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    kind = "cpu" if accelerator is None else accelerator.type
    if kind not in ("cpu", "cuda"):
        raise LoadError(f"A model cannot be split over {kind} devices.", "Start one process, without torchrun.")
    if dist.is_initialized():
        return kind
    try:
        if kind == "cuda":
            torch.cuda.set_device(launch.local_rank)
            device = torch.device("cuda", launch.local_rank)
            dist.init_process_group("nccl", timeout=LOAD_TIMEOUT, device_id=device)
        else:
            dist.init_process_group("gloo", timeout=LOAD_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise LoadError(f"The {launch.size} processes cannot reach each other: {error}") from error
    return kind


def say(what: str, text: str) -> None:
    """Rank 0 tells the others something about loading, once."""
    _store().set(f"{_KEY}/{what}", text)


def hear(what: str) -> str:
    """What rank 0 says about it; waits until it does, or is gone.

    Raises:
        LoadError: it is gone.
    """
    key = f"{_KEY}/{what}"
    try:
        _store().wait([key], LOAD_TIMEOUT)
        return str(_store().get(key).decode())
    except RuntimeError as error:
        raise LoadError(f"Rank 0 did not load the model: {error}") from error


def _store():  # type: ignore[no-untyped-def]
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def part() -> None:
    """Leave the other processes, if this one was connected to them."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()

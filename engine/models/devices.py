"""Device and dtype: what a person asked for, what this machine has, and the reason for the choice."""

import importlib.util
from dataclasses import dataclass

import psutil

from engine.core.errors import LoadError

DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one weight."""

NOT_APPLE = "only on Apple hardware"
_LARGE_MODEL = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Choice:
    """A value and how it came to be, for example ``Choice("cpu", "asked for")``."""

    value: str
    reason: str


def available_devices() -> dict[str, str]:
    """Every kind of device, and "" when it can be used or the reason why it cannot."""
    import torch

    if torch.cuda.is_available():
        cuda = ""
    elif torch.version.cuda is None and torch.version.hip is None:
        cuda = f"torch {torch.__version__} is built without CUDA"
    else:
        cuda = "torch finds no CUDA device or driver"
    if torch.backends.mps.is_available():
        mps = ""
    else:
        mps = NOT_APPLE if not torch.backends.mps.is_built() else "macOS refuses it"
    return {"cpu": "", "cuda": cuda, "mps": mps}


def attention_backends() -> dict[str, str]:
    """Every attention backend, and "" when it can be used here or the reason why it cannot."""
    no_cuda = available_devices()["cuda"]
    found = {"eager": "", "sdpa": ""}
    for name, module in (("flash_attention_2", "flash_attn"), ("flash_attention_3", "flash_attn_interface")):
        if no_cuda:
            found[name] = f"needs CUDA: {no_cuda}"
        elif importlib.util.find_spec(module) is None and importlib.util.find_spec("kernels") is None:
            found[name] = f"neither the package {module.replace('_', '-')} nor kernels is installed"
        else:
            found[name] = ""
    return found


def check_attention(asked: str, device: str) -> None:
    """Raises LoadError when an attention backend cannot be used on the device, with the reason."""
    reason = attention_backends().get(asked, "")
    if not reason and asked.startswith("flash") and not device.startswith("cuda"):
        reason = f"needs CUDA, and the device is {device}"
    if reason:
        raise LoadError(f"{asked} cannot be used: {reason}.", "Take --attn auto, sdpa or eager.")


def choose_device(asked: str) -> Choice:
    """The device for "auto", "cpu", "cuda", "cuda:N" or "mps".

    Raises:
        LoadError: it is not a device, or this machine does not have it.
    """
    found = available_devices()
    kind, _, index = asked.partition(":")
    if asked == "auto":
        for kind in ("cuda", "mps"):
            if not found[kind]:
                return Choice(kind, "the fastest device there is")
        is_apple = found["mps"] != NOT_APPLE  # elsewhere nobody expects MPS
        return Choice("cpu", f"{found['cuda']}; MPS: {found['mps']}" if is_apple else found["cuda"])
    if kind not in found or (index and not (kind == "cuda" and index.isdecimal())):
        raise LoadError(f"{asked!r} is not a device.", "There are auto, cpu, cuda, cuda:N and mps.")
    if found[kind]:
        raise LoadError(f"The device {asked} is not available: {found[kind]}.", "Take --device auto or cpu.")
    if index:
        import torch

        if int(index) >= torch.cuda.device_count():
            raise LoadError(f"There is no {asked}: {torch.cuda.device_count()} CUDA devices were found.")
    return Choice(asked, "asked for")


def choose_dtype(asked: str, device: str, num_parameters: int) -> Choice:
    """The dtype of the weights for "auto" or a name, after checking that they fit into the memory that is free.

    On a CPU float32: exact, and the fastest where there are no bfloat16 instructions. A large model on a CPU that has
    them, or one that fits only so, becomes bfloat16. On CUDA and MPS bfloat16 where the device computes in it, else
    float16.

    Raises:
        LoadError: an unknown name, or more weights than fit; the message has the numbers.
    """
    if asked != "auto" and asked not in DTYPES:
        raise LoadError(f"{asked!r} is not a dtype that can be used.", f"There are auto, {', '.join(DTYPES)}.")
    free = free_bytes(device)
    if asked != "auto":
        _check_room(num_parameters, asked, free, device)
        return Choice(asked, "asked for")
    choice = _auto_dtype(device, num_parameters, free)
    _check_room(num_parameters, choice.value, free, device)
    return choice


def check_download(weight_bytes: int, device: str) -> None:
    """Refuses a download that cannot be used: even at two bytes a weight, float32 files need half their size.

    Raises:
        LoadError: with both numbers.
    """
    free = free_bytes(device)
    if weight_bytes / 2 > free:
        raise LoadError(
            f"The model is too large: its files have {_gb(weight_bytes)} and {_gb(free)} is free on {device}.",
            "Take a smaller model.",
        )


def free_bytes(device: str) -> int:
    """Memory that is free on the device now, in bytes."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return int(psutil.virtual_memory().available)


def _auto_dtype(device: str, num_parameters: int, free: int) -> Choice:
    import torch

    if device.startswith("cuda"):
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Choice("bfloat16", "the device computes in bfloat16")
        return Choice("float16", "the device does not compute in bfloat16")
    if device == "mps":
        try:
            torch.zeros(1, dtype=torch.bfloat16, device="mps")
        except (TypeError, RuntimeError):
            return Choice("float16", "this macOS has no bfloat16")
        return Choice("bfloat16", "the device computes in bfloat16")
    if num_parameters * DTYPES["float32"] > free:
        return Choice("bfloat16", f"float32 needs {_gb(num_parameters * 4)} and {_gb(free)} is free")
    if num_parameters >= _LARGE_MODEL and _cpu_has_bfloat16():
        return Choice("bfloat16", "a large model, and this CPU has bfloat16 instructions")
    return Choice("float32", "exact, and fast enough for this size")


def _cpu_has_bfloat16() -> bool:
    import torch

    probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, probe, lambda: False)() for probe in probes)


def _check_room(num_parameters: int, dtype: str, free: int, device: str) -> None:
    need = num_parameters * DTYPES[dtype]
    if need > free:
        smaller = "" if DTYPES[dtype] == 2 else "Try --dtype bfloat16, or a smaller model."
        raise LoadError(
            f"The model is too large: {num_parameters / 1e6:.0f} M weights in {dtype} need {_gb(need)} and "
            f"{_gb(free)} is free on {device}.",
            smaller or "Take a smaller model, or close other programs.",
        )


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"

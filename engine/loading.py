"""From a model name to a model that can run: names, devices, dtypes, and one clear sentence for every failure."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.errors import ConfigError, LoadError
from engine.models.devices import Choice, check_attention, check_download, choose_device, choose_dtype
from engine.models.find import Place, find
from engine.models.known import KnownModel
from engine.models.opening import open_folder, open_gguf
from engine.models.progress import LoadProgress, Reporter
from engine.models.weights import check_weights, count_weights

if TYPE_CHECKING:
    from engine.parallel.loading import Together
    from engine.run.fast.build import Compilation

BESIDE = "compiling kernels"
ATTENTION = ("auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run.

    Attributes:
        model: in evaluation mode, on its device. tokenizer: of the same model.
        name: short, for display; source: the folder or file the weights came from.
        device, dtype: what was chosen and why. attn: the attention backend asked for; the model's configuration names
            what the engine will use.
        num_parameters: weights, as counted in the files.
        facts: what the engine needs to know about the model (layers, heads, windows).
        seconds: the load took.
    """

    model: Any
    tokenizer: Any
    name: str
    source: Path
    device: Choice
    dtype: Choice
    attn: str
    num_parameters: int
    facts: Any
    seconds: float


def load(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attn: str = "auto",
    trust_remote_code: bool = False,
    progress: Callable[[LoadProgress], None] | None = None,
    allow_fetch: Callable[[KnownModel], bool] | None = None,
    cache: Path | None = None,
) -> Loaded:
    """Loads a model and its tokenizer. Under ``torchrun`` each process loads its part, and all of them must call this.

    Args:
        name: a known short name, a local folder, a ``.gguf`` file, ``owner/name`` on the hub, or
            ``owner/name/file.gguf`` on the hub.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps". dtype: "auto", "float32", "bfloat16" or "float16".
        attn: "auto", "eager", "sdpa", "flash_attention_2" or "flash_attention_3".
        trust_remote_code: run Python code that comes with the model.
        progress: told about every phase; raising ``LoadCancelled`` in it stops the load.
        allow_fetch: asked before a known model is downloaded; None downloads nothing.
        cache: this program's cache folder, if not the platform's.

    Raises:
        LoadError: with one sentence that says what is wrong and one that says what to try.
        LoadCancelled: by ``progress``.
    """
    if attn not in ATTENTION:
        raise LoadError(f"{attn!r} is not an attention backend.", f"There are {', '.join(ATTENTION)}.")
    reporter = Reporter(progress)
    reporter.report("looking", f"for {name}")
    together = _together()
    chosen_device = choose_device(device) if together is None else together.device(device)
    check_attention(attn, chosen_device.value)

    def look() -> Place:
        room = None if together is not None else lambda need: check_download(need, chosen_device.value)
        return find(name, reporter, trust_remote_code, allow_fetch, cache, room=room)

    place = look() if together is None else together.place(look)
    kernels = _begin_kernels(place, chosen_device.value, dtype, reporter) if together is None else None
    with kernels or nullcontext():
        reporter.beside = BESIDE if kernels is not None else ""
        reporter.report("reading", "the configuration")
        if place.gguf:
            if together is not None:
                together.check(place, None)
            opened = open_gguf(place, chosen_device.value, dtype, attn, reporter)
        else:
            opened = open_folder(place, chosen_device.value, dtype, attn, trust_remote_code, reporter, together)
        facts = _facts(opened.model, place.name)
        reporter.beside = ""
        if together is None:
            _prepare_kernels(opened.model, reporter, kernels)
    reporter.report("ready", f"{place.name} on {chosen_device.value} in {opened.dtype.value}", 1.0)
    return Loaded(
        model=opened.model,
        tokenizer=opened.tokenizer,
        name=place.name,
        source=place.path,
        device=chosen_device,
        dtype=opened.dtype,
        attn=attn,
        num_parameters=opened.num_parameters,
        facts=facts,
        seconds=reporter.seconds,
    )


def _together() -> "Together | None":
    """What loads a model in parts, when a launcher started several processes."""
    from engine.parallel.launch import launched

    launch = launched()
    if launch is None:
        return None
    from engine.parallel.loading import Together

    return Together(launch)


def chat_prompt(tokenizer: Any, text: str, enabled: bool = True) -> list[int]:
    """Token ids of one prompt, as a user's turn of the tokenizer's chat template when it has one and ``enabled``.

    The template writes its own special tokens, so none are added around it. A prompt that is too long is told by
    whoever takes it, so the tokenizer does not (``verbose``).
    """
    if enabled and getattr(tokenizer, "chat_template", None):
        turns = [{"role": "user", "content": text}]
        rendered = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return list(tokenizer(rendered, add_special_tokens=False, verbose=False)["input_ids"])
    return list(tokenizer(text, verbose=False)["input_ids"])


def _begin_kernels(place: Place, device: str, dtype: str, reporter: Reporter) -> "Compilation | None":
    """The first start on a machine compiles the kernels for its processor; it begins before the weights are read.

    Whatever is wrong with the folder is told by what reads it: here nothing begins then. Nor does it for a GGUF file.
    """
    from engine.run.fast.choose import begin_kernels

    if device != "cpu":
        return None
    try:
        kind = json.loads((place.path / "config.json").read_text(encoding="utf-8"))["model_type"]
        chosen = choose_dtype(dtype, device, count_weights(check_weights(place.path)))
    except (OSError, ValueError, LookupError, TypeError, LoadError):
        return None
    return begin_kernels(kind, chosen.value, reporter.repeat)


def _prepare_kernels(model: Any, reporter: Reporter, begun: "Compilation | None") -> None:
    """Waits for the kernels that were begun, and compiles what is still missing.

    A compiler that fails is not told here: ``choose_forward`` says what runs instead, and why.
    """
    from engine.run.fast.build import BuildError
    from engine.run.fast.choose import prepare_kernels

    def waiting() -> None:
        reporter.report("compiling", "the CPU kernels: once, later starts find them")

    if begun is not None:
        try:
            begun.finish(waiting)
        except BuildError:
            return
    prepare_kernels(model, waiting)


def _facts(model: Any, name: str) -> Any:
    """What the engine must know of the model; a layer it cannot run is told now, not at the first request."""
    from engine.run.facts import inspect_model

    try:
        return inspect_model(model)
    except ConfigError as error:
        raise LoadError(f"{name} cannot be run: {error}", "Take another model.") from error

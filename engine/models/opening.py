"""A place that was found, opened: config, tokenizer and weights, with every way that fails told in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.core.errors import LoadError
from engine.models.devices import Choice, choose_dtype
from engine.models.find import Place
from engine.models.gguf_header import read_header
from engine.models.progress import Reporter
from engine.models.weights import check_weights, count_weights, quiet_transformers, read_folder, read_gguf

if TYPE_CHECKING:
    from engine.parallel.loading import Together


@dataclass(frozen=True, slots=True)
class Opened:
    """Model, tokenizer, the dtype chosen, and the number of weights counted in the files."""

    model: Any
    tokenizer: Any
    dtype: Choice
    num_parameters: int


def open_gguf(place: Place, device: str, dtype: str, attn: str, reporter: Reporter) -> Opened:
    """A GGUF file, dequantised. Raises ``LoadError``."""
    header = read_header(place.path)
    if not header.has_tokenizer:
        raise LoadError(f"{place.path} has no tokenizer in it.", "Take a GGUF file that was made with one.")
    chosen = choose_dtype(dtype, device, header.num_parameters)
    detail = f"{_millions(header.num_parameters)} weights as {chosen.value}"
    reporter.report("reading", detail)
    with _no_memory(place, device), quiet_transformers(reporter, detail):
        try:
            model, tokenizer = read_gguf(place.path, chosen.value, device, attn)
        except (ValueError, KeyError, OSError, ImportError, NotImplementedError) as error:
            raise LoadError(
                f"{place.path} cannot be read as GGUF of architecture {header.architecture!r}: {_short(error)}",
                "Take the safetensors version of the model.",
            ) from error
    return Opened(model, tokenizer, chosen, header.num_parameters)


def open_folder(
    place: Place,
    device: str,
    dtype: str,
    attn: str,
    trust_remote_code: bool,
    reporter: Reporter,
    together: "Together | None" = None,
) -> Opened:
    """A folder with config, tokenizer and safetensors weights, or this rank's part of it. Raises ``LoadError``."""
    config = _config(place, trust_remote_code)
    num_parameters = count_weights(check_weights(place.path))
    if together is None:
        chosen, placed = choose_dtype(dtype, device, num_parameters), None
    else:
        together.check(place, config)
        share = together.weights_here(num_parameters)
        chosen, placed = together.dtype(lambda: choose_dtype(dtype, device, share)), together.placed()
    reporter.report("reading", "the tokenizer")
    tokenizer = _tokenizer(place, trust_remote_code)
    detail = f"{_millions(num_parameters)} weights as {chosen.value}"
    reporter.report("reading", detail)
    with _no_memory(place, device), quiet_transformers(reporter, detail):
        try:
            model = read_folder(place.path, chosen.value, device, attn, config, trust_remote_code, placed)
        except (ValueError, KeyError, OSError, ImportError, NotImplementedError) as error:
            raise LoadError(f"The weights in {place.path} cannot be read: {_short(error)}") from error
    return Opened(model, tokenizer, chosen, num_parameters)


def _config(place: Place, trust_remote_code: bool) -> Any:
    """The model's configuration, if it is a decoder that writes text."""
    import transformers
    from transformers import AutoConfig

    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(place.path, trust_remote_code=trust_remote_code, local_files_only=True)
    except (ValueError, KeyError, OSError, ImportError) as error:
        text = _short(error)
        if "trust_remote_code" in str(error):
            raise LoadError(
                f"{place.name} brings its own Python code, which is not run unless you say so.",
                "If you trust it, add --trust-remote-code.",
            ) from error
        if "model type" in str(error) or "model_type" in str(error):
            raise LoadError(
                f"{place.name} has an architecture that transformers {transformers.__version__} does not know: {text}",
                "A newer transformers may know it; else take another model.",
            ) from error
        raise LoadError(f"The config.json of {place.path} cannot be read: {text}") from error
    _check_decoder(place, config)
    return config


def _check_decoder(place: Place, config: Any) -> None:
    from transformers import AutoModelForCausalLM

    kind = getattr(config, "model_type", type(config).__name__)
    if getattr(config, "is_encoder_decoder", False):
        raise LoadError(
            f"{place.name} is an encoder-decoder ({kind}); only decoder-only models can be run.", "Take another model."
        )
    own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in AutoModelForCausalLM._model_mapping and not own_code:
        raise LoadError(
            f"{place.name} ({kind}) is not a model that writes text.", "Take a decoder-only language model."
        )


def _tokenizer(place: Place, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(place.path, trust_remote_code=trust_remote_code, local_files_only=True)
    except (ValueError, KeyError, OSError, ImportError, AttributeError, TypeError) as error:
        # transformers fails in all these ways when the files are missing or made for another class
        raise LoadError(
            f"{place.path} has no tokenizer that can be read: {_short(error)}",
            "Copy the tokenizer files of the original model into it.",
        ) from error


@contextmanager
def _no_memory(place: Place, device: str) -> Iterator[None]:
    """Running out of memory in spite of the check before becomes a ``LoadError``."""
    import torch

    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise _too_large(place, device, error) from error
    except RuntimeError as error:
        if "memory" not in str(error):
            raise LoadError(f"{place.name} cannot be loaded on {device}: {_short(error)}") from error
        raise _too_large(place, device, error) from error


def _too_large(place: Place, device: str, error: BaseException) -> LoadError:
    return LoadError(
        f"{place.name} is too large for {device}: {_short(error) or 'out of memory'}",
        "Try --dtype bfloat16, --device cpu, or a smaller model.",
    )


def _millions(count: int) -> str:
    return f"{count / 1e6:,.1f} M" if count >= 100_000 else f"{count:,}"


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 240 else text[:239] + "…"

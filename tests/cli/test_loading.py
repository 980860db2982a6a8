"""Names become models; every failure is one sentence with what to try."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch

from cbtui.prompts import counts
from engine.core.errors import LoadError
from engine.loading import chat_prompt, load
from engine.models import LoadCancelled, LoadProgress
from engine.models import devices as device_choices
from engine.models.devices import check_download, choose_device, choose_dtype
from tests.cli.tiny_files import make_folder, make_gguf, make_tokenizer


def failure(name: object, **options: object) -> str:
    """The text of the LoadError that loading ``name`` ends with."""
    with pytest.raises(LoadError) as caught:
        load(str(name), **options)  # type: ignore[arg-type]
    assert caught.value.message.endswith((".", ")")) or ":" in caught.value.message
    return str(caught.value)


def copy_of(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target))


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def test_a_folder_is_loaded_with_everything_that_was_decided(tiny_folder: Path) -> None:
    reports: list[LoadProgress] = []
    loaded = load(str(tiny_folder), progress=reports.append)
    assert (loaded.name, loaded.source, loaded.attn) == ("tiny-llama", tiny_folder, "auto")
    assert loaded.num_parameters == sum(p.numel() for p in loaded.model.parameters())
    assert loaded.model.dtype == torch.float32 and not loaded.model.training
    assert loaded.dtype.value == "float32" and loaded.dtype.reason
    assert loaded.device.value == ("cuda" if torch.cuda.is_available() else "cpu") and loaded.device.reason
    phases = list(dict.fromkeys(report.phase for report in reports if report.phase != "compiling"))  # the first start
    assert phases == ["looking", "reading", "ready"]
    assert [report.seconds for report in reports] == sorted(report.seconds for report in reports)
    shares = [report.fraction for report in reports if report.phase == "reading" and report.fraction is not None]
    assert shares and shares[-1] == 1.0


def test_a_gguf_file_is_dequantised_and_brings_its_tokenizer(
    tiny_gguf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loaded = load(str(tiny_gguf), dtype="bfloat16", device="cpu")
    assert loaded.name == "tiny" and loaded.model.dtype == torch.bfloat16
    assert loaded.num_parameters == sum(p.numel() for p in loaded.model.parameters())
    assert loaded.tokenizer.decode(loaded.tokenizer("ten")["input_ids"]) == "ten"
    assert capfd.readouterr().err == ""  # no progress bar of a library gets through


def test_a_folder_with_one_gguf_file_is_that_file(tiny_gguf: Path) -> None:
    assert load(str(tiny_gguf.parent)).source == tiny_gguf


def test_progress_can_stop_a_load_in_the_middle_of_reading(tiny_folder: Path) -> None:
    def stop(report: LoadProgress) -> None:
        if report.phase == "reading" and (report.fraction or 0) > 0.2:
            raise LoadCancelled

    with pytest.raises(LoadCancelled):
        load(str(tiny_folder), progress=stop)
    assert load(str(tiny_folder)).name == "tiny-llama"  # the hooks in transformers were taken out again


def test_the_chat_template_is_used_unless_switched_off() -> None:
    tokenizer = make_tokenizer()
    assert tokenizer.decode(chat_prompt(tokenizer, "hi")) == "<hi>"
    assert tokenizer.decode(chat_prompt(tokenizer, "hi", False)) == "hi"
    tokenizer.chat_template = None
    assert tokenizer.decode(chat_prompt(tokenizer, "hi")) == "hi"


def test_a_long_prompt_is_not_told_by_its_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes it says what is wrong, and what to do; here it may not be wrong at all."""
    said: list[str] = []
    listener = logging.Handler()
    monkeypatch.setattr(listener, "emit", lambda record: said.append(record.getMessage()))
    monkeypatch.setattr(logging.getLogger("transformers"), "handlers", [listener])
    for chat in (True, False):
        for turn in (chat_prompt, counts):
            tokenizer = make_tokenizer()
            tokenizer.model_max_length = 8
            turn(tokenizer, "more than eight characters", chat)
            assert said == []
    tokenizer("more than eight characters")
    assert "longer than" in said[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./nowhere", "no file or folder ./nowhere"),
        ("/nowhere/model.gguf", "no file or folder"),
        ("model.gguf", "no file or folder"),
        ("we ird", "no file or folder"),
        ("a/b/c", "no file or folder"),
        ("tests/nothing-here", "no file or folder"),
        ("owner/name", "not complete in the local hub cache"),
        ("owner/name/file.gguf", "not complete in the local hub cache"),
        ("smollm", "Did you mean smollm2?"),
    ],
)
def test_names_that_lead_nowhere(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert said in failure(name)


def test_a_known_model_is_not_downloaded_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.models.hub.cached_folder", lambda name: None)
    asked = []
    for allow in (None, lambda known: bool(asked.append(known.name))):
        said = failure("smollm2", cache=tmp_path, allow_fetch=allow)
        assert "93 MB" in said and "cbtui models fetch smollm2" in said
    assert asked == ["smollm2"]


def test_files_and_folders_that_are_not_models(tmp_path: Path, tiny_gguf: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "not a GGUF file" in failure(tmp_path / "notes.txt")
    assert "not a model: it has no config.json" in failure(tmp_path)
    (tmp_path / "page.gguf").write_text("<html>not found</html>")
    assert "does not start with the letters GGUF" in failure(tmp_path / "page.gguf")
    shutil.copy(tiny_gguf, tmp_path / "other.gguf")
    assert "holds 2 GGUF files" in failure(tmp_path)


def test_a_folder_without_usable_weights(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_folder, tmp_path / "model")
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-100])
    assert "damaged or not complete" in failure(folder)
    weights.write_bytes(b"\xff" * 64)
    assert "damaged or not complete" in failure(folder)
    weights.unlink()
    assert "no weights" in failure(folder)
    (folder / "pytorch_model.bin").write_bytes(b"anything")
    said = failure(folder)
    assert "pickled weights only" in said and "safetensors" in said
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "lacks 2 of 2 weight files" in failure(folder)


def test_configurations_that_cannot_be_run(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_folder, tmp_path / "model")
    edit_config(folder, model_type="nobody-knows-me")
    said = failure(folder)
    assert "nobody-knows-me" in said and "does not know" in said
    edit_config(folder, model_type="t5", d_model=32, num_layers=2, num_heads=4)
    assert "encoder-decoder" in failure(folder)
    edit_config(folder, model_type="vit")
    assert "not a model that writes text" in failure(folder)
    edit_config(folder, model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})
    assert "--trust-remote-code" in failure(folder)
    (folder / "config.json").write_text("{ not json")
    assert "config.json" in failure(folder)


def test_a_folder_without_a_tokenizer(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_folder, tmp_path / "model")
    for file in folder.glob("*token*"):
        file.unlink()
    said = failure(folder)
    assert "no tokenizer" in said and "Copy the tokenizer files" in said


def test_gguf_files_that_cannot_be_run(tmp_path: Path, tiny_gguf: Path) -> None:
    strange = make_gguf(tmp_path / "strange.gguf", "nobodyknowsme")
    assert "'nobodyknowsme'" in failure(strange)
    assert "no tokenizer" in failure(make_gguf(tmp_path / "mute.gguf", tokenizer=False))
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_gguf.read_bytes()[:600])
    assert "damaged" in failure(cut)


def test_wrong_values_name_what_there_is(tiny_folder: Path) -> None:
    assert "auto, float32, bfloat16, float16" in failure(tiny_folder, dtype="int8")
    assert "auto, cpu, cuda, cuda:N and mps" in failure(tiny_folder, device="tpu")
    assert "eager, sdpa" in failure(tiny_folder, attn="magic")


def test_an_attention_backend_that_cannot_be_used(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "flash_attention_2 cannot be used: needs CUDA" in failure(
        tiny_folder, attn="flash_attention_2", device="cpu"
    )
    monkeypatch.setattr(device_choices, "available_devices", lambda: {"cpu": "", "cuda": "", "mps": "none"})
    monkeypatch.setattr(device_choices.importlib.util, "find_spec", lambda name: None)
    missing = r"neither the package flash-attn nor kernels is installed\..*Take --attn auto, sdpa or eager"
    with pytest.raises(LoadError, match=missing):
        device_choices.check_attention("flash_attention_2", "cuda")


@pytest.mark.parametrize("attn", ["auto", "eager", "sdpa"])
def test_a_model_without_sdpa_in_transformers_is_loaded_for_it(attn: str, tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path / "gemma2", "gemma2")), attn=attn).model
    assert model.config._attn_implementation == {"auto": "eager"}.get(attn, attn)


def test_a_device_that_is_not_there_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        device_choices, "available_devices", lambda: {"cpu": "", "cuda": "no driver", "mps": "only on Apple hardware"}
    )
    with pytest.raises(LoadError, match=r"cuda is not available: no driver\. Take --device auto or cpu"):
        choose_device("cuda")
    assert "no driver" in choose_device("auto").reason


def test_a_model_that_does_not_fit_is_told_with_both_numbers(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_choices, "free_bytes", lambda device: 6_000_000_000)
    with pytest.raises(LoadError, match=r"2000 M weights in float32 need 8\.0 GB and 6\.0 GB is free on cpu.*bfloat16"):
        choose_dtype("float32", "cpu", 2_000_000_000)
    assert choose_dtype("auto", "cpu", 2_000_000_000).value == "bfloat16"
    with pytest.raises(LoadError, match="too large"):
        choose_dtype("auto", "cpu", 4_000_000_000)
    with pytest.raises(LoadError, match="too large: its files have"):
        check_download(13_000_000_000, "cpu")
    check_download(11_000_000_000, "cpu")
    assert choose_dtype("auto", "cpu", 100_000_000).value == "float32"
    monkeypatch.setattr(device_choices, "free_bytes", lambda device: 1000)
    assert "too large" in failure(tiny_folder)

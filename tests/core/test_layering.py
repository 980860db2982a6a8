"""Who may import whom. Read from the source, so that an import inside a function counts too."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "transformers", "numpy", "safetensors", "accelerate", "psutil"}
IMPURE = {"threading", "time", "asyncio", "queue", "concurrent", "multiprocessing", "random", "os", "datetime"}
SEEN = ("observe", "counters", "request", "layout", "errors", "forecast", "config", "options")
PANES = ("cbtui/widgets", "cbtui/view")


def imports(path: Path) -> set[str]:
    """Full names of everything a file imports, at any depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("path", files("engine/core"), ids=lambda p: p.name)
def test_the_core_is_pure(path: Path) -> None:
    for name in imports(path):
        assert name.split(".")[0] not in HEAVY | IMPURE, f"{path.name} imports {name}"
        assert not within(name, "cbtui")
        assert not within(name, "engine") or within(name, "engine.core"), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", [p for f in PANES for p in files(f)], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_panes_draw_records_and_know_nothing_of_what_made_them(path: Path) -> None:
    allowed = {f"engine.core.{name}" for name in SEEN}
    for name in imports(path):
        assert name.split(".")[0] not in HEAVY, f"{path.name} imports {name}"
        assert not within(name, "engine") or any(within(name, a) for a in allowed), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", files("cbtui"), ids=lambda p: p.name)
def test_the_monitor_never_reaches_into_the_running_of_models(path: Path) -> None:
    assert not any(within(name, "engine.run") for name in imports(path))


def test_the_walk_sees_the_files_it_is_meant_for() -> None:
    names = {path.name for path in files("engine/core")}
    assert {"scheduler.py", "cache.py", "fold.py", "request.py"} <= names
    assert "typing.NamedTuple" in imports(ROOT / "engine/core/outcome.py")


def test_nothing_in_the_core_is_kept_in_a_module() -> None:
    """No module-level list, dict or set that somebody could change, and no ``global``."""
    for path in files("engine/core"):
        tree = ast.parse(path.read_text())
        assert not any(isinstance(node, ast.Global) for node in ast.walk(tree)), path
        for node in tree.body:
            value = getattr(node, "value", None)
            name = ast.unparse(node).split("=")[0].split(":")[0].strip() if value is not None else ""
            if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
                assert name == "__all__" or name.isupper() or name.lstrip("_").isupper(), f"{path.name}: {name}"

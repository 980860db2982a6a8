"""``cbtui bench``: every case is measured and shown; how quick it was is not judged."""

import json

import pytest

from cbtui import bench
from cbtui.bench import Case, percentile
from cbtui.options import MODEL_OPTIONS, REQUEST_OPTIONS, engine_options, read_choices
from cbtui.start import load_model, plan_engine


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(bench, "CASES", (Case(1, 4, 3), Case(3, 6, 2), Case(1, 100_000, 2)))


def test_a_table_with_a_row_per_case_that_the_model_can_hold(here, tiny_folder):
    result = here("bench", "--model", tiny_folder)
    assert result.returncode == 0, result.stderr
    first, _, *rows = result.stdout.splitlines()
    assert "threads, forward=" in first and "ready after" in first
    assert [row.split()[:3] for row in rows] == [["1", "4", "3"], ["3", "6", "2"]]
    assert all(float(number) > 0 for row in rows for number in row.split()[:5])


def test_json_says_the_same(here, tiny_folder):
    result = here("bench", "--model", tiny_folder, "--json", "--forward", "modules")
    found = json.loads(result.stdout)
    assert found["forward"] == "modules" and found["dtype"] == "float32" and found["memory_mib"] > 0
    assert [(r["rows"], r["prompt_tokens"], r["new_tokens"]) for r in found["results"]] == [(1, 4, 3), (3, 6, 2)]
    assert all(r["tokens_per_s"] > 0 and r["gap_p95_ms"] >= r["gap_p50_ms"] >= 0 for r in found["results"])


def test_a_configuration_that_is_not_possible_is_told(here, tiny_folder):
    assert here("bench", "--model", tiny_folder, "--page-size", "2").returncode == 2


def test_percentile():
    values = [float(i) for i in range(100)]
    assert [percentile(values, share) for share in (0, 0.5, 0.95, 1)] == [0, 50, 95, 99]
    assert percentile([7.0], 0.95) == 7.0


def test_it_is_ready_once_the_model_is_loaded_too(monkeypatch, capsys, tiny_folder):
    """A clock that only goes on while something is loaded or built."""
    now = [100.0]

    def load(*given):
        now[0] += 5.0
        return load_model(*given)

    def plan(*given):
        now[0] += 2.0
        return plan_engine(*given)

    monkeypatch.setattr(bench, "load_model", load)
    monkeypatch.setattr(bench, "plan_engine", plan)
    monkeypatch.setattr(bench, "CASES", ())
    names = (parameter.name for parameter in (*MODEL_OPTIONS, *REQUEST_OPTIONS, *engine_options()))
    choices = read_choices({**dict.fromkeys(names), "model": str(tiny_folder), "seed": None})
    assert bench.bench(choices, as_json=True, clock=lambda: now[0]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["load_s"], found["ready_s"]) == (5.0, 7.0)

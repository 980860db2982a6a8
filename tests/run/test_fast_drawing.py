"""Tokens drawn by the kernels are those PyTorch draws: the same noise, the same filters, whatever is asked for."""

import itertools
import math
from typing import Any

import pytest
import torch

from engine.core.request import SamplingParams
from engine.run.fast.build import load_kernels
from engine.run.fast.drawing import Drawing
from engine.run.fast.team import Team
from engine.run.noise import step_key
from engine.run.sampler import draw_rows
from tests.run.fast_tools import model_of, need_kernels, run

FILTERS: list[dict[str, Any]] = [
    {},
    {"top_k": 1},
    {"top_k": 50},
    {"top_k": 10_000},
    {"top_p": 0.5},
    {"top_p": 0.95},
    {"top_p": 0.0001},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"top_k": 40, "top_p": 0.8},
    {"top_k": 40, "min_p": 0.1},
    {"top_p": 0.9, "min_p": 0.02},
    {"top_k": 300, "top_p": 0.97, "min_p": 0.001},
]


@pytest.fixture(scope="module")
def native() -> Any:
    need_kernels(torch.float32)
    library = load_kernels(torch.float32)
    team = Team(library)
    yield Drawing(library, team)
    team.close()


def logits_like(kind: str, rows: int, vocabulary: int) -> torch.Tensor:
    made = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    if kind == "flat":
        return 0.01 * made
    if kind == "tied":
        return made.mul(2).round()  # a handful of values, each many times
    if kind == "rising":
        return made.sort(-1).values * 3  # every block has better ones than the block before
    made *= 2.5
    made[:, vocabulary // 2] += 8
    return made


def drawn(how: Any, logits: torch.Tensor, params: SamplingParams, rows: list[int] | None = None) -> list[int]:
    rows = rows if rows is not None else list(range(len(logits)))
    keys = [step_key(17 * row, row) for row in rows]
    return how(logits.clone(), rows, [params] * len(rows), keys).tolist()


@pytest.mark.parametrize("vocabulary", [1, 7, 97, 1000, 49_152])
@pytest.mark.parametrize("kind", ["peaked", "flat", "tied", "rising"])
def test_the_same_tokens_as_pytorch(native, kind, vocabulary):
    logits = logits_like(kind, 6, vocabulary)
    for fields, temperature in itertools.product(FILTERS, (0.3, 1.0, 1.7)):
        params = SamplingParams(do_sample=True, temperature=temperature, **fields)
        assert drawn(native, logits, params) == drawn(draw_rows, logits, params), (fields, temperature)


def test_each_row_by_its_own_parameters_and_only_the_rows_asked_for(native):
    logits = logits_like("peaked", 9, 500)
    rows = [7, 0, 4]
    wishes: list[dict[str, Any]] = [{"top_k": 3}, {"temperature": 1.5}, {"top_p": 0.7}]
    params = [SamplingParams(do_sample=True, **fields) for fields in wishes]
    keys = [step_key(row, 3) for row in rows]
    assert native(logits, rows, params, keys).tolist() == draw_rows(logits, rows, params, keys).tolist()


def test_rows_that_lie_apart(native):
    """Logits of the fast pass have a padded row; what lies behind it must not be drawn."""
    wide = torch.full((5, 130), math.inf)
    wide[:, :100] = logits_like("flat", 5, 100)
    params = SamplingParams(do_sample=True)
    found = native(wide[:, :100], list(range(5)), [params] * 5, [step_key(i, 0) for i in range(5)]).tolist()
    assert found == draw_rows(wide[:, :100], list(range(5)), [params] * 5, [step_key(i, 0) for i in range(5)]).tolist()


def test_banned_tokens_are_never_drawn(native):
    logits = torch.zeros(200, 300)
    logits[:, 5:] = -math.inf
    for fields in FILTERS:
        assert max(drawn(native, logits, SamplingParams(do_sample=True, **fields))) < 5


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_rows_without_a_finite_peak_end_and_leave_the_others_alone(native, value):
    logits = logits_like("peaked", 3, 1000)
    logits[1] = value
    for fields in FILTERS:
        params = SamplingParams(do_sample=True, **fields)
        found, expected = drawn(native, logits, params), drawn(draw_rows, logits, params)
        assert (found[0], found[2]) == (expected[0], expected[2])
        assert 0 <= found[1] < 1000


def test_frequencies_are_the_softmax(native):
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    draws = 20_000
    keys = [step_key(5, position) for position in range(draws)]
    found = native(logits, [0] * draws, [SamplingParams(do_sample=True)] * draws, keys)
    shares = torch.bincount(found, minlength=4) / draws
    assert (shares - logits.softmax(-1)[0]).abs().max() < 5 * math.sqrt(0.25 / draws)


@pytest.mark.parametrize("fields", [{}, {"top_k": 20, "top_p": 0.9}, {"min_p": 0.1}, {"repetition_penalty": 1.3}])
def test_requests_draw_the_same_text_on_every_forward_pass(fields):
    need_kernels(torch.float32)
    model = model_of("llama")
    prompts = [[5, 6, 7], [9, 8, 7, 6, 5], [3]]
    sampling = SamplingParams(do_sample=True, temperature=0.9, seed=11, **fields)
    texts = [run(model, prompts, 12, wanted, sampling=sampling)[0] for wanted in ("fast", "modules")]
    assert texts[0] == texts[1]

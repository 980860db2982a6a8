"""Compiled paths give what the modules give, and sizes are rounded where every size would be compiled anew.

Most tests trace with PyTorch's own compiler front and run what was traced as it is (``backend="eager"``); one of the
longer profile goes through the whole compiler.
"""

import random
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import CompileConfig

from engine import ContinuousBatchingConfig, Engine
from engine.core.request import Request
from engine.run.compiled import arguments_of, compiled, is_static
from engine.run.forward import ModulesForward
from engine.run.shapes import DECODE, PATHS, VARLEN, Shapes
from tests.engine.test_same_text import BASE, tokens_of, workload
from tests.run.drive import drive, output
from tests.run.static_tools import CallRecorder, parts_of, static_forward
from tests.tiny import reference, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:max_requests_per_batch")

TRACED = {"backend": "eager", "dynamic": True}
STATIC = {"backend": "eager", "dynamic": False}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def test_arguments_come_from_dicts_and_from_compile_configs():
    assert arguments_of({"mode": "default", "dynamic": True, "unknown": 3}) == {"mode": "default", "dynamic": True}
    config = CompileConfig(mode="max-autotune-no-cudagraphs", dynamic=False)
    assert arguments_of(config) == {
        "fullgraph": False, "dynamic": False, "backend": "inductor", "mode": "max-autotune-no-cudagraphs",
    }  # fmt: skip
    assert arguments_of({"mode": "default", "options": {"max_autotune": True}}) == {"options": {"max_autotune": True}}
    assert is_static(config) and not is_static(None) and not is_static({"dynamic": True}) and not is_static({})


@pytest.mark.parametrize(
    "config",
    [
        {"decode_compile_config": TRACED},
        pytest.param({"varlen_compile_config": TRACED, "decode_compile_config": TRACED}, marks=pytest.mark.slow),
        pytest.param(
            {"varlen_compile_config": STATIC, "decode_compile_config": STATIC, "q_padding_interval_size": 16},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["decode only", "any size", "few sizes"],
)
def test_compiled_steps_give_the_same_tokens(config):
    model = tiny_model("mistral", num_hidden_layers=1)
    wishes = workload(3, 2)
    expected = tokens_of(model, wishes)
    assert counters["stats"]["unique_graphs"] == 0
    got = tokens_of(model, wishes, arrivals=random.Random(3), max_batch_tokens=24, **config)
    assert got == expected
    assert counters["stats"]["unique_graphs"] > 0


@pytest.mark.slow
def test_after_the_warmup_nothing_is_compiled_again():
    engine = Engine(
        tiny_model("llama", num_hidden_layers=1),
        config=ContinuousBatchingConfig(**{**BASE, "varlen_compile_config": TRACED, "decode_compile_config": TRACED}),
    )
    told = []
    engine.warmup(lambda done, total: told.append((done, total)))
    assert told == [(n, 6) for n in range(7)]
    before = counters["stats"]["unique_graphs"]
    assert before > 0
    for wish in workload(1, 8):
        engine.submit(wish.prompt, wish.name, **wish.options)
    engine.run_until_idle()
    assert counters["stats"]["unique_graphs"] == before
    engine.close()


def test_more_sizes_than_pytorch_keeps_by_itself():
    call = compiled(SimpleNamespace(forward=lambda values: values * 2 + 1), STATIC)
    for size in range(2, 22):
        assert call(values=torch.ones(size)).tolist() == [3.0] * size
    assert counters["stats"]["unique_graphs"] == 20, "by itself PyTorch gives up after 8"


def test_the_model_stays_as_it_is():
    model = tiny_model("llama", num_hidden_layers=1)
    before = dict(vars(model))
    call = compiled(model, {"backend": "eager"})
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        torch.testing.assert_close(call(input_ids=ids).logits, model(input_ids=ids).logits)
    assert vars(model).keys() == before.keys()


@pytest.mark.slow
@pytest.mark.parametrize("graphed", [(), PATHS])
def test_the_flash_decode_path_is_compiled_too(graphed):
    model = tiny_model("mistral", num_hidden_layers=1)
    layout, store = parts_of(model)
    forward = static_forward(
        model, layout, store, graphed=graphed, recorder=CallRecorder(),
        compiled={DECODE: compiled(model, TRACED)},
    )  # fmt: skip
    prompts = [[5, 9, 3], list(range(1, 18))]
    ended = drive(
        model, [Request(f"r{i}", tuple(p), max_new_tokens=9) for i, p in enumerate(prompts)],
        runner_options={"forward": forward, "store": store},
    )  # fmt: skip
    assert [output(ended[f"r{i}"]) for i in range(2)] == [reference(model, prompt, 9) for prompt in prompts]
    assert counters["stats"]["unique_graphs"] > 0


def test_padding_reaches_the_modules_and_not_the_result():
    model = tiny_model("mistral")
    layout, store = parts_of(model)
    shapes = Shapes(
        layout, max_tokens=64, max_rows=16, max_keys=160, decode_pages=40, padded=frozenset((VARLEN, DECODE)),
        q_interval=8,
    )  # fmt: skip
    seen: set[int] = set()

    def spy(**inputs):
        seen.add(inputs["input_ids"].shape[1])
        return model(**inputs)

    forward = ModulesForward(model, layout, store, "sdpa", compiled={VARLEN: spy, DECODE: spy}, shapes=shapes)
    prompts = [[5, 9, 3], list(range(1, 18)), [4] * 9]
    ended = drive(
        model, [Request(f"r{i}", tuple(p), max_new_tokens=9) for i, p in enumerate(prompts)], budget=20,
        runner_options={"forward": forward, "store": store},
    )  # fmt: skip
    assert [output(ended[f"r{i}"]) for i in range(3)] == [reference(model, prompt, 9) for prompt in prompts]
    assert seen <= {1, 2, 4, 8, 16, 24}


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 3])
def test_a_level_goes_through_the_whole_compiler(level):
    model = tiny_model("llama", num_hidden_layers=1)
    wishes = workload(0, 6)
    expected = tokens_of(model, wishes)
    got = tokens_of(
        model, wishes, default_compile_level=level, q_padding_interval_size=32, max_requests_per_batch=4
    )
    assert got == expected
    assert counters["inductor"], "the compiler itself was at work"

"""Asynchronous batching: while a step runs the next one is planned, and nobody can tell from the results."""

import random
from typing import Any

import pytest

from engine import ContinuousBatchingConfig, Engine
from engine.blueprint import Blueprint
from engine.core.invariants import check
from tests.engine.fakes import CharTokenizer
from tests.engine.test_same_text import BASE, Wish, tokens_of, workload
from tests.run.late import LateRunner
from tests.tiny import VOCAB, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:max_requests_per_batch")

TIGHT = {"page_size": 4, "num_blocks": 14, "safety_margin": 0.0, "max_batch_tokens": 9}
SETTINGS: dict[str, dict[str, Any]] = {
    "plenty of room": {"max_batch_tokens": 16},
    "prefill first": {"scheduler_type": "prefill_first", "max_batch_tokens": 16},
    "recomputed": TIGHT,
    "offloaded": {**TIGHT, "cpu_offload_space": 0.001},
    "recomputed, prefill first": {**TIGHT, "scheduler_type": "prefill_first"},
    "offloaded, prefill first": {**TIGHT, "scheduler_type": "prefill_first", "cpu_offload_space": 0.001},
    "few rows": {"max_requests_per_batch": 2},
    "modules": {"forward": "modules", "max_batch_tokens": 16},
}


def late(made: list[LateRunner]) -> Any:
    """Builds a late runner for an engine and leaves it in ``made``."""

    def build(blueprint: Blueprint) -> LateRunner:
        made.append(LateRunner(blueprint.make_runner(None)))
        return made[-1]

    return build


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def in_step(model):
    return tokens_of(model, workload(5, 16))


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_late_device_gives_the_same_tokens(model, in_step, setting):
    made: list[LateRunner] = []
    rng = random.Random(setting)
    wishes = workload(5, 16)
    config = {**SETTINGS[setting], "use_async_batching": True}
    assert tokens_of(model, wishes, arrivals=rng, runner=late(made), **config) == in_step
    assert made[0].most == 2


def test_without_async_batching_a_late_device_is_waited_for(model, in_step):
    made: list[LateRunner] = []
    assert tokens_of(model, workload(5, 16), runner=late(made)) == in_step
    assert made[0].most == 1


class Session:
    """An engine over a late device, stepped by hand."""

    def __init__(self, model: Any, **config: Any) -> None:
        self.made: list[LateRunner] = []
        tokenizer = CharTokenizer([chr(ord("a") + i % 26) for i in range(VOCAB)])
        settings = ContinuousBatchingConfig(**{**BASE, "use_async_batching": True, **config})
        self.engine = Engine(model, tokenizer, config=settings, runner=late(self.made))

    def run(self) -> dict[str, Any]:
        self.engine.run_until_idle()
        assert check(self.engine.scheduler) == []
        outputs = {output.request_id: output for output in self.engine.take_outputs() if output.is_finished()}
        self.engine.close()
        return outputs


def test_stop_strings_end_a_request_while_its_next_token_is_in_flight(model):
    prompts = {f"r{i}": [3 * i + 1, 7, 11 + i] for i in range(5)}
    free = Session(model)
    for name, prompt in prompts.items():
        free.engine.submit(prompt, name, max_new_tokens=12)
    whole = free.run()
    stopping = Session(model)
    for name, prompt in prompts.items():
        stopping.engine.submit(prompt, name, max_new_tokens=12, stop_strings=[whole[name].text[4:6]])
    for name, output in stopping.run().items():
        end = whole[name].text.index(whole[name].text[4:6])
        assert output.finish_reason == "stop_string"
        assert output.text == whole[name].text[:end]
        assert output.generated_tokens == whole[name].generated_tokens[: len(output.generated_tokens)]


@pytest.mark.parametrize("setting", ["plenty of room", "recomputed", "offloaded"])
def test_a_cancel_at_any_step_leaves_the_others_alone(model, setting):
    wishes = [Wish(f"w{i}", [5 + i] * (3 + 2 * i), {"max_new_tokens": 8}) for i in range(4)]
    whole = tokens_of(model, wishes)
    for moment in range(1, 14):
        session = Session(model, **SETTINGS[setting])
        for wish in wishes:
            session.engine.submit(wish.prompt, wish.name, **wish.options)
        for _ in range(moment):
            session.engine.step()
        session.engine.cancel("w1")
        for name, output in session.run().items():
            if name != "w1":
                assert output.generated_tokens == whole[name], (moment, name)
            else:
                assert output.generated_tokens == whole[name][: len(output.generated_tokens)]
                assert output.finish_reason in ("cancelled", "length")


def test_an_error_on_the_device_reaches_everybody_with_a_step_in_flight(model):
    session = Session(model)
    for i in range(3):
        session.engine.submit([1, 2, 3 + i], f"r{i}", max_new_tokens=9)
    for _ in range(4):
        session.engine.step()

    def broken(self: Any, batch: Any) -> Any:
        raise RuntimeError("the device was lost")

    forward = session.made[0].inner._forward
    forward.__class__ = type("Broken", (type(forward),), {"__call__": broken})
    with pytest.raises(RuntimeError, match="the device was lost"):
        session.engine.run_until_idle()
    from engine.core.request import FinishReason

    session.engine.fail(FinishReason.FAILED, "the device was lost")
    outputs = [output for output in session.engine.take_outputs() if output.is_finished()]
    assert sorted(output.request_id for output in outputs) == ["r0", "r1", "r2"]
    assert {output.error for output in outputs} == {"the device was lost"}
    assert check(session.engine.scheduler) == []

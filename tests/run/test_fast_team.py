"""The threads of the kernels: as many as asked for, asleep between steps, gone when the model is given back."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.core.groups import group_layers
from engine.core.layout import CacheLayout
from engine.run.batch import Batch
from engine.run.facts import inspect_model
from engine.run.fast.build import load_kernels
from engine.run.fast.native import NativeForward
from engine.run.fast.team import Team
from engine.run.kv_store import KVStore
from tests.run.fast_tools import PAGE, model_of, need_kernels

linux = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")


@pytest.fixture(autouse=True)
def threads() -> Any:
    need_kernels(torch.float32)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def alive() -> int:
    """Threads of kernels in this process, beside the ones that call them."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")].count("kernels")


def forward_of(model: Any, positions: int = 64) -> NativeForward:
    facts = inspect_model(model)
    groups = group_layers(facts.windows)
    layout = CacheLayout(PAGE, groups, len(groups) * -(-positions // PAGE), 0)
    return NativeForward(model, load_kernels(facts.dtype), layout, KVStore(layout, facts))


def logits_of(forward: NativeForward, ids: list[int]) -> torch.Tensor:
    """Logits of the last of ``ids``, float32 [vocabulary]."""
    layout, pages = forward._layout, -(-len(ids) // PAGE)
    tables = np.arange(1, 1 + len(layout.groups) * pages, dtype=np.int32).reshape(-1, 1, pages)
    start, length, samples = np.array([0]), np.array([len(ids)]), np.array([True])
    batch = Batch(layout, torch.device("cpu"), np.array(ids), start, length, list(tables), samples)
    with torch.inference_mode():
        return forward(batch)[0].clone()


@linux
def test_threads_come_with_the_first_step_and_go_with_the_model():
    forward, before = forward_of(model_of("llama")), alive()
    torch.set_num_threads(3)
    logits_of(forward, [5, 6, 7])
    assert alive() == before + 2
    logits_of(forward, [5, 6, 7])
    assert alive() == before + 2
    forward.close()
    assert alive() == before


@linux
def test_another_number_of_threads_counts_from_the_next_step_on():
    forward, before = forward_of(model_of("llama")), alive()
    torch.set_num_threads(1)
    one = logits_of(forward, [5, 6, 7])
    assert alive() == before
    torch.set_num_threads(4)
    four = logits_of(forward, [5, 6, 7])
    assert alive() == before + 3
    torch.testing.assert_close(one, four)
    torch.set_num_threads(2)
    logits_of(forward, [5, 6, 7])
    assert alive() == before + 1
    forward.close()


@linux
def test_threads_that_wait_take_no_processor_time():
    """They would take it from the screen. Twenty threads that looked without end would use two cores whole."""
    torch.set_num_threads(20)
    forward = forward_of(model_of("llama"))
    logits_of(forward, [5, 6, 7])
    began = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - began < 0.1
    forward.close()


def test_more_threads_than_cores_give_the_same_logits_every_time():
    """A thread that is not running when its turn comes must not be left behind, nor be waited for twice."""
    torch.set_num_threads(8)
    forward = forward_of(model_of("gemma3"))
    ids = [3 * i % 90 for i in range(40)]
    first = logits_of(forward, ids)
    for _ in range(50):
        assert torch.equal(logits_of(forward, ids), first)
    forward.close()


def test_a_system_without_threads_says_so():
    class Nothing:
        class assemble:
            restype = None

            def __new__(cls, _count: Any) -> None:  # type: ignore[misc]
                return None

    torch.set_num_threads(2)
    with pytest.raises(RuntimeError, match=r"no 2 threads .* --threads 1"):
        Team(Nothing()).handle()  # type: ignore[arg-type]


def test_two_models_compute_at_once():
    forwards = [forward_of(model_of("llama")), forward_of(model_of("qwen3"))]
    torch.set_num_threads(2)
    alone = [logits_of(forward, [9, 8, 7]) for forward in forwards]
    found: list[list[torch.Tensor]] = [[], []]

    def work(index: int) -> None:
        torch.set_num_threads(2)
        for _ in range(20):
            found[index].append(logits_of(forwards[index], [9, 8, 7]))

    workers = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for index in range(2):
        assert len(found[index]) == 20
        assert all(torch.equal(logits, alone[index]) for logits in found[index])
        forwards[index].close()


def test_a_rotary_table_grows_with_the_positions():
    """Positions beyond the table's first size give what the model gives there."""
    model = model_of("llama", max_position_embeddings=4096)
    ids = [7 * i % 90 for i in range(1040)]
    with torch.inference_mode():
        expected = model(torch.tensor([ids])).logits[0, -1]
    forward = forward_of(model, len(ids))
    logits_of(forward, ids[:10])
    torch.testing.assert_close(logits_of(forward, ids), expected, rtol=1e-4, atol=1e-4)
    forward.close()

"""Shapes, buffers and recordings: a step computed from a recording is the step itself."""

import random

import numpy as np
import pytest
import torch

from engine.core.errors import EngineError
from engine.core.layout import CacheLayout, LayerGroup, SchedulerSettings
from engine.core.request import Request
from engine.core.scheduler import Scheduler
from engine.run.attention.flash_kernels import FLASH_2, FLASH_3
from engine.run.batch import Batch
from engine.run.buffers import StepBuffers
from engine.run.facts import inspect_model
from engine.run.model_runner import ModelRunner
from engine.run.shapes import DECODE, PATHS, VARLEN, Shape, Shapes, first_pages
from tests.run.drive import drive, output
from tests.run.late import LateRunner
from tests.run.static_tools import CallRecorder, parts_of, runner_options, static_forward
from tests.tiny import VOCAB, reference, tiny_model

CPU = torch.device("cpu")
FULL, SLIDING = LayerGroup(0, None, (0,)), LayerGroup(1, 10, (1,))


def shapes_of(groups=(FULL,), page=4, **changed):
    values = {"max_tokens": 100, "max_rows": 20, "max_keys": 64, "decode_pages": 5, "padded": frozenset(PATHS)}
    return Shapes(CacheLayout(page, groups, 50), q_interval=8, kv_interval=16, **{**values, **changed})


def of(shapes: Shapes, *sizes: tuple[int, int], samples: int | None = None) -> Shape:
    """Sizes are (tokens before, query tokens) a slice."""
    starts, lengths = (np.array(column) for column in zip(*sizes, strict=True))
    return shapes.of(starts, lengths, len(sizes) if samples is None else samples)


class TestShapes:
    def test_without_padding_a_step_keeps_its_sizes(self):
        shapes = shapes_of((FULL, SLIDING), padded=frozenset())
        shape = of(shapes, (0, 7), (21, 1), (30, 2), samples=2)
        # the sliding group begins at the page of key 21 of the last slice (30 - 9), page 5: 32 - 20 keys are left
        assert shape == Shape(VARLEN, 10, 3, 2, 7, (32, 12), (8, 3))

    def test_tokens_and_keys_go_up_to_their_intervals_rows_to_a_power_of_two(self):
        shape = of(shapes_of(), (0, 7), (21, 1), (33, 2), samples=2)
        assert shape == Shape(VARLEN, 16, 4, 4, 8, (48,), (12,))

    def test_never_past_what_the_engine_was_built_for(self):
        shape = of(shapes_of(max_tokens=11, max_rows=3), (0, 9), (60, 1), (3, 1))
        assert (shape.tokens, shape.rows, shape.keys, shape.longest) == (11, 3, (64,), 11)

    def test_rows_beyond_the_interval_go_up_to_its_multiples(self):
        counts = {n: of(shapes_of(), *[(0, 1)] * n).rows for n in (1, 2, 3, 5, 8, 9, 16, 17, 20)}
        assert counts == {1: 1, 2: 2, 3: 4, 5: 8, 8: 8, 9: 16, 16: 16, 17: 20, 20: 20}

    def test_single_tokens_take_the_decode_path_while_the_table_holds_them(self):
        shapes = shapes_of((FULL, SLIDING))
        fits = of(shapes, (0, 1), (19, 1))
        # a window of 10 tokens over pages of 4 never takes more than 4 of them
        assert fits == Shape(DECODE, 2, 2, 2, 1, (20, 16), (5, 4))
        assert of(shapes, (0, 1), (20, 1)).path == VARLEN
        assert of(shapes, (0, 1), (3, 2)).path == VARLEN
        assert of(shapes_of(decode_pages=0), (0, 1)).path == VARLEN

    def test_a_path_is_padded_by_itself(self):
        shapes = shapes_of(padded=frozenset((DECODE,)))
        assert of(shapes, *[(0, 1)] * 3).rows == 4
        assert of(shapes, (0, 3), (0, 1)).tokens == 4

    def test_whatever_comes_fits_its_shape_and_a_shape_in_the_warmup_covers_every_decode(self):
        rng = random.Random(1)
        shapes = shapes_of((FULL, SLIDING))
        decodes = {shape for shape in shapes.warmup() if shape.path == DECODE}
        for _ in range(500):
            count = rng.randrange(1, 9)
            sizes = [(rng.randrange(0, 40), rng.choice([1, 1, rng.randrange(1, 9)])) for _ in range(count)]
            shape = of(shapes, *sizes)
            assert shape.tokens >= sum(n for _, n in sizes) and shape.rows >= len(sizes) <= shape.samples
            assert shape.longest >= max(n for _, n in sizes)
            for group, keys, width in zip((FULL, SLIDING), shape.keys, shape.widths, strict=True):
                for start, length in sizes:
                    first = int(first_pages(np.array([start]), group.window, 4)[0])
                    assert start + length - 4 * first <= keys <= width * 4
            assert shape.path == VARLEN or shape in decodes
            assert all(width <= wide for width, wide in zip(shape.widths, shapes.widest, strict=True))

    def test_the_warmup_begins_with_the_largest_of_each_path(self):
        shapes = list(shapes_of().warmup())
        assert shapes[0].path == VARLEN and (shapes[0].tokens, shapes[0].keys) == (100, (64,))
        assert [shape.rows for shape in shapes[1:]] == [20, 16, 8, 4, 2, 1]
        assert list(shapes_of(padded=frozenset()).warmup()) == []


def batch_of(layout, *sizes: tuple[int, int], holes=None) -> Batch:
    starts, lengths = (np.array(column) for column in zip(*sizes, strict=True))
    pages = -(-int((starts + lengths).max()) // layout.page_size)
    tables = [np.arange(1, 1 + len(sizes) * pages, dtype=np.int32).reshape(len(sizes), pages) for _ in layout.groups]
    ids = np.arange(1, 1 + int(lengths.sum()))
    return Batch(layout, CPU, ids, starts, lengths, tables, np.ones(len(sizes), bool), holes)


class TestBuffers:
    def test_a_step_arrives_with_its_padding(self):
        shapes = shapes_of((FULL, SLIDING))
        buffers = StepBuffers(shapes.layout, CPU, shapes)
        batch = batch_of(shapes.layout, (17, 1), (2, 1), (0, 1))
        filled = buffers.fill(batch, shapes.of(batch.starts, batch.lengths, 3))
        inputs = buffers.send(filled)
        assert inputs.ids.tolist() == [1, 2, 3, 0]
        assert inputs.positions.tolist() == [17, 2, 0, 0]
        assert inputs.query_ends.tolist() == [0, 1, 2, 3, 3]
        assert inputs.key_counts[0].tolist() == [18, 3, 1, 0]
        assert inputs.key_ends[0].tolist() == [0, 18, 21, 22, 22]
        assert inputs.tables[0].tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15], [0] * 5]
        # the window of the first slice begins at key 8, on its page 2
        assert inputs.key_counts[1].tolist() == [10, 3, 1, 0]
        assert inputs.tables[1].tolist() == [[3, 4, 5, 0], [6, 7, 8, 9], [11, 12, 13, 14], [0] * 4]
        assert inputs.slots[0].tolist() == [5 * 4 + 1, 6 * 4 + 2, 11 * 4, 0]

    def test_ids_still_being_sampled_are_taken_from_the_device(self):
        shapes = shapes_of()
        buffers = StepBuffers(shapes.layout, CPU, shapes)
        batch = batch_of(shapes.layout, (4, 1), (7, 1), holes=([1], [5]))
        filled = buffers.fill(batch, shapes.of(batch.starts, batch.lengths, 2))
        filled.fill(torch.arange(100, 110))
        assert buffers.send(filled).ids.tolist() == [1, 105]

    def test_addresses_never_change(self):
        shapes = shapes_of((FULL, SLIDING))
        buffers = StepBuffers(shapes.layout, CPU, shapes)
        found = set()
        for sizes in ([(4, 1)], [(0, 30), (9, 1)], [(2, 1)] * 20):
            batch = batch_of(shapes.layout, *sizes)
            inputs = buffers.send(buffers.fill(batch, shapes.of(batch.starts, batch.lengths, len(sizes))))
            tensors = [inputs.ids, inputs.positions, inputs.samples, inputs.query_ends, *inputs.slots, *inputs.tables]
            found.add(tuple(tensor.data_ptr() for tensor in (*tensors, *inputs.key_ends, *inputs.key_counts)))
        assert len(found) == 1

    def test_a_host_set_is_not_written_while_its_copies_may_still_run(self):
        waited, made = [], []

        class Event:
            def synchronize(self):
                waited.append(self)

        shapes = shapes_of()
        buffers = StepBuffers(shapes.layout, CPU, shapes, event=lambda: made.append(Event()) or made[-1])
        for step in range(4):
            batch = batch_of(shapes.layout, (step, 1))
            buffers.send(buffers.fill(batch, shapes.of(batch.starts, batch.lengths, 1)))
            assert waited == made[: max(0, step - 1)]

    @pytest.mark.parametrize(("sets", "enough"), [(1, False), (2, True)])
    def test_two_open_steps_need_two_host_sets(self, sets, enough):
        model = tiny_model("llama")
        layout, store = parts_of(model)
        forward = static_forward(model, layout, store, sets=sets)
        inner = ModelRunner(model, layout, inspect_model(model), forward=forward, store=store)
        runner = LateRunner(inner)
        scheduler = Scheduler(layout, SchedulerSettings())
        scheduler.add(Request("r", (1, 2, 3), max_new_tokens=6))
        first = scheduler.plan()
        ticket = runner.launch(first)
        if not enough:
            with pytest.raises(EngineError, match="more than 1 steps"):
                runner.launch(scheduler.plan())
            return
        second = scheduler.plan()
        later = runner.launch(second)
        one = runner.collect(ticket)
        scheduler.apply(first, one, 0.0)
        two = runner.collect(later)
        assert [*one.tokens, *two.tokens] == reference(model, [1, 2, 3], 2)


NEW = 20


@pytest.fixture(scope="module", params=["llama", "gemma2", "gemma3"])
def case(request):
    model = tiny_model(request.param)
    rng = random.Random(request.param)
    prompts = [[rng.randrange(VOCAB) for _ in range(n)] for n in (1, 2, 5, 9, 12, 30)]
    return model, prompts, [reference(model, prompt, NEW) for prompt in prompts]


def check(case, recorder: CallRecorder, *, depth: int = 0, **options) -> None:
    model, prompts, answers = case
    made = runner_options(model, recorder=recorder, **options)
    requests = [Request(f"r{i}", tuple(prompt), max_new_tokens=NEW) for i, prompt in enumerate(prompts)]
    ended = drive(model, requests, budget=17, depth=depth, runner_options=made)
    assert [output(ended[f"r{i}"]) for i in range(len(prompts))] == answers


@pytest.mark.parametrize("backend", [FLASH_2, FLASH_3])
@pytest.mark.parametrize("graphed", [PATHS, (VARLEN,), (DECODE,)])
@pytest.mark.parametrize("depth", [0, 1])
def test_recorded_steps_equal_generate(case, backend, graphed, depth):
    recorder = CallRecorder()
    check(case, recorder, backend=backend, graphed=graphed, depth=depth)
    assert recorder.recorded > 0
    if graphed != (VARLEN,):  # prompts come in chunks of few sizes, decodes come again and again
        assert recorder.replayed > 2 * recorder.recorded


@pytest.mark.parametrize("fail_at", [1, 3])
def test_what_cannot_be_recorded_runs_without(case, caplog, fail_at):
    recorder = CallRecorder(fail_at)
    check(case, recorder, graphed=PATHS)
    assert recorder.recorded == fail_at, "after a failure nothing more is recorded"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "CUDA graphs are switched off" in caplog.text and "not permitted when stream is capturing" in caplog.text
    assert "and more lines" not in caplog.text
    if fail_at > 1:
        assert recorder.replayed > 0, "what was recorded before is still used"


def test_the_warmup_records_every_decode_shape_and_tells_how_far_it_is():
    model = tiny_model("gemma2")
    layout, store = parts_of(model)
    recorder = CallRecorder()
    forward = static_forward(model, layout, store, graphed=PATHS, recorder=recorder, max_rows=16)
    runner = ModelRunner(model, layout, inspect_model(model), forward=forward, store=store)
    told = []
    runner.warmup(lambda done, total: told.append((done, total)))
    assert told == [(n, 6) for n in range(7)]  # one varlen shape, and 16, 8, 4, 2, 1 rows
    assert recorder.recorded == 6
    prompts = [[3 + i, 5, 7] for i in range(5)]
    scheduler = Scheduler(layout, SchedulerSettings())
    for i, prompt in enumerate(prompts):
        scheduler.add(Request(f"r{i}", tuple(prompt), max_new_tokens=6))
    ended = {}
    while scheduler.has_work:
        plan = scheduler.plan()
        outcome = scheduler.apply(plan, runner.collect(runner.launch(plan)), 0.0)
        ended.update({seq.output_id: seq for seq in outcome.ended})
    assert [output(ended[f"r{i}"]) for i in range(5)] == [reference(model, prompt, 6) for prompt in prompts]
    assert recorder.recorded == 7, "only the prompts had a shape of their own"


def test_other_weights_are_recorded_anew():
    model = tiny_model("llama")
    layout, store = parts_of(model)
    recorder = CallRecorder()
    forward = static_forward(model, layout, store, graphed=PATHS, recorder=recorder)
    runner = ModelRunner(model, layout, inspect_model(model), forward=forward, store=store)
    runner.warmup()
    before = recorder.recorded
    with runner.lend():
        pass
    runner.warmup()
    assert recorder.recorded == 2 * before

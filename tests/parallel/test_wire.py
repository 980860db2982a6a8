"""Plans as bytes: what arrives makes the same index tensors as the plan itself."""

from itertools import count

import pytest
import torch

from engine.core.errors import EngineError
from engine.core.plan import Copies, StepPlan, StepResult
from engine.core.request import Request
from engine.parallel.forward import digest_of
from engine.parallel.frames import BODY, ROOM, Kind, ProtocolError, pack, unpack
from engine.parallel.wire import PlanDecoder, PlanEncoder
from engine.run.batch import BatchBuilder
from tests.core.drive import build

CPU = torch.device("cpu")


@pytest.mark.parametrize("windows", [(None,), (6,), (None, 6)])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_plan_that_travels_makes_the_same_batch(windows, depth):
    """With chunks, shared prefixes, recycled pages, both kinds of preemption, forks and ids in flight."""
    pool = 13 if windows == (6,) else 26 * len(windows)
    scheduler = build(pool, windows, host_blocks=12, max_batch_tokens=20, max_requests_per_batch=6)
    encoder = PlanEncoder(scheduler.layout)
    decoder = PlanDecoder(scheduler.layout, CPU, 6)
    builder = BatchBuilder(scheduler.layout, CPU, 6)
    shared = tuple(range(1, 13))
    for name in range(9):
        scheduler.add(Request(f"r{name}", (*shared, *range(20, 22 + 3 * name)), max_new_tokens=14 + name))
    scheduler.add(Request("twins", shared[:7], max_new_tokens=12, num_return_sequences=3))
    seen = {"steps": 0, "copies": 0, "carried": 0}
    flights = []
    for now in count():
        plan = scheduler.plan() if scheduler.has_work else None
        if plan is not None and (plan.slices or plan.copies):
            data = encoder.encode(plan)
            _compare(decoder.decode(data), plan, builder, seen)
            flights.append(plan)
        if flights and (plan is None or not plan.slices or len(flights) > depth):
            oldest = flights.pop(0)
            tokens = [(s.seq.key * 31 + s.position) % 90 for s in oldest.slices if s.samples]
            scheduler.apply(oldest, StepResult(tokens), float(now))
        if not scheduler.has_work and not flights:
            break
    counters = scheduler.keyframe(0, 0.0).counters
    assert seen["steps"] > 20 and seen["copies"] > 0
    assert counters.preemptions + counters.offloads > 0 and counters.cached_tokens > 0
    assert (seen["carried"] > 0) == bool(depth)


def _compare(step, plan: StepPlan, builder: BatchBuilder, seen: dict[str, int]) -> None:
    assert step.step == plan.step and step.copies == plan.copies
    seen["copies"] += bool(plan.copies)
    if not plan.slices:
        assert step.batch is None
        return
    mine = builder.build(plan)
    assert digest_of(step.batch) == digest_of(mine)
    assert (step.batch.holes is None) == (mine.holes is None)
    if mine.holes is not None:
        assert all(torch.equal(a, b) for a, b in zip(step.batch.holes, mine.holes, strict=True))
        seen["carried"] += 1
    seen["steps"] += 1


def test_a_digest_tells_one_wrong_slot():
    scheduler = build()
    scheduler.add(Request("a", tuple(range(9)), max_new_tokens=2))
    plan = scheduler.plan()
    one, other = (BatchBuilder(scheduler.layout, CPU, 8).build(plan) for _ in range(2))
    assert digest_of(one) == digest_of(other)
    other.slots[0][3] += 1
    assert digest_of(one) != digest_of(other)


def test_a_decode_costs_few_bytes():
    """Eight decodes: tables are known on the other side, so only what is new travels."""
    scheduler = build(200, max_batch_tokens=64)
    encoder = PlanEncoder(scheduler.layout)
    for name in range(8):
        scheduler.add(Request(f"r{name}", tuple(range(40 * name, 40 * name + 8)), max_new_tokens=3))
    sizes = []
    while scheduler.has_work:
        plan = scheduler.plan()
        sizes.append(len(encoder.encode(plan)))
        scheduler.apply(plan, StepResult([1] * sum(s.samples for s in plan.slices)), 0.0)
    assert sizes[-1] <= 24 + 8 * 22


def test_bytes_that_are_cut_or_too_many_are_refused():
    scheduler = build()
    scheduler.add(Request("a", tuple(range(9)), max_new_tokens=2))
    data = PlanEncoder(scheduler.layout).encode(scheduler.plan())
    for damaged in (data[:10], data[:-1], data + b"x"):
        with pytest.raises(ProtocolError):
            PlanDecoder(scheduler.layout, CPU, 8).decode(damaged)


@pytest.mark.parametrize("size", [0, 5, BODY, BODY + 1, 3 * ROOM])
def test_a_message_of_any_size_comes_through(size):
    body = bytes(i % 251 for i in range(size))
    frame, rest = pack(Kind.STEP, body)
    kind, head, more = unpack(bytes(frame))
    assert len(frame) == ROOM and kind is Kind.STEP and more == len(rest) and head + rest == body


def test_a_message_of_another_version_is_refused():
    frame, _ = pack(Kind.BEAT, b"")
    for place, what in ((0, "b'Xbtp'"), (4, "version 9"), (5, "unknown kind 99")):
        other = bytearray(frame)
        other[place] = {0: ord("X"), 4: 9, 5: 99}[place]
        with pytest.raises(EngineError, match=what):
            unpack(bytes(other))


def test_copies_travel():
    copies = Copies(offload=((3, 0), (4, 1)), restore=((2, 9),), fork=((7, 8),))
    scheduler = build()
    data = PlanEncoder(scheduler.layout).encode(StepPlan(7, (), copies, ()))
    step = PlanDecoder(scheduler.layout, CPU, 4).decode(data)
    assert (step.step, step.copies, step.batch) == (7, copies, None)

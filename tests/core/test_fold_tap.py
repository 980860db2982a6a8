"""Records played over a keyframe give the live keyframe; the tap keeps the last ones for whoever comes."""

import dataclasses
import pickle
import random
import threading

import pytest

from engine.core.counters import Counters, Spans
from engine.core.errors import RequestError
from engine.core.fold import fold
from engine.core.journal import change_of, slice_records
from engine.core.observe import OUTPUTS, Keyframe, StepRecord, Verdict
from engine.core.packed import Grown, rows_of
from engine.core.plan import StepResult
from engine.core.scheduler import Scheduler
from engine.core.tap import Tap, rough_size
from tests.core.drive import FULL, HYBRID, ask, build, constant, drain, finish, plan

ENDED = (Verdict.CANCELLED, Verdict.FINISHED)


def empty(step: int) -> StepRecord:
    return StepRecord(step, float(step), Spans(), (), (), (), (), (), (), (), Counters(), "", 1, 1, ())


def busy(seed: int, windows: tuple[int | None, ...], depth: int) -> list[tuple[Scheduler, StepRecord, Keyframe]]:
    """A crowded run with cancels, refusals, failures and a cleared cache: a record and the live keyframe per step."""
    rng = random.Random(seed)
    scheduler = build(
        num_blocks=9 * len(windows), windows=windows, host_blocks=6, max_batch_tokens=9, max_requests_per_batch=3
    )
    scheduler.observe(True)
    frames = [(scheduler, empty(0), scheduler.keyframe(0, 0.0))]
    flights = []
    for number in range(1, 60):
        if number < 40 and rng.random() < 0.6:
            prompt = tuple(rng.randrange(2) for _ in range(rng.randint(1, 14)))
            try:
                scheduler.add(ask(f"r{number}", prompt, rng.randint(0, 12), num_return_sequences=rng.choice((1, 1, 3))))
            except RequestError:
                assert len(prompt) > 8
        if rng.random() < 0.1 and scheduler.running:
            scheduler.cancel(rng.choice(scheduler.running).request.request_id, float(number))
        if rng.random() < 0.1:
            scheduler.clear_prefix_cache()
        made = plan(scheduler)
        if made.slices:
            flights.append(made)
        while len(flights) > depth or (flights and not made.slices):
            done = flights.pop(0)
            if rng.random() < 0.05:
                scheduler.apply(done, StepResult(error=RuntimeError("no")), float(number))
            else:
                finish(scheduler, done, lambda s: s.position % 3, float(number))
        record = scheduler.take_events().record(float(number))
        frames.append((scheduler, record, scheduler.keyframe(record.step, float(number), record)))
    return frames


@pytest.mark.parametrize("windows", [FULL, HYBRID])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_every_keyframe_follows_from_every_earlier_one(seed: int, windows: tuple[int | None, ...], depth: int) -> None:
    frames = busy(seed, windows, depth)
    records = [record for _, record, _ in frames]
    for start in range(0, len(frames) - 1, 7):
        played = frames[start][2]
        for number in range(start + 1, len(frames)):
            played = fold(played, records[number])
            assert played == frames[number][2]
        assert fold(frames[start][2], *records[start + 1 :]) == played


@pytest.mark.parametrize("windows", [FULL, HYBRID])
@pytest.mark.parametrize("depth", [0, 1])
def test_records_of_steps_that_go_on_say_what_happened(windows: tuple[int | None, ...], depth: int) -> None:
    """They are told in terms of the step before; nothing may differ from what is read from the sequences."""
    scheduler = build(num_blocks=40 * len(windows), windows=windows, max_batch_tokens=20)
    scheduler.observe(True)
    for number in range(3):
        scheduler.add(ask(f"r{number}", 3 + number, 30))
    flights, going, taking = [], 0, 0
    while scheduler.has_work:
        if scheduler.step == 12:
            scheduler.cancel("r1", 1.0)
        made = plan(scheduler)
        seqs = {piece.seq.key: piece.seq for piece in made.slices}
        expected = slice_records(made.slices)
        flights.append(made)
        while len(flights) > (depth if made.slices else 0):
            done = flights.pop(0)
            seqs |= {piece.seq.key: piece.seq for piece in done.slices}
            finish(scheduler, done)
        record = scheduler.take_events().record(float(scheduler.step))
        planned = tuple(decision for decision in record.decisions if decision.verdict not in ENDED)
        assert record.slices == expected and planned == made.decisions
        assert seqs.keys() <= {change.seq for change in record.changes}
        assert all(change == change_of(seqs[change.seq]) for change in record.changes if change.seq in seqs)
        going += isinstance(record.slices, Grown)
        taking += isinstance(record.decisions, Grown) and any(decision.b for decision in record.decisions)
    assert going > 15 and taking > 3


def test_folding_changes_nothing_it_was_given() -> None:
    frames = busy(1, HYBRID, 0)
    first = frames[10][2]
    before = pickle.dumps(first)
    fold(first, *[record for _, record, _ in frames[11:]])
    assert pickle.dumps(first) == before
    assert fold(first) is first


def test_a_record_can_be_kept_and_sent() -> None:
    for _, record, frame in busy(2, FULL, 0):
        assert pickle.loads(pickle.dumps(record)) == record
        assert pickle.loads(pickle.dumps(frame)) == frame
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.changes[0].computed = 0 if record.changes else 1  # type: ignore[misc]


def test_what_is_made_fast_is_equal_frozen_and_copyable() -> None:
    frames = busy(3, FULL, 0)
    made = [
        item for _, r, _ in frames for part in (r.slices, r.decisions, r.changes, r.outputs, r.deltas) for item in part
    ]
    assert len({type(item).__name__ for item in made}) == 5
    for item in made:
        twin = dataclasses.replace(item)
        assert twin == item and hash(twin) == hash(item) and type(twin) is type(item)
        with pytest.raises(dataclasses.FrozenInstanceError):
            item.seq = 0


def test_a_sequence_that_ended_is_in_one_keyframe_more_and_then_gone() -> None:
    scheduler = build()
    scheduler.observe(True)
    (a,) = scheduler.add(ask("a", 3, 1))
    finish(scheduler, plan(scheduler))
    record = scheduler.take_events().record(1.0)
    frame = scheduler.keyframe(record.step, 1.0, record)
    assert frame.sequences[a.key].change.place == "done"
    assert [str(d.verdict) for d in record.decisions] == ["admit", "finished"]
    idle = scheduler.take_events()
    assert idle.step == record.step + 1, "a record without a plan is a step of its own"
    after = idle.record(2.0)
    assert fold(frame, after) == scheduler.keyframe(after.step, 2.0, after)
    assert a.key not in scheduler.keyframe(after.step, 2.0).sequences


@pytest.mark.parametrize("watched", [True, False])
def test_watching_changes_no_plan(watched: bool) -> None:
    def run(on: bool) -> list[object]:
        scheduler = build(num_blocks=8, host_blocks=2)
        told: list[object] = []
        for number in range(6):
            scheduler.add(ask(f"r{number}", 5, 9))
        while scheduler.has_work:
            if on and scheduler.step % 5 == 2:
                scheduler.observe(scheduler.step % 2 == 0)
            made = plan(scheduler)
            finish(scheduler, made)
            told += [made.decisions, made.copies]
            if scheduler.step % 3:
                scheduler.take_events()
        return told

    assert run(watched) == run(False)


def test_nothing_is_collected_while_nobody_watches() -> None:
    scheduler = build()
    scheduler.add(ask("a", 9, 9))
    drain(scheduler, constant)
    events = scheduler.take_events()
    assert (events.requests, events.decisions, events.deltas, events.changes, events.outputs) == ((), (), (), (), ())
    assert events.counters.output_tokens == 9


# -- the tap -----------------------------------------------------------------------------------------------------------


def test_a_reader_gets_what_is_new_and_learns_that_it_missed_something() -> None:
    tap = Tap(capacity=4)
    assert tap.read(0) == ((), False) and tap.latest is None
    for number in range(1, 4):
        tap.publish(empty(number))
    assert [r.step for r in tap.read(0)[0]] == [1, 2, 3] and not tap.read(0)[1]
    assert [r.step for r in tap.read(2)[0]] == [3]
    assert tap.read(3) == ((), False) and tap.read(99) == ((), False)
    for number in range(4, 8):
        tap.publish(empty(number))
    records, missed = tap.read(2)
    assert ([r.step for r in records], missed) == ([4, 5, 6, 7], True)
    records, missed = tap.read(3)
    assert ([r.step for r in records], missed) == ([4, 5, 6, 7], False)
    assert (len(tap), tap.dropped, tap.published) == (4, 3, 7)
    assert [r.step for r in tap.last(2)] == [6, 7]


def test_steps_that_nobody_watched_are_missing_too() -> None:
    tap = Tap(capacity=8)
    for number in (5, 6, 9):
        tap.publish(empty(number))
    assert [tap.read(after)[1] for after in (0, 4, 6, 8, 9)] == [True, True, True, False, False]


def test_ten_thousand_records_take_no_more_room_than_the_ring() -> None:
    tap = Tap(capacity=10_000, max_bytes=20 * rough_size(empty(1)))
    for number in range(1, 10_001):
        tap.publish(empty(number))
    assert len(tap) == 20 and tap.dropped == 9_980
    assert [r.step for r in tap.read(0)[0]] == list(range(9_981, 10_001))
    with pytest.raises(ValueError, match="capacity is 0"):
        Tap(0)


def test_it_is_watched_while_any_reader_is_there() -> None:
    tap = Tap()
    states = []
    for act in (tap.attach, tap.attach, tap.detach, tap.detach, tap.detach, tap.attach):
        act()
        states.append(tap.watched)
    assert states == [True, True, True, False, False, True]


def test_a_reader_in_another_thread_sees_no_gap_it_is_not_told_of() -> None:
    tap = Tap(capacity=64)
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        after = 0
        while True:
            last = done.is_set()
            records, missed = tap.read(after)
            steps = [r.step for r in records]
            if steps and not missed and steps != list(range(after + 1, after + 1 + len(steps))):
                wrong.append(f"after {after}: {steps[:3]} … {steps[-3:]}")
            after = steps[-1] if steps else after
            if last:
                return

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 20_001):
        tap.publish(empty(number))
    done.set()
    reader.join()
    assert wrong == []


def test_rows_are_the_fields_of_packed_and_of_made_objects():
    rows = [(3, 7, None), (4, 8, -0.5)]
    packed = OUTPUTS(rows)
    assert rows_of(packed) == rows_of(tuple(packed)) == tuple(rows)


def test_a_twin_for_dry_runs_is_the_same_and_shares_nothing_that_changes():
    scheduler = build(windows=HYBRID)
    scheduler.add(ask("a", 40, 9))
    for _ in range(4):
        step = scheduler.plan()
        scheduler.apply(step, StepResult([5] * sum(piece.samples for piece in step.slices)), 1.0)
    (seq,) = scheduler.running
    twin = seq.twin()
    left_out = {"logprobs", "top_logprobs", "timestamps"}
    for field in dataclasses.fields(seq):
        value, copied = getattr(seq, field.name), getattr(twin, field.name)
        assert copied == ([] if field.name in left_out else value), field.name
        if isinstance(value, list):
            assert copied is not value, field.name
    assert all(mine is not theirs for mine, theirs in zip(seq.tables, twin.tables, strict=True))

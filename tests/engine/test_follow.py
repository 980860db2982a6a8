"""Going along with an engine: in time for the next plan, on its thread, until the end."""

import threading

from cbtui.pauses import Pauses
from engine.core.observe import BlockOp
from tests.engine.fakes import expected, fake_engine, fake_manager


class Companion:
    """Adds a request after a given step, and remembers what it heard and where."""

    def __init__(self, adds_after: int = -1) -> None:
        self.adds_after = adds_after
        self.began: list[int] = []
        self.heard_steps: list[int] = []
        self.threads: set[str] = set()

    def begin(self, engine):
        self.began.append(engine.scheduler.step)
        engine.submit([1, 2, 3], "first", max_new_tokens=6)
        return "off we go"

    def let_go(self, engine): ...

    def heard(self, engine, record):
        self.threads.add(threading.current_thread().name)
        self.heard_steps.append(record.step)
        if record.step == self.adds_after:
            engine.submit([4, 5], "second", max_new_tokens=2)


def test_what_it_adds_is_in_time_for_the_next_plan():
    engine, companion = fake_engine(), Companion(adds_after=3)
    engine.tap.attach()
    engine.follow(companion)
    engine.run_until_idle()
    records, _ = engine.tap.read(0)
    first = records[0]
    assert companion.began == [0] and first.step == 1 and len(first.slices) == 1  # with the first step, not before it
    assert [(ack.kind, ack.detail) for ack in first.commands] == [("follow", "off we go"), ("add", "")]
    second = next(record for record in records if any(info.request_id == "second" for info in record.requests))
    assert second.step == 4 and len(second.slices) == 2
    assert companion.heard_steps == [record.step for record in records]
    found = {output.request_id: output.generated_tokens for output in engine.take_outputs()}
    assert found == {"first": expected([1, 2, 3], 6), "second": expected([4, 5], 2)}


def test_it_hears_everything_though_nobody_watches():
    engine, companion = fake_engine(), Companion()
    engine.follow(companion)
    engine.run_until_idle()
    assert companion.heard_steps == list(range(1, 7))
    assert not engine.tap.watched and len(engine.tap) == 0


def test_it_is_let_go_of():
    engine, companion = fake_engine(), Companion(adds_after=3)
    engine.follow(companion)
    for _ in range(2):
        engine.step()
    engine.follow(None)
    engine.run_until_idle()
    assert companion.heard_steps == [1, 2]
    assert [output.request_id for output in engine.take_outputs()] == ["first"]


def test_the_end_of_the_engine_is_its_end():
    for end in (lambda e: e.finish(), lambda e: e.close()):
        engine, companion = fake_engine(), Companion(adds_after=2)
        engine.follow(companion)
        engine.step()
        if end.__code__.co_names == ("close",):
            engine.run_until_idle()
            heard = list(companion.heard_steps)
            end(engine)
            assert companion.heard_steps == heard
        else:
            end(engine)
            engine.run_until_idle()
            assert companion.heard_steps == [1]  # it would have added after the second


def test_it_lives_on_the_engines_thread():
    manager, companion = fake_manager(), Companion(adds_after=3)
    manager.tap.attach()
    manager.start()
    try:
        manager.follow(companion)
        ends = {}
        while len(ends) < 2:
            output = manager.get_result(timeout=10)
            assert output is not None
            ends[output.request_id] = output
    finally:
        manager.stop(timeout=10)
    assert companion.threads == {"continuous-batching"}
    records, _ = manager.tap.read(0)
    second = next(record for record in records if any(info.request_id == "second" for info in record.requests))
    assert second.step == 4  # whatever the pace of the threads
    assert any(delta.op is BlockOp.ALLOC for delta in second.deltas)


def test_a_manager_that_stops_takes_nothing_new_from_it():
    manager, companion = fake_manager(), Companion()
    companion.heard = lambda engine, record: engine.submit([7], f"more-{record.step}", max_new_tokens=1)
    manager.hold()
    manager.start()
    manager.follow(companion)
    manager.stop(timeout=10)  # it would never end if the follower went on
    assert manager.status.state == "stopped"


class Holder(Companion):
    """Holds the engine after a step, as a caption does."""

    def heard(self, engine, record):
        super().heard(engine, record)
        if record.step == 2:
            engine.pace.hold()


def test_the_record_after_a_hold_of_a_follower_tells_of_it():
    engine, pauses = fake_engine(), Pauses()
    engine.tap.attach()
    engine.follow(Holder())
    for _ in range(4):
        engine.step()
    assert engine.pace.held
    engine.post("resume", "", engine.pace.resume)
    engine.run_until_idle()
    records, _ = engine.tap.read(0)
    assert [record.step for record in records if record.was_held] == [3]
    for record in records:
        pauses.take(record)
    held = records[2].time - records[1].time - records[1].spans.total
    assert held > 0 and pauses.between(records[0].time, records[-1].time) == held

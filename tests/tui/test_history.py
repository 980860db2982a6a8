"""The past comes back as it was, takes what it says it takes, and nothing that is kept beside it grows."""

import gc
import pickle
import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cbtui import ledger
from cbtui.history import CHUNK_STEPS, History
from cbtui.packing import Shorthand
from cbtui.picture import Picture
from engine.core.counters import RankWait
from engine.core.fold import fold
from engine.core.observe import RequestInfo, StepRecord
from tests.tui.scripted import Rig, make_rig, prompt, rush_hour
from tests.tui.test_model import same

FACTS = (
    "step", "time", "waiting", "num_waiting", "counters", "record", "batch", "used", "cached", "host_used", "moves",
)  # fmt: skip


@pytest.fixture(scope="module")
def rush() -> Rig:
    return rush_hour()


def known(rig: Rig, step: int) -> dict[int, tuple[int, ...]]:
    return {key: tuple(story.tokens[: story.output_at(step)]) for key, story in rig.state.stories.items()}


def test_random_jumps_give_what_folding_from_the_start_gives(rush: Rig) -> None:
    draw, seen = random.Random(7), {}
    picture = Picture(rush.start)
    for record in rush.records:
        picture.apply(record)
        seen[record.step] = {name: getattr(picture, name) for name in FACTS}
    for _ in range(80):
        step = draw.choice((draw.randint(1, 355), CHUNK_STEPS * draw.randint(1, 5) + draw.randint(-1, 1)))
        found = rush.state.history.picture(step)
        assert found is not None
        assert {name: getattr(found, name) for name in FACTS} == seen[step]
        same(found.keyframe(known(rush, step)), fold(rush.start, *rush.records[:step]))


def test_every_record_comes_back_equal_in_any_order(rush: Rig) -> None:
    for record in [*rush.records, *reversed(rush.records)]:
        found = rush.state.history.record(record.step)
        assert found == record and repr(found) == repr(record)
    assert rush.state.history.record(0) is None
    assert rush.state.history.record(rush.state.step + 1) is None


def crowd(rig: Rig, steps: int, *, preview: bool = True) -> Iterator[StepRecord]:
    """Requests of 12 tokens with long prompts come and go, six at a time."""
    for number in range(steps):
        if number % 2 == 0:
            rig.add(f"request {number}", tuple((number * 31 + i * 7) % 30_000 for i in range(60)), 12)
        yield rig.step(preview=preview)


def traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_the_history_takes_the_bytes_it_counts() -> None:
    """Within a tenth; less comes back, for a dictionary gets smaller only when it is filled again.

    Of the allocator's own part, which is counted, nothing is seen here.
    """
    rig, pairs = make_rig(num_blocks=384, host_blocks=0, max_requests_per_batch=6), []
    for record in crowd(rig, CHUNK_STEPS * 12):
        pairs.append((record, rig.state.picture.keyframe() if record.step % CHUNK_STEPS == 0 else None))
    marks = []
    tracemalloc.start()
    try:
        history = History(0)
        history.begin(rig.start)
        for record, keyframe in pairs:
            if history.append(record):
                assert keyframe is not None
                history.begin(keyframe)
                marks.append((traced(), history.size))
        for _ in range(4):
            assert history.drop_oldest()
        marks.append((traced(), history.size))
    finally:
        tracemalloc.stop()
    (early, small), (full, large), (late, left) = marks[3], marks[-2], marks[-1]
    assert large - small > 50_000
    assert 0.9 < (large - small) / (full - early) < 1.1
    assert full - late > 0.75 * (large - left) > 0


def test_a_full_history_stays_under_its_limit_and_nothing_beside_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "KEPT_STORIES", 20)
    limit, taken = 40_000, []
    tracemalloc.start()
    try:
        rig = make_rig(num_blocks=96, host_blocks=0, hybrid=False, window=None, history_bytes=limit)
        for record in crowd(rig, CHUNK_STEPS * 21, preview=False):
            rig.records.clear()
            if record.step % CHUNK_STEPS == 0:
                taken.append(traced())
                assert rig.state.history.size + rig.state.beside <= limit
    finally:
        tracemalloc.stop()
    assert rig.state.oldest > CHUNK_STEPS * 18
    assert max(taken[-4:]) < 1.01 * max(taken[-9:-4]), "about ten bytes a step would be seen"


def test_what_several_processes_and_hand_made_records_say_is_kept() -> None:
    """Plain tuples in place of packed ones, rows that come and go, and everything a record may leave out."""
    rig = make_rig(num_blocks=64, host_blocks=0)
    rig.add("a", prompt(1, 20), 30, children=2)
    written, read, records = Shorthand(), Shorthand(), []
    for number in range(40):
        if number in (5, 9):
            rig.add(f"late {number}", prompt(number, 30), 4)
        record = rig.step(preview=number % 3 == 0)
        if number % 2:
            record = replace(record.opened(), ranks=(RankWait(0, 0.5, -1.0), RankWait(1, 0.25, 0.125)), was_held=True)
        records.append(record)
    infos: dict[int, RequestInfo] = {info.seq: info for record in records for info in record.requests}
    short = [pickle.loads(pickle.dumps(written.shorten(record))) for record in records]
    for record, packed in zip(records, short, strict=True):
        found = read.lengthen(packed, record.step, infos.__getitem__)
        assert found == record and repr(found) == repr(record)

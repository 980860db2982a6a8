"""Latencies leave out the time a person held the engine, and the phases of a request still add up to its life."""

import pytest

from cbtui.pauses import Pauses
from cbtui.view.detail import PHASES
from engine.core.counters import Counters, Spans
from engine.core.observe import CommandAck, StepRecord
from tests.tui.scripted import make_rig, prompt


def record(step, time, *commands, seconds=0.5, was_held=False):
    acks = tuple(CommandAck(step, kind, "", True) for kind in commands)
    return StepRecord(
        step, time, Spans(wait=seconds), acks, (), (), (), (), (), (), Counters(), "", 8, 4, (), was_held=was_held
    )


def test_only_time_between_records_of_a_held_engine_counts():
    pauses = Pauses()
    for step, (time, *commands) in enumerate([(0.0,), (1.0, "pause"), (4.0, "step"), (7.0, "resume"), (9.0,)], 1):
        pauses.take(record(step, time, *commands))
    assert pauses.between(0.0, 10.0) == (4.0 - 1.5) + (7.0 - 4.5)
    assert pauses.between(0.0, 1.5) == 0.0 and pauses.between(7.0, 20.0) == 0.0
    assert pauses.between(2.0, 3.0) == 1.0 and pauses.between(3.0, 5.0) == 1.5
    assert pauses.between(5.0, 5.0) == pauses.between(6.0, 5.0) == 0.0


def test_a_hold_that_was_no_command_counts_too():
    pauses = Pauses()
    pauses.take(record(1, 0.0))
    pauses.take(record(2, 8.0, "resume", was_held=True))
    pauses.take(record(3, 12.0, "resume"))  # it ran: what passed before was no pause
    assert pauses.between(0.0, 20.0) == 8.0 - 0.5


def held_rig():
    """Two requests; held for 60 s before the first token of one and in the middle of both."""
    rig = make_rig(host_blocks=0, max_batch_tokens=32)
    rig.add("a", prompt(0, 70), 12)
    rig.step()
    rig.acks.append(CommandAck(90, "pause", "", True))
    rig.step()
    rig.now += 60.0
    rig.acks.append(CommandAck(91, "resume", "", True))
    for _ in range(4):
        rig.step()
    rig.acks.append(CommandAck(92, "pause", "", True))
    rig.step()
    rig.now += 500.0
    rig.acks.append(CommandAck(93, "resume", "", True))
    while rig.scheduler.has_work:
        rig.step()
    return rig


def test_ttft_and_itl_do_not_count_a_pause():
    rig = held_rig()
    (story,) = rig.state.stories.values()
    assert 0 < story.ttft() < 1.0 and 0 < story.itl() < 0.1
    assert story.ended_time - story.arrived_time > 560


@pytest.mark.parametrize("make", [held_rig])
def test_phases_and_pauses_add_up(make):
    rig = make()
    (story,) = rig.state.stories.values()
    spent = {kind: story.seconds(kind, story.ended_time) for kind in PHASES}
    assert spent["paused"] == pytest.approx(560.0)
    assert sum(spent.values()) == pytest.approx(story.ended_time - story.arrived_time)


def test_decode_begins_with_the_first_token():
    rig = held_rig()
    (story,) = rig.state.stories.values()
    waited = story.seconds("queued", story.ended_time) + story.seconds("prefill", story.ended_time)
    assert waited == pytest.approx(story.ttft())

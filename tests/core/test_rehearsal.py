"""Forecasts of requests not added yet, and of settings not changed yet: what is promised is what then happens."""

from dataclasses import replace

import pytest

from engine.core.errors import RequestError
from engine.core.forecast import FARTHEST_PLACE
from engine.core.observe import Verdict
from engine.core.rehearsal import forecast, rehearse
from engine.core.scheduler import Scheduler
from tests.core.drive import ask, build, finish, plan, step
from tests.core.test_forecast import crowded, happens


def foresee(scheduler: Scheduler, name: str, size: int, new: int):
    queued = len(scheduler.state.line)
    return forecast(scheduler.copy(FARTHEST_PLACE), ask(name, size, new), queued)


def looks(scheduler: Scheduler):
    return (scheduler.step, [seq.key for seq in scheduler], scheduler.state.next_key, list(scheduler.cache.pool.refs))


@pytest.mark.parametrize(("size", "new"), [(4, 3), (30, 8)])
def test_it_starts_at_the_step_the_forecast_says(size, new) -> None:
    scheduler = crowded()
    before = looks(scheduler)
    found = foresee(scheduler, "new", size, new)
    assert looks(scheduler) == before, "nothing was queued or taken"
    (seq,) = scheduler.add(ask("new", size, new))
    assert found.step == scheduler.step + found.steps
    assert happens(scheduler, seq.key) == found.step


def test_whoever_finds_room_starts_in_the_next_step_with_its_blocks() -> None:
    scheduler = build(num_blocks=40)
    found = foresee(scheduler, "new", 10, 7)
    assert (found.steps, found.decision.verdict) == (1, Verdict.ADMIT)
    assert found.need == found.decision.b == -(-10 // scheduler.layout.page_size)
    assert found.full == -(-16 // scheduler.layout.page_size) and found.pool == 40


def test_it_says_behind_whom_it_would_wait() -> None:
    scheduler = crowded()
    found = foresee(scheduler, "new", 4, 3)
    assert found.decision.verdict is Verdict.WAIT_ORDER
    assert found.decision.a == scheduler.waiting[0].key


def test_a_prefix_that_is_there_is_counted() -> None:
    scheduler = build(num_blocks=40)
    scheduler.add(ask("a", 20, 2))
    while scheduler.has_work:
        step(scheduler)
    found = foresee(scheduler, "a", 20, 2)
    assert found.cached == 16 and found.decision.a == 16


def test_what_would_be_refused_is_refused() -> None:
    scheduler = crowded()
    with pytest.raises(RequestError, match="can never fit"):
        foresee(scheduler, "new", 400, 3)
    assert scheduler.state.totals.rejected == 0


def test_too_far_back_says_nothing_wrong() -> None:
    scheduler = crowded()
    found = forecast(scheduler.copy(FARTHEST_PLACE), ask("new", 4, 3), FARTHEST_PLACE + 1)
    assert found.step is None and found.steps == 0


@pytest.mark.parametrize("change", [{"safety_margin": 0.0}, {"max_requests_per_batch": 1}, {"max_batch_tokens": 3}])
def test_the_next_step_is_as_rehearsed(change) -> None:
    scheduler = crowded(safety_margin=0.3)
    settings = replace(scheduler.settings, **change)
    found = rehearse(scheduler.copy(FARTHEST_PLACE), settings, None, 0)
    for outlook, changed in ((found.before, scheduler.settings), (found.after, settings)):
        twin = scheduler.copy(FARTHEST_PLACE)
        twin.configure(changed)
        start, made = twin.step, plan(twin)
        assert (outlook.tokens, outlook.rows, outlook.limit) == (made.num_tokens, len(made.slices), made.limit)
        assert outlook.used == sum(1 for refs in twin.cache.pool.refs if refs)
        assert outlook.waiting == tuple(seq.request.request_id for seq in twin.state.line)
        finish(twin, made)
        while twin.has_work:
            step(twin)
        assert twin.step - start >= outlook.steps - 1, "an early end is not foreseen, a late one is"


def test_a_new_engine_begins_with_everybody() -> None:
    scheduler = crowded()
    layout = replace(scheduler.layout, num_blocks=10)
    found = rehearse(scheduler.copy(FARTHEST_PLACE), scheduler.settings, layout, 0)
    assert found.anew and found.after.blocks == 10 and found.before.blocks == 20
    assert found.after.refused == ("c",), "40 tokens never fit into 10 blocks of 4"
    assert found.after.rows + len(found.after.waiting) == 3

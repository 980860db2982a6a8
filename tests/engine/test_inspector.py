"""The lamp: when the engine counts its bookkeeping anew, and what happens when something is wrong with it."""

import itertools

import pytest

from engine import RunUntil
from engine.core.errors import ConfigError, InvariantError
from engine.core.invariants import check
from engine.inspector import SAMPLED_STEPS, Inspector
from tests.engine.fakes import fake_engine


def corrupt(engine):
    """One reference too many: a fault that changes no plan."""
    block = next(block for seq in engine.scheduler for block in seq.tables[0])
    engine.scheduler.cache.pool.refs[block] += 1
    return block


def busy(**config):
    engine = fake_engine(num_blocks=64, history_steps=500, **config)
    engine.submit([1, 2, 3], request_id="a", max_new_tokens=200)
    return engine


def records_of(engine):
    return engine.tap.read(0)[0]


def test_sampled_looks_at_every_64th_step_while_somebody_watches():
    engine = busy()
    engine.tap.attach()
    for _ in range(2 * SAMPLED_STEPS + 2):
        engine.step()
    steps = [record.step for record in records_of(engine) if record.invariants is not None]
    assert steps[0] == 1 and all(b - a >= SAMPLED_STEPS for a, b in itertools.pairwise(steps))
    assert all(not record.invariants for record in records_of(engine))


def test_a_sampled_check_takes_a_hundredth_of_the_time_at_most():
    now = iter([0.0, 10.0, 12.0, 20.0, 211.0, 212.0, 212.5, 212.6])
    inspector = Inspector("sampled", lambda: next(now))
    engine = busy()
    engine.step()
    assert inspector.after_step(engine.scheduler, watched=True) == ()  # due at 0, took from 10 to 12
    engine.scheduler.state.step = SAMPLED_STEPS + 1
    assert inspector.after_step(engine.scheduler, watched=True) is None  # 20: too soon after two seconds of checking
    engine.scheduler.state.step = SAMPLED_STEPS + 1
    assert inspector.after_step(engine.scheduler, watched=True) is None  # 211: the hundredfold ends at 212
    assert inspector.after_step(engine.scheduler, watched=True) == ()


def test_nobody_watching_a_sampled_engine_costs_nothing(monkeypatch):
    engine = busy()
    engine.step()
    corrupt(engine)
    for _ in range(SAMPLED_STEPS + 2):
        engine.step()
    assert check(engine.scheduler), "the fault is there, and nobody looked"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_violation_holds_a_watched_engine_at_its_step(is_async, caplog):
    engine = busy(check_invariants="every", use_async_batching=is_async)
    engine.tap.attach()
    for _ in range(4):
        engine.step()
    block = corrupt(engine)
    engine.step()
    found = records_of(engine)[-1]
    assert found.invariants and f"block {block} has 2 references" in found.invariants[0]
    assert "the engine holds until it is told to go on" in caplog.text
    assert engine.pace.held and (is_async or not engine.may_step)
    tokens = len(next(iter(engine.scheduler)).tokens)
    engine.settle()
    launches = engine.runner.launches
    for _ in range(3):
        engine.step()
    assert engine.runner.launches == launches, "no step begins"
    assert len(next(iter(engine.scheduler)).tokens) >= tokens, "nothing is lost"
    told = [ack for record in records_of(engine) for ack in record.commands if ack.kind == "pause"]
    assert told and f"after step {found.step} the bookkeeping is broken: block {block}" in told[0].detail


def test_a_held_engine_goes_on_when_it_is_told_to():
    engine = busy(check_invariants="every")
    engine.tap.attach()
    engine.step()
    block = corrupt(engine)
    engine.step()
    engine.scheduler.cache.pool.refs[block] -= 1
    engine.post("resume", "", engine.pace.resume)
    engine.run_until_idle()
    assert engine.take_outputs()[-1].generated_tokens
    assert records_of(engine)[-1].invariants == ()


def test_a_violation_fails_an_engine_nobody_watches():
    engine = busy(check_invariants="every")
    engine.step()
    corrupt(engine)
    with pytest.raises(InvariantError, match="after step 2 the bookkeeping is broken: block"):
        engine.step()


def test_run_until_a_broken_invariant_looks_after_every_step():
    engine = busy(check_invariants="off")
    engine.tap.attach()
    engine.pace.run_until(RunUntil("invariant"))
    for _ in range(3):
        engine.step()
    assert all(record.invariants == () for record in records_of(engine))
    corrupt(engine)
    engine.step()
    assert engine.pace.held and records_of(engine)[-1].invariants


def test_off_is_off_and_can_be_changed_while_it_runs():
    engine = busy(check_invariants="off")
    engine.tap.attach()
    engine.step()
    assert records_of(engine)[-1].invariants is None
    engine.configure(check_invariants="every")
    engine.step()
    assert records_of(engine)[-1].invariants == ()
    with pytest.raises(ConfigError, match="one of off, sampled, every"):
        engine.configure(check_invariants="sometimes")

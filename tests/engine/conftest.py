"""Managers that are ended after a test, and a model for those that need a real one."""

import threading

import pytest

from tests.engine.fakes import fake_manager
from tests.tiny import tiny_model


@pytest.fixture
def managers():
    """Makes managers and ends them after the test; no thread of theirs may be left."""
    made = []

    def make(runner=None, **wanted):
        made.append((fake_manager(runner, **wanted), runner))
        return made[-1][0]

    yield make
    for manager, runner in made:
        if runner is not None and getattr(runner, "gate", None) is not None:
            runner.gate.set()
        if manager.is_running():
            manager.stop(hard_stop=True, timeout=10)
    for thread in threading.enumerate():
        if thread.name == "continuous-batching":
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def start():
    """Starts a manager and ends it after the test."""
    made = []

    def make(runner=None, **wanted):
        manager = fake_manager(runner, **wanted)
        made.append((manager, runner))
        manager.start()
        return manager

    yield make
    for manager, runner in made:
        if runner is not None and runner.gate is not None:
            runner.gate.set()
        if manager.is_running():
            manager.stop(hard_stop=True, timeout=10)


@pytest.fixture(scope="module")
def model():
    """Full attention, random weights; a test leaves it as it found it."""
    return tiny_model("llama")

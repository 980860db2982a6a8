"""A state machine that tries to break the scheduler. Every rule is followed by all checks of the harness.

The quick profile runs with the suite; ``pytest -m slow tests/core`` runs thousands of examples.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from engine.core.layout import SchedulerSettings
from tests.core.fake_model import ALPHABET
from tests.core.harness import Harness
from tests.core.scenarios import WINDOWS, layout_of, request

NAMES = st.integers(0, 9).map(lambda i: f"r{i}")
PROMPTS = st.one_of(
    st.lists(st.integers(0, ALPHABET - 1), min_size=1, max_size=12).map(tuple),
    st.integers(1, 12).map(lambda n: (0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2)[:n]),
)


class SchedulerMachine(RuleBasedStateMachine):
    """Rules are what callers and the loop may do; ``tried`` counts the steps planned by all examples of one test."""

    tried = 0

    harness: Harness

    @initialize(
        windows=st.sampled_from(WINDOWS),
        page_size=st.integers(1, 4),
        num_blocks=st.integers(3, 24),
        host_blocks=st.integers(0, 8),
        budget=st.integers(1, 12),
        rows=st.integers(1, 4),
        policy=st.sampled_from(("fifo", "prefill_first")),
        margin=st.sampled_from((0.0, 0.15, 0.5, 1.0)),
        sharing=st.booleans(),
        skip_limit=st.integers(0, 3),
        cap=st.sampled_from((1, 2, 16)),
        depth=st.integers(0, 1),
        watched=st.booleans(),
    )
    def start(self, **knobs: Any) -> None:
        layout = layout_of(
            knobs["windows"],
            page_size=knobs["page_size"],
            num_blocks=knobs["num_blocks"],
            host_blocks=knobs["host_blocks"],
        )
        chosen = SchedulerSettings(
            policy=knobs["policy"],
            max_batch_tokens=knobs["budget"],
            max_requests_per_batch=knobs["rows"],
            safety_margin=knobs["margin"],
            allow_block_sharing=knobs["sharing"],
            skip_limit=knobs["skip_limit"],
            max_steps_without_decode=knobs["cap"],
        )
        self.harness = Harness(layout, chosen, depth=knobs["depth"], watched=knobs["watched"])

    @rule(
        name=NAMES,
        prompt=PROMPTS,
        new=st.integers(1, 10),
        seed=st.integers(0, 1),
        n=st.integers(1, 3),
        eos=st.booleans(),
        stop=st.sampled_from(((), (), ("bc",), ("aa", "cb"))),
        salt=st.sampled_from((b"", b"", b"x")),
        stateful=st.booleans(),
    )
    def submit(self, name: str, prompt: tuple[int, ...], new: int, seed: int, n: int, **more: Any) -> None:
        self.harness.submit(request(name, prompt, new, seed=seed, n=n, **more))

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.harness.step()

    @rule(name=NAMES)
    def cancel(self, name: str) -> None:
        self.harness.cancel(name)

    @rule(data=st.data())
    def cancel_in_flight(self, data: st.DataObject) -> None:
        flying = sorted({s.seq.request.request_id for step in self.harness.launched for s in step.plan.slices})
        if flying:
            self.harness.cancel(data.draw(st.sampled_from(flying)))

    @rule(data=st.data())
    def configure(self, data: st.DataObject) -> None:
        changes = {
            "policy": st.sampled_from(("fifo", "prefill_first")),
            "max_batch_tokens": st.integers(1, 12),
            "max_requests_per_batch": st.integers(1, 4),
            "safety_margin": st.sampled_from((0.0, 0.15, 1.0)),
            "allow_block_sharing": st.booleans(),
            "skip_limit": st.integers(0, 3),
            "max_steps_without_decode": st.integers(1, 4),
        }
        name = data.draw(st.sampled_from(sorted(changes)))
        self.harness.configure(**{name: data.draw(changes[name])})

    @rule()
    def clear_cache(self) -> None:
        self.harness.clear_cache()

    @rule(row=st.integers(0, 3))
    def fail_a_row(self, row: int) -> None:
        self.harness.faults.rows = {row}

    @rule(when=st.sampled_from(("before copies", "after copies", "offload")))
    def fail_a_step(self, when: str) -> None:
        self.harness.faults.step = when

    @rule()
    def attach_observer(self) -> None:
        self.harness.attach()

    @rule()
    def record_of_commands_alone(self) -> None:
        self.harness.flush()

    @rule()
    def detach_observer(self) -> None:
        self.harness.detach()

    @invariant()
    def all_well(self) -> None:
        if hasattr(self, "harness"):
            self.harness.check()

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        type(self).tried += self.harness.steps
        before = self.harness.steps
        self.harness.drain()
        type(self).tried += self.harness.steps - before


def explore(examples: int, moves: int) -> int:
    """Runs the machine; returns the steps it planned."""

    class Machine(SchedulerMachine):
        tried = 0

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=moves,
            deadline=None,
            derandomize=True,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return Machine.tried


def test_nothing_breaks_the_scheduler(record_property: Any) -> None:
    tried = explore(examples=100, moves=30)
    record_property("steps", tried)
    print(f"{tried} steps tried without a violation")
    assert tried > 200  # how many differs with what else was imported: hypothesis takes numbers from there


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("moves", [20, 60, 150])
def test_nothing_breaks_the_scheduler_for_long(moves: int, record_property: Any) -> None:
    tried = explore(examples=60_000 // moves, moves=moves)
    record_property("steps", tried)
    print(f"{tried} steps tried without a violation")
    assert tried > 10_000

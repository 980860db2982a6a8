"""One fixed busy scenario; every request is cancelled at every step of it, one at a time."""

import copy

import pytest

from engine.core.layout import SchedulerSettings
from engine.core.request import FinishReason
from tests.core.harness import Harness
from tests.core.scenarios import PROMPT, layout_of, request

NAMES = ("long", "family", "twin", "late")


def busy(depth: int, windows: tuple[int | None, ...], host_blocks: int) -> Harness:
    """Chunked prefill, a shared prefix, children, pressure that preempts, and a request that joins late."""
    pool = {1: 10, 2: 15}[len(windows)]
    settings = SchedulerSettings(max_batch_tokens=5, max_requests_per_batch=4, safety_margin=0.0)
    harness = Harness(
        layout_of(windows, page_size=2, num_blocks=pool, host_blocks=host_blocks), settings, depth=depth, watched=True
    )
    harness.submit(request("long", PROMPT, 9))
    harness.submit(request("family", PROMPT[:5], 5, n=2))
    harness.submit(request("twin", PROMPT, 6, seed=1))
    return harness


LATE = 4
"""The step before which the last request joins."""


def join(harness: Harness) -> None:
    if all(seq.request.request_id != "late" for seq in harness.sequences):
        harness.submit(request("late", PROMPT[:6], 5, seed=1))


def finish(harness: Harness) -> None:
    while harness.steps < LATE and harness.step():
        pass
    join(harness)
    harness.drain()


@pytest.mark.parametrize(
    ("depth", "windows", "host_blocks"), [(0, (None,), 8), (1, (None,), 0), (0, (None, 4), 0), (1, (None, 4), 8)]
)
def test_cancel_at_every_step(depth: int, windows: tuple[int | None, ...], host_blocks: int) -> None:
    harness = busy(depth, windows, host_blocks)
    cancelled = tried = 0
    while True:
        if harness.steps == LATE:
            join(harness)
        for name in NAMES:
            branch = copy.deepcopy(harness)
            branch.cancel(name)
            finish(branch)
            tried += 1
            for seq in branch.sequences:
                reason = branch.ended[seq.key]
                assert reason is FinishReason.LENGTH or seq.request.request_id == name
                cancelled += reason is FinishReason.CANCELLED
        if not harness.step():
            break
    counters = harness.frame().counters
    assert counters.preemptions + counters.offloads > 0, "the scenario must be tight enough to preempt"
    assert tried > 12 * len(NAMES) and cancelled > tried / 2

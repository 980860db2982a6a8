"""One fixed busy scenario; every request is cancelled at every step of it, one at a time."""

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


def run(harness: Harness, name: str | None = None, at: int = -1) -> int:
    steps = 0
    while True:
        if steps == 4:
            harness.submit(request("late", PROMPT[:6], 5, seed=1))
        if steps == at and name is not None:
            harness.cancel(name)
        if not harness.step():
            return steps
        steps += 1


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("windows", [(None,), (None, 4)])
@pytest.mark.parametrize("host_blocks", [0, 8])
def test_cancel_at_every_step(depth: int, windows: tuple[int | None, ...], host_blocks: int) -> None:
    quiet = busy(depth, windows, host_blocks)
    total = run(quiet)
    quiet.check_idle()
    counters = quiet.frame().counters
    assert counters.preemptions + counters.offloads > 0, "the scenario must be tight enough to preempt"
    assert total > 12
    cancelled = 0
    for name in NAMES:
        for at in range(total + 1):
            harness = busy(depth, windows, host_blocks)
            run(harness, name, at)
            harness.check_idle()
            for seq in harness.sequences:
                reason = harness.ended[seq.key]
                assert reason is FinishReason.LENGTH or seq.request.request_id == name
                cancelled += reason is FinishReason.CANCELLED
    assert cancelled > total * len(NAMES) / 2

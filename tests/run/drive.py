"""Runs requests through the real scheduler and the real runner, with nothing in between."""

from collections.abc import Sequence as Many
from typing import Any

from engine.core.groups import group_layers
from engine.core.layout import CacheLayout, SchedulerSettings
from engine.core.request import Request, Sequence
from engine.core.scheduler import Scheduler
from engine.run.facts import inspect_model
from engine.run.model_runner import ModelRunner


def drive(
    model: Any,
    requests: Many[Request],
    *,
    page_size: int = 4,
    budget: int = 64,
    backend: str = "sdpa",
    blocks: int = 300,
    host_blocks: int = 0,
    depth: int = 0,
    settings: dict[str, Any] | None = None,
    spoil: float | None = float("nan"),
    runner_options: dict[str, Any] | None = None,
) -> dict[str, Sequence]:
    """Every request to its end; output id -> its sequence.

    ``spoil`` fills the whole cache first, and the blocks in nobody's hands before every step, so that a key read from a
    wrong place cannot go unseen.
    """
    facts = inspect_model(model)
    layout = CacheLayout(page_size, group_layers(facts.windows), blocks, host_blocks)
    scheduler = Scheduler(
        layout, SchedulerSettings(**{"max_batch_tokens": budget, "safety_margin": 0.0, **(settings or {})})
    )
    runner = ModelRunner(model, layout, facts, backend=backend, max_requests_per_batch=64, **(runner_options or {}))
    try:
        if spoil is not None:
            for store in (*runner.store.keys, *runner.store.values):
                store.fill_(spoil)
        for request in requests:
            scheduler.add(request)
        return _run(scheduler, runner, depth, spoil)
    finally:
        runner.close()


def _run(scheduler: Scheduler, runner: ModelRunner, depth: int, spoil: float | None) -> dict[str, Sequence]:
    ended: dict[str, Sequence] = {}
    flying: list[tuple[Any, Any]] = []
    now = 0.0
    while scheduler.has_work or flying:
        now += 1.0
        if scheduler.has_work:
            plan = scheduler.plan()
            if plan.slices or plan.copies:
                if spoil is not None and not flying and not plan.copies:
                    _spoil_free(scheduler, runner, spoil)
                flying.append((plan, runner.launch(plan)))
            elif not flying:
                scheduler.apply(plan, runner.collect(runner.launch(plan)), now)
        if len(flying) > depth or not scheduler.has_work or not plan.slices:
            if not flying:
                continue
            plan_done, ticket = flying.pop(0)
            result = runner.collect(ticket)
            if result.error is not None:
                raise result.error
            outcome = scheduler.apply(plan_done, result, now)
            ended.update((seq.output_id, seq) for seq in outcome.ended)
    return ended


def _spoil_free(scheduler: Scheduler, runner: ModelRunner, value: float) -> None:
    free = [i for i, view in enumerate(scheduler.keyframe(0, 0.0).blocks) if view.state == "free"]
    for store in (*runner.store.keys, *runner.store.values):
        store[free] = value


def output(seq: Sequence) -> list[int]:
    return seq.tokens[seq.num_prompt :]

"""What each caption of the bundled scenarios claims: checked against the records, and its numbers worked out again.

A claim gets the run and the caption's step, asserts that what the sentence says is so, and returns the numbers that
must stand in it, in order.
"""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from engine.core.observe import Verdict
from tests.scenarios import claims_memory as memory
from tests.scenarios import claims_requests as requests
from tests.scenarios.run import Run, prefill_of

Claim = Callable[[Run, int], list[Any]]
STATIC, CONTINUOUS = "ABCDEFGH", "IJKLMNOP"


def _ms(run: Run, step: int) -> str:
    return _written(run.records[step].spans.total * 1000)


def _usual(run: Run, step: int) -> str:
    before = range(max(1, step - 40), step)
    return _written(median(run.records[s].spans.total * 1000 for s in before if not run.slices(s, "prefill")))


def _written(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _rows(run: Run, names: str) -> tuple[int, int, int]:
    """Steps of a group, rows offered in them, rows left idle."""
    first, last = min(map(run.arrived, names)), max(map(run.ended, names))
    used = [len(run.slices(s)) for s in range(first, last + 1) if run.slices(s)]
    return len(used), 4 * len(used), 4 * len(used) - sum(used)


# ---- first-tokens


def first_writes(run: Run, step: int) -> list[Any]:
    assert step == 0 and run.arrived("A") == 1
    assert run.token_steps("A")[:10] == list(range(1, 11))  # one token a step
    return []


def first_prefill(run: Run, step: int) -> list[Any]:
    part = prefill_of(run, step, "B")
    assert part.query == len(run.info("B").prompt_ids) and run.token_steps("B")[0] == step
    assert step in run.token_steps("A")
    return [part.query]


def first_decode(run: Run, step: int) -> list[Any]:
    assert sorted(part.seq for part in run.slices(step, "decode")) == [run.key("A"), run.key("B")]
    return [len(run.tokens("B", step)), run.held(step, "B"), run.pool()]


def first_joined(run: Run, step: int) -> list[Any]:
    prefill = sum(part.query for part in run.slices(step, "prefill"))
    assert run.token_steps("C")[0] == step and {step, step - 1} <= set(run.token_steps("A"))
    return [sum(part.query for part in run.slices(step)), prefill]


def first_done(run: Run, step: int) -> list[Any]:
    assert run.ended("C") == step and run.blocks(step, "owned") == run.held(step, "A") + run.held(step, "B")
    return [len(run.tokens("C", step))]


# ---- static-and-continuous


def static_begins(run: Run, step: int) -> list[Any]:
    assert {run.arrived(name) for name in "ABCD"} == {1}
    assert min(map(run.arrived, "EFGH")) > max(map(run.ended, "ABCD"))
    return []


def static_idles(run: Run, step: int) -> list[Any]:
    assert run.ended("A") < step < run.arrived("E") and run.records[step].num_waiting == 0
    return [len(run.slices(step)), run.records[step].rows]


def static_result(run: Run, step: int) -> list[Any]:
    steps, offered, idle = _rows(run, STATIC)
    assert step == max(map(run.ended, STATIC))
    return [steps, 8, offered, idle]


def continuous_fills(run: Run, step: int) -> list[Any]:
    assert run.ended("I") == step - 1 and run.decision(step, "M", Verdict.ADMIT)
    return [len(run.slices(step)), run.records[step].rows]


def continuous_result(run: Run, step: int) -> list[Any]:
    (steps, offered, idle), before = _rows(run, CONTINUOUS), _rows(run, STATIC)
    assert step == max(map(run.ended, CONTINUOUS)) and steps < before[0] and idle < before[2]
    pairs = zip(STATIC, CONTINUOUS, strict=True)
    assert all(run.info(a).prompt_ids == run.info(b).prompt_ids for a, b in pairs)  # the same requests
    assert [len(run.tokens(a, step)) for a in STATIC] == [len(run.tokens(b, step)) for b in CONTINUOUS]
    return [steps, before[0], idle, offered, before[2]]


# ---- long-prompt


def long_usual(run: Run, step: int) -> list[Any]:
    assert len(run.slices(step, "decode")) == len(run.slices(step)) == 3
    return [3, _usual(run, step)]


def long_whole(run: Run, step: int) -> list[Any]:
    assert prefill_of(run, step, "D").query == len(run.info("D").prompt_ids) == 280
    assert {step, step - 1} <= set(run.token_steps("A"))  # its token came at the end of this very step
    return [280, _ms(run, step), _usual(run, step)]


def long_cut(run: Run, step: int) -> list[Any]:
    assert run.records[step - 1].settings["max_batch_tokens"] == run.records[step].budget == 32
    assert len(run.slices(step, "decode")) == 3 and prefill_of(run, step, "E").query == 29
    return [32]


def long_chunk(run: Run, step: int) -> list[Any]:
    chunk = run.decision(step, "E", Verdict.CHUNK)
    assert len(run.slices(step, "decode")) == 3
    return [chunk.a, chunk.b, 3, _ms(run, step)]


def long_done(run: Run, step: int) -> list[Any]:
    key = run.key("E")
    steps = [s for s in run.records if any(p.seq == key and p.kind == "prefill" for p in run.slices(s))]
    assert steps[-1] == step and set(steps) <= set(run.token_steps("A"))
    return [len(steps), 280]


# ---- head-of-line


def burst_comes(run: Run, step: int) -> list[Any]:
    waits = run.decision(step, "C", Verdict.WAIT_BLOCKS)
    assert {run.arrived(name) for name in "CDEF"} == {step} and run.records[step].waiting[0] == run.key("C")
    return [waits.a, waits.b]


def burst_order(run: Run, step: int) -> list[Any]:
    assert run.decision(step, "D", Verdict.WAIT_ORDER).a == run.key("C")
    usable = run.blocks(step, "free") + run.blocks(step, "cached")
    assert -(-44 // 16) <= usable  # it would fit
    return [44, usable]


def burst_passes(run: Run, step: int) -> list[Any]:
    assert run.records[step].settings["skip_limit"] == 4
    assert all(run.steps_with(name, Verdict.ADMIT) == [step] for name in "DEF")
    assert run.decision(step, "C", Verdict.WAIT_BLOCKS)
    return [4, run.batches(run.arrived("D"), step - 1)]


def burst_ends(run: Run, step: int) -> list[Any]:
    assert run.decision(step, "C", Verdict.ADMIT)
    return [run.batches(run.arrived("C"), step - 1)]


# ---- prefill-first


def fifo_begins(run: Run, step: int) -> list[Any]:
    assert len(run.slices(step, "decode")) == 6
    return [6, run.records[step].budget]


def fifo_prompt(run: Run, step: int) -> list[Any]:
    gap = max(run.gap(name, step) for name in "ABCDEF")
    assert run.token_steps("G")[0] == step and gap == 1
    return [200, run.batches(run.arrived("G"), step), gap]


def first_holds(run: Run, step: int) -> list[Any]:
    held = [d for d in run.records[step].decisions if d.verdict is Verdict.WAIT_PREFILL]
    assert prefill_of(run, step, "H").query == run.records[step].budget and len(run.slices(step)) == 1
    assert len(held) == 6 and {(d.a, d.b) for d in held} == {(1, 8)}
    return [run.records[step].budget, 8]


def first_prompt(run: Run, step: int) -> list[Any]:
    ttft = [run.batches(run.arrived(name), run.token_steps(name)[0]) for name in "HG"]
    gap = max(run.gap(name, step) for name in "ABCDEF")
    assert run.token_steps("H")[0] == step and ttft[0] < ttft[1] and gap > 1
    return [*ttft, gap]


CLAIMS: Mapping[str, tuple[Claim, ...]] = {
    "first-tokens": (first_writes, first_prefill, first_decode, first_joined, first_done),
    "static-and-continuous": (static_begins, static_idles, static_result, continuous_fills, continuous_result),
    "long-prompt": (long_usual, long_whole, long_cut, long_chunk, long_done),
    "prefix-sharing": (
        memory.prefix_first,
        memory.prefix_second,
        memory.prefix_third,
        memory.prefix_left,
        memory.prefix_again,
    ),
    "recompute": (
        memory.pressure_begins,
        memory.recompute_happens,
        memory.recompute_waits,
        memory.recompute_again,
        memory.recompute_price,
    ),
    "offload": (
        memory.offload_begins,
        memory.offload_happens,
        memory.offload_waits,
        memory.offload_returns,
        memory.offload_price,
    ),
    "large-pages": (memory.pages_begin, memory.pages_waste, memory.pages_later, memory.pages_end),
    "small-pages": (memory.small_begin, memory.small_waste, memory.small_tables, memory.small_end),
    "head-of-line": (burst_comes, burst_order, burst_passes, burst_ends),
    "prefill-first": (fifo_begins, fifo_prompt, first_holds, first_prompt),
    "safety-margin": (memory.margin_holds, memory.margin_gone, memory.margin_price, memory.margin_end),
    "sliding-window": (memory.window_begins, memory.window_first, memory.window_more, memory.window_prompt),
    "cancel-storm": (requests.storm_calm, requests.storm_comes, requests.storm_kept, requests.storm_over),
    "never-fits": (requests.fits_begins, requests.fits_refused, requests.fits_others, requests.fits_over),
    "sampling": (
        requests.sampling_begins,
        requests.sampling_greedy,
        requests.sampling_seeds,
        requests.sampling_company,
    ),
    "rush-hour": (
        requests.rush_shared,
        requests.rush_chunks,
        requests.rush_offload,
        requests.rush_waits,
        requests.rush_cancelled,
        requests.rush_over,
    ),
}

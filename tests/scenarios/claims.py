"""What each caption of the bundled scenarios claims: checked against the records, and its numbers worked out again.

A claim gets the run and the caption's step, asserts that what the sentence says is so, and returns the numbers that
must stand in it, in order.
"""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from engine.core.observe import BlockOp, Verdict
from tests.scenarios import claims_memory as memory
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


# ---- cancel-storm


def storm_calm(run: Run, step: int) -> list[Any]:
    record = run.records[step]
    waits = next(d for d in record.decisions if d.verdict is Verdict.WAIT_ROWS)
    return [len(record.slices), record.num_waiting, waits.b]


def storm_comes(run: Run, step: int) -> list[Any]:
    cancelled = [a.target for a in run.records[step].commands if a.kind == "cancel" and a.accepted]
    assert cancelled == list("ABCDE") and all(run.ended(name) == step for name in cancelled)
    assert all(run.steps_with(name, Verdict.ADMIT) == [step] for name in "IJKL")
    return [5, 4, run.batches(1, step - 1), len(run.slices(step))]


def storm_kept(run: Run, step: int) -> list[Any]:
    assert run.key("A") not in run.frames[step].sequences
    return [len(run.tokens("A", step))]


def storm_over(run: Run, step: int) -> list[Any]:
    ends = [c.finish_reason for r in run.records.values() for c in r.changes if c.place == "done"]
    assert step == max(map(run.ended, "FGHIJKL")) and len(ends) == 12
    return [sum(str(e) == "length" for e in ends), sum(str(e) == "cancelled" for e in ends), run.blocks(step, "owned")]


# ---- never-fits


def fits_begins(run: Run, step: int) -> list[Any]:
    return [run.pool(), 16, run.held(step, "A")]


def fits_refused(run: Run, step: int) -> list[Any]:
    refused = [a.target for a in run.records[step].commands if a.kind == "add" and not a.accepted]
    assert refused == ["B"] and -(-(200 + 120 - 1) // 16) > run.pool() and step in run.token_steps("A")
    return [320, 20, 16, 16]


def fits_others(run: Run, step: int) -> list[Any]:
    assert run.arrived("C") == step == run.token_steps("C")[0]
    return []


def fits_over(run: Run, step: int) -> list[Any]:
    assert run.gap("A", step) == 1 and {run.ended("A"), run.ended("C")} <= set(range(step + 1))
    return [1, 2]


# ---- sampling


def sampling_begins(run: Run, step: int) -> list[Any]:
    assert len({run.info(name).prompt_ids for name in "ABCDEF"}) == 1
    kinds = [run.info(name).sampling for name in "ABCDE"]
    assert kinds[0] == kinds[1] and kinds[2] == kinds[3] and len(set(kinds)) == 3
    return [7, 8]


def sampling_greedy(run: Run, step: int) -> list[Any]:
    assert run.tokens("A", step) == run.tokens("B", step) and len(run.tokens("A", step)) > 10
    return [2, 1]


def sampling_seeds(run: Run, step: int) -> list[Any]:
    assert run.tokens("C", step) == run.tokens("D", step)
    assert run.tokens("C", run.ended("C")) != run.tokens("E", run.ended("E"))
    return []


def sampling_company(run: Run, step: int) -> list[Any]:
    assert run.arrived("F") > run.arrived("C") and run.tokens("F", step) == run.tokens("C", step)
    return [7, 3, 1]


# ---- rush-hour


def rush_shared(run: Run, step: int) -> list[Any]:
    tables = [run.frames[step].sequences[run.key(name)].tables[0] for name in "CD"]
    hit = run.decision(step, "D", Verdict.ADMIT).a
    assert hit and tables[0][: hit // 16] == tables[1][: hit // 16]
    return [hit, 96]


def rush_chunks(run: Run, step: int) -> list[Any]:
    chunk, decodes = run.decision(step, "G", Verdict.CHUNK), len(run.slices(step, "decode"))
    assert decodes >= 2
    return [chunk.a, chunk.b, decodes]


def rush_offload(run: Run, step: int) -> list[Any]:
    moved = run.decision(step, "G", Verdict.OFFLOAD)
    deltas = [delta.op for delta in run.records[step].deltas]
    taken = deltas[: deltas.index(BlockOp.OFFLOAD)].count(BlockOp.ALLOC)  # by those planned before
    usable = run.blocks(step - 1, "free") + run.blocks(step - 1, "cached")
    assert moved.a != run.key("G") and taken == usable
    return [sum(d.op is BlockOp.OFFLOAD for d in run.records[step].deltas)]


def rush_waits(run: Run, step: int) -> list[Any]:
    places = [view.change.place for view in run.frames[step].sequences.values()]
    counts = [run.blocks(step, state) for state in ("owned", "cached", "free")]
    assert sum(counts) == run.pool()
    return [places.count("waiting"), places.count("offloaded"), counts[0], run.pool(), *counts[1:]]


def rush_cancelled(run: Run, step: int) -> list[Any]:
    blocks, key = run.frames[step - 1].blocks, run.key("A")
    freed = [view for view in blocks if view.owners and {seq for seq, _ in view.owners} == {key}]
    assert run.ended("A") == step and run.slices(step)
    return [len(freed)]


def rush_over(run: Run, step: int) -> list[Any]:
    ends = [str(c.finish_reason) for r in run.records.values() for c in r.changes if c.place == "done"]
    hits = sum(d.a for r in run.records.values() for d in r.decisions if d.verdict is Verdict.ADMIT)
    assert list(run.refused) == ["H"] and step == max(map(run.ended, "BCDEFGIJ"))
    return [ends.count("length"), ends.count("cancelled"), 1, hits]


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
    "cancel-storm": (storm_calm, storm_comes, storm_kept, storm_over),
    "never-fits": (fits_begins, fits_refused, fits_others, fits_over),
    "sampling": (sampling_begins, sampling_greedy, sampling_seeds, sampling_company),
    "rush-hour": (rush_shared, rush_chunks, rush_offload, rush_waits, rush_cancelled, rush_over),
}

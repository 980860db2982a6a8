"""Claims about single requests: cancelled, refused, each drawn in its own way, and all at once. See ``claims``."""

from typing import Any

from engine.core.observe import BlockOp, Verdict
from tests.scenarios.run import Run

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

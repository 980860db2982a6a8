"""Claims about memory: shared blocks, pressure, pages, the margin, windows. See ``claims``."""

from typing import Any

from engine.core.observe import BlockOp, Verdict
from tests.scenarios.run import Run, prefill_of


def _stored_and_room(run: Run, step: int) -> tuple[int, int]:
    frame = run.frames[step]
    there = [view for view in frame.sequences.values() if view.change.place == "running"]
    held = sum(block != 0 for view in there for table in view.tables for block in table)
    return sum(view.change.computed for view in there), held * frame.page_size


# ---- prefix-sharing


def prefix_first(run: Run, step: int) -> list[Any]:
    published = [d for d in run.records[step].deltas if d.op is BlockOp.PUBLISH]
    assert len(published) == 112 // 16 and run.token_steps("A")[0] == step
    return [112]


def prefix_second(run: Run, step: int) -> list[Any]:
    hit = run.decision(step, "B", Verdict.ADMIT).a
    assert 0 < hit == run.frames[step].sequences[run.key("B")].change.cached_tokens
    assert prefill_of(run, step, "B").query == 112 - hit
    return [hit, 112]


def prefix_third(run: Run, step: int) -> list[Any]:
    entries, used = sum(run.held(step, name) for name in "ABC"), run.blocks(step, "owned")
    assert entries > used and run.decision(step, "C", Verdict.ADMIT).a > 0
    return [entries, used]


def prefix_left(run: Run, step: int) -> list[Any]:
    assert step == max(map(run.ended, "ABC")) and run.blocks(step, "owned") == 0
    return [run.blocks(step, "cached")]


def prefix_again(run: Run, step: int) -> list[Any]:
    assert step > max(map(run.ended, "ABC"))
    return [run.decision(step, "D", Verdict.ADMIT).a, 112]


# ---- recompute, offload


def pressure_begins(run: Run, step: int) -> list[Any]:
    assert all(run.held(later, name) > run.held(step, name) for name in "ABC" for later in (step + 20,))
    return [run.pool(), 16, run.blocks(step, "owned"), run.blocks(step, "free")]


def recompute_happens(run: Run, step: int) -> list[Any]:
    lost = run.decision(step, "C", Verdict.RECOMPUTE)
    assert lost.a in (run.key("A"), run.key("B")) and run.held(step, "C") == 0 and run.blocks(step - 1, "free") == 0
    return [lost.b]


def recompute_waits(run: Run, step: int) -> list[Any]:
    waits = run.decision(step, "C", Verdict.WAIT_BLOCKS)
    assert len(run.tokens("C", step)) == run.frames[step].sequences[run.key("C")].change.num_tokens - 64
    return [waits.a, waits.b, len(run.tokens("C", step))]


def recompute_again(run: Run, step: int) -> list[Any]:
    part = prefill_of(run, step, "C")
    assert part.past == 0 and part.query == 64 + len(run.tokens("C", step - 1))
    return [sum(p.query for p in run.slices(step))]


def recompute_price(run: Run, step: int) -> list[Any]:
    key, last = run.key("C"), run.ended("C")
    computed = sum(p.query for s in run.records for p in run.slices(s) if p.seq == key)
    twice = computed - (64 + 100 - 1)  # the last token is never computed
    assert step == last and twice > 0
    return [twice]


def offload_begins(run: Run, step: int) -> list[Any]:
    return [run.pool(), len(run.frames[step].host)]


def offload_happens(run: Run, step: int) -> list[Any]:
    moved = run.decision(step, "C", Verdict.OFFLOAD)
    copies = [d for d in run.records[step].deltas if d.op is BlockOp.OFFLOAD]
    assert moved.a in (run.key("A"), run.key("B")) and {d.seq for d in copies} == {run.key("C")}
    return [len(copies)]


def offload_waits(run: Run, step: int) -> list[Any]:
    waits, view = run.decision(step, "C", Verdict.WAIT_BLOCKS), run.frames[step].sequences[run.key("C")]
    assert view.change.computed == 64 + len(view.output) - 1  # every token but the newest is in its blocks
    return [len(view.host), waits.a, waits.b]


def offload_returns(run: Run, step: int) -> list[Any]:
    back = [d for d in run.records[step].deltas if d.op is BlockOp.RESTORE and d.seq == run.key("C")]
    assert step in run.token_steps("C") and run.decision(step, "C", Verdict.RESTORE).a == len(back)
    return [len(back)]


def offload_price(run: Run, step: int) -> list[Any]:
    computed = sum(p.query for s in run.records for p in run.slices(s) if p.seq == run.key("C"))
    assert step == run.ended("C") and computed == 64 + 100 - 1
    return [0]


# ---- large-pages, small-pages


def pages_begin(run: Run, step: int) -> list[Any]:
    assert {run.arrived(name) for name in "ABCDEF"} == {1}
    return [66, run.pool(), run.frames[0].page_size]


def pages_waste(run: Run, step: int) -> list[Any]:
    waits, (stored, room) = run.decision(step, "E", Verdict.WAIT_BLOCKS), _stored_and_room(run, step)
    return [waits.a, waits.b, room - stored, room]


def pages_later(run: Run, step: int) -> list[Any]:
    assert run.ended("A") == step - 1 and run.decision(step, "E", Verdict.ADMIT)
    return [len(run.tokens("A", step)), run.batches(1, step - 1)]


def pages_end(run: Run, step: int) -> list[Any]:
    assert step == max(map(run.ended, "ABCDEF"))
    return [6, run.batches(1, step)]


def small_begin(run: Run, step: int) -> list[Any]:
    large, small = run, run.frames[0]
    assert large.pool() * small.page_size == 512  # as much as eight blocks of 64
    return [run.pool(), small.page_size]


def small_waste(run: Run, step: int) -> list[Any]:
    (stored, room), running = _stored_and_room(run, step), len(run.slices(step))
    assert running == 6
    return [6, room - stored, room]


def small_tables(run: Run, step: int) -> list[Any]:
    return [run.held(step, "A"), run.frames[step].sequences[run.key("A")].change.computed]


def small_end(run: Run, step: int) -> list[Any]:
    assert all(run.steps_with(name, Verdict.ADMIT) == [1] for name in "ABCDEF")
    return pages_end(run, step)


# ---- safety-margin


def margin_holds(run: Run, step: int) -> list[Any]:
    waits = run.decision(step, "C", Verdict.WAIT_MARGIN)
    assert waits.b == run.pool() // 4 and waits.a < waits.b
    return [waits.b, run.pool(), waits.a]


def margin_gone(run: Run, step: int) -> list[Any]:
    assert run.records[step].settings["safety_margin"] == 0 and run.decision(step, "C", Verdict.ADMIT)
    return [run.batches(run.arrived("C"), step - 1), run.pool() - run.blocks(step, "owned")]


def margin_price(run: Run, step: int) -> list[Any]:
    assert run.decision(step, "C", Verdict.RECOMPUTE).a in (run.key("A"), run.key("B"))
    return []


def margin_end(run: Run, step: int) -> list[Any]:
    computed = sum(p.query for s in run.records for p in run.slices(s) if p.seq == run.key("C"))
    assert step == run.ended("C") and computed > 160 + 40 - 1
    return [computed - (160 + 40 - 1)]


# ---- sliding-window


def window_begins(run: Run, step: int) -> list[Any]:
    windows = run.frames[0].windows
    assert None in windows and 48 in windows
    return [48]


def window_first(run: Run, step: int) -> list[Any]:
    gone = [d for d in run.records[step].deltas if d.op is BlockOp.RECYCLE]
    table = run.frames[step].sequences[run.key("A")].tables[gone[0].group]
    assert run.recycled("A")[0] == step and table[gone[0].index] == 0
    assert step in run.token_steps("A")
    return []


def window_more(run: Run, step: int) -> list[Any]:
    windows = run.frames[0].windows
    full, some = windows.index(None), windows.index(48)
    counts = run.held(step, "A", full), run.held(step, "A", some)
    assert counts[0] > counts[1] and len([s for s in run.recycled("A") if s <= step]) >= 4
    return [run.frames[step].sequences[run.key("A")].change.computed, *counts]


def window_prompt(run: Run, step: int) -> list[Any]:
    assert run.recycled("B")[0] == step < run.token_steps("B")[0]
    return [128]

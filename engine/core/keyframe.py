"""From the live state to what is observed: events of a step, and keyframes."""

from dataclasses import asdict
from itertools import islice

from engine.core.journal import (
    MAX_WAITING_SHOWN,
    Journal,
    StepEvents,
    change_of,
    changes_of,
    decisions_of,
    deltas_of,
    info_of,
    make_events,
    slice_records,
)
from engine.core.layout import TRASH_BLOCK
from engine.core.observe import (
    OUTPUTS,
    BlockView,
    Decision,
    Keyframe,
    SequenceChange,
    SequenceView,
    SliceRecord,
    StepRecord,
)
from engine.core.packed import Packed
from engine.core.request import Sequence
from engine.core.state import State
from engine.core.steady import Steady

FREE = "free"
OWNED = "owned"
CACHED = "cached"


def start_recording(state: State, on: bool) -> None:
    """Switch the journal on or off, empty either way."""
    journal = state.journal
    if journal.on == on:
        return
    journal.on = on
    journal.clear()
    journal.steady = None
    journal.departed = []
    journal.decided = dict(state.decisions) if on else {}
    state.cache.pool.log = journal.deltas if on else None


def collect_events(state: State, step: int | None) -> StepEvents:
    """Close the current period and return what happened in it. Empty lists while recording is off."""
    journal, settings = state.journal, state.settings
    if journal.plan is None and journal.on:
        state.step = state.step + 1 if step is None else step
        state.cache.pool.step = state.step
    for seq in journal.departed:
        journal.decided.pop(seq.key, None)
    journal.departed = journal.ended
    slices, decisions, changes = _rows(journal)
    events = make_events(
        state.step if step is None else step,
        tuple(journal.requests),
        slices,
        decisions,
        deltas_of(journal.deltas),
        changes,
        OUTPUTS(journal.outputs),
        state.counters(),
        journal.plan.limit if journal.plan else "",
        settings.max_batch_tokens,
        settings.max_requests_per_batch,
        _waiting_keys(state),
        len(state.line),
        journal.settings,
    )
    journal.clear()
    # What happens before the next plan belongs to the next record.
    state.cache.pool.step = state.step + 1
    return events


def _rows(journal: Journal) -> tuple[Packed[SliceRecord], Packed[Decision], Packed[SequenceChange]]:
    """What a record says of sequences, told in terms of the steps before where it only goes on."""
    plan, steady = journal.plan, journal.steady
    decodes = (
        journal.decodes
        and plan is not None
        and not (journal.requests or journal.ended or journal.settings)
        and len(journal.decisions) == len(plan.slices)
    )
    if decodes and plan is not None and steady is not None:
        if steady.goes_on(plan, journal.touched, journal.outputs):
            took = journal.decisions if journal.deltas else ()
            return steady.slices, steady.decisions(took), steady.changes
    slices, decisions = slice_records(plan.slices if plan else ()), decisions_of(journal.decisions)
    changes = changes_of(journal.touched.values())
    journal.steady = Steady.begin(slices, decisions, changes, journal.outputs) if decodes else None
    return slices, decisions, changes


def live_keyframe(state: State, step: int, time: float, record: StepRecord | None = None) -> Keyframe:
    """Everything visible, read from the live state."""
    journal = state.journal
    sequences = {seq.key: seq for seq in [*journal.departed, *journal.ended, *state.sequences()]}
    decided = journal.decided if journal.on else state.decisions
    return Keyframe(
        step=step,
        time=time,
        page_size=state.layout.page_size,
        windows=tuple(group.window for group in state.layout.groups),
        blocks=_block_views(state),
        host=tuple(state.cache.host.owners),
        sequences={
            key: SequenceView(
                info_of(seq), change_of(seq), tuple(tuple(t) for t in seq.tables), tuple(seq.host),
                tuple(seq.tokens[seq.num_prompt :]), decided.get(key),
            )
            for key, seq in sorted(sequences.items())
        },
        waiting=_waiting_keys(state),
        counters=state.counters(),
        settings=asdict(state.settings),
        record=record,
    )  # fmt: skip


def _block_views(state: State) -> tuple[BlockView, ...]:
    pool = state.cache.pool
    owners: dict[int, list[tuple[int, int]]] = {}
    for seq in [*state.running.values(), *state.leaving.values()]:
        _add_owner(owners, seq)
    views = [BlockView()]
    for block in range(1, pool.num_blocks + 1):
        held = owners.get(block)
        published = pool.pages[block] is not None
        kind = OWNED if held else CACHED if published else FREE
        views.append(BlockView(kind, pool.groups[block], tuple(sorted(held or ())), published, pool.last_use[block]))
    return tuple(views)


def _add_owner(owners: dict[int, list[tuple[int, int]]], seq: Sequence) -> None:
    for table in seq.tables:
        for index, block in enumerate(table):
            if block != TRASH_BLOCK:
                owners.setdefault(block, []).append((seq.key, index))


def _waiting_keys(state: State) -> tuple[int, ...]:
    """Keys of the line, remembered while it does not change."""
    journal, line = state.journal, state.line
    if journal.waiting[0] != line.version:
        journal.waiting = (line.version, tuple([seq.key for seq in islice(line, MAX_WAITING_SHOWN)]))
    return journal.waiting[1]

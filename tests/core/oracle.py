"""What must hold, counted again from raw state. Shares no code with the scheduler's own ``check``.

Each function returns the list of broken rules, empty when all is well, so that a failure names everything at once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from engine.core.layout import TRASH_BLOCK, CacheLayout
from engine.core.observe import Keyframe
from engine.core.request import Sequence


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def most_blocks(layout: CacheLayout, length: int, budget: int) -> int:
    """Blocks that surely suffice for a sequence of ``length`` tokens computed in chunks of at most ``budget``."""
    full = ceil_div(length, layout.page_size)
    total = 0
    for group in layout.groups:
        if group.window is None:
            total += full
        else:
            total += min(full, ceil_div(group.window - 1 + min(budget, length), layout.page_size) + 1)
    return total


def owner_counts(sequences: Iterable[Sequence]) -> dict[int, int]:
    """Table entries pointing at each block, over all given sequences."""
    return Counter(b for seq in sequences for table in seq.tables for b in table if b != TRASH_BLOCK)


def check_blocks(layout: CacheLayout, frame: Keyframe, live: list[Sequence]) -> list[str]:
    """Pool arithmetic and owners, recounted from the block tables of the live sequences."""
    broken: list[str] = []
    owners: dict[int, list[tuple[int, int]]] = defaultdict(list)
    groups: dict[int, set[int]] = defaultdict(set)
    for seq in live:
        for group, table in enumerate(seq.tables):
            for index, block in enumerate(table):
                if block != TRASH_BLOCK:
                    owners[block].append((seq.key, index))
                    groups[block].add(group)
    if len(frame.blocks) != layout.num_blocks + 1:
        broken.append(f"{len(frame.blocks)} block views for a pool of {layout.num_blocks} and the trash block")
    if frame.blocks[TRASH_BLOCK].state != "free" or frame.blocks[TRASH_BLOCK].owners:
        broken.append("the trash block is in use")
    for block, view in enumerate(frame.blocks[1:], start=1):
        counted = sorted(owners.get(block, []))
        if sorted(view.owners) != counted:
            broken.append(f"block {block}: owners said {sorted(view.owners)}, counted {counted}")
        wanted = "owned" if counted else ("cached" if view.published else "free")
        if view.state != wanted:
            broken.append(f"block {block}: state {view.state}, should be {wanted}")
        if view.state == "free" and view.group != -1:
            broken.append(f"block {block}: free, yet of group {view.group}")
        if counted and groups[block] != {view.group}:
            broken.append(f"block {block}: said to be of group {view.group}, entries of groups {groups[block]}")
        if len(counted) > 1 and len({index for _, index in counted}) > 1:
            broken.append(f"block {block}: shared at different table indices {counted}")
    return broken


def check_host(layout: CacheLayout, frame: Keyframe, live: list[Sequence], emptied: set[int]) -> list[str]:
    """Host slots, recounted from the sequences. ``emptied`` slots belong to restores that are not applied yet."""
    broken: list[str] = []
    held: dict[int, tuple[int, int, int]] = {}
    for seq in live:
        for group, index, slot in seq.host:
            if slot in held:
                broken.append(f"host slot {slot} held by {held[slot]} and by sequence {seq.key}")
            held[slot] = (seq.key, group, index)
    if len(frame.host) != layout.host_blocks:
        broken.append(f"{len(frame.host)} host slots shown, {layout.host_blocks} exist")
    for slot, view in enumerate(frame.host):
        if view != held.get(slot) and not (slot in emptied and slot not in held):
            broken.append(f"host slot {slot}: said {view}, counted {held.get(slot)}")
    return broken


@dataclass
class Queues:
    """The scheduler's three read-only views as plain lists."""

    running: list[Sequence]
    waiting: list[Sequence]
    offloaded: list[Sequence]


def check_queues(
    queues: Queues, live: list[Sequence], leaving: list[Sequence], frame: Keyframe, rows: int
) -> list[str]:
    """Each live sequence in exactly one queue or on its way out, rows distinct and only where they belong."""
    broken: list[str] = []
    place = {"running": queues.running, "waiting": queues.waiting, "offloaded": queues.offloaded}
    seen = Counter(seq.key for members in place.values() for seq in members)
    for seq in live:
        places = seen.get(seq.key, 0) + (seq in leaving)
        if places != 1:
            broken.append(f"sequence {seq.key} ({seq.output_id}) is in {places} places")
    strangers = set(seen) - {seq.key for seq in live}
    if strangers:
        broken.append(f"sequences {sorted(strangers)} are queued but not live")
    taken = [seq.row for seq in [*queues.running, *leaving]]
    if len(set(taken)) != len(taken) or any(row < 0 for row in taken):
        broken.append(f"rows of running sequences: {taken}")
    if len(taken) > rows or any(row >= rows for row in taken):
        broken.append(f"rows {taken} with only {rows}")
    for name, members in (("waiting", queues.waiting), ("offloaded", queues.offloaded)):
        broken += [f"{name} sequence {seq.key} holds row {seq.row}" for seq in members if seq.row != -1]
    for seq in queues.waiting:
        if seq.computed or seq.host or any(b != TRASH_BLOCK for t in seq.tables for b in t):
            broken.append(f"waiting sequence {seq.key}: computed {seq.computed}, host {seq.host}, tables {seq.tables}")
    for seq in queues.offloaded:
        if any(b != TRASH_BLOCK for t in seq.tables for b in t):
            broken.append(f"offloaded sequence {seq.key} still holds blocks {seq.tables}")
    for name, members in place.items():
        for seq in members:
            view = frame.sequences.get(seq.key)
            if view is None or view.change.place != name:
                broken.append(f"sequence {seq.key} is {name}, shown as {view.change.place if view else 'absent'}")
    return broken


def check_sequence(layout: CacheLayout, seq: Sequence, frame: Keyframe) -> list[str]:
    """Bounds of one live sequence, and its view."""
    broken: list[str] = []
    who = f"sequence {seq.key}"
    if not 0 <= seq.in_flight <= seq.computed <= len(seq.tokens) + seq.pending:
        broken.append(f"{who}: in flight {seq.in_flight}, computed {seq.computed}, tokens {len(seq.tokens)}")
    if tuple(seq.tokens[: seq.num_prompt]) != seq.request.prompt_ids:
        broken.append(f"{who}: its prompt changed")
    if seq.row >= 0:
        for group in layout.groups:
            table = seq.tables[group.index]
            needed = 0 if group.window is None else max(0, seq.settled - group.window + 1)
            for index in range(needed // layout.page_size, ceil_div(seq.computed, layout.page_size)):
                if index >= len(table) or table[index] == TRASH_BLOCK:
                    broken.append(f"{who}: group {group.index} entry {index} of {table} is needed but not there")
    view = frame.sequences.get(seq.key)
    if view is None:
        return [*broken, f"{who}: not in the keyframe"]
    change = view.change
    shown = (change.computed, change.num_tokens, change.row, change.status, change.host_blocks, view.output)
    live = (seq.computed, len(seq.tokens), seq.row, seq.status, len(seq.host), tuple(seq.tokens[seq.num_prompt :]))
    if shown != live:
        broken.append(f"{who}: shown {shown}, is {live}")
    shown_tables = tuple(tuple(t) for t in seq.tables)
    if any(b != TRASH_BLOCK for t in seq.tables for b in t) and view.tables != shown_tables:
        broken.append(f"{who}: tables shown {view.tables}, are {shown_tables}")
    return broken

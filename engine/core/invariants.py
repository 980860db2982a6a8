"""What must hold between two calls of the scheduler. Used by tests after every step, and by the monitor's lamp."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING

from engine.core.allocators import pages_for
from engine.core.layout import TRASH_BLOCK
from engine.core.pages import Page, root_digest
from engine.core.plan import StepPlan
from engine.core.request import RequestStatus, Sequence
from engine.core.state import State
from engine.core.walk import PLANNED

if TYPE_CHECKING:
    from engine.core.scheduler import Scheduler


def check(scheduler: "Scheduler") -> list[str]:
    """Everything that is wrong with the scheduler's bookkeeping now, one sentence each. Empty when all is well.

    Counts everything anew from the tables: block states, references, contents of published blocks, host slots, the
    place of every sequence, rows, and what the steps in flight hold. Changes nothing.
    """
    state = scheduler.state
    return [
        *_check_pool(state),
        *_check_references(state),
        *_check_contents(state),
        *_check_host(state),
        *_check_places(state),
        *_check_rows(state),
        *(line for seq in [*state.running.values(), *state.leaving.values()] for line in _check_tables(state, seq)),
        *_check_flights(state),
    ]


def check_plan(scheduler: "Scheduler", plan: StepPlan) -> list[str]:
    """Everything that is wrong with a plan just made and not applied yet. Empty when all is well."""
    state, settings = scheduler.state, scheduler.settings
    wrong = _repeated("sequence with two decisions", (d.seq for d in plan.decisions))
    wrong += _repeated("sequence with two slices", (s.seq.key for s in plan.slices))
    planned = [d.seq for d in plan.decisions if d.verdict in PLANNED]
    if sorted(planned) != sorted(s.seq.key for s in plan.slices):
        wrong.append(f"slices for {sorted(s.seq.key for s in plan.slices)}, decisions for {sorted(planned)}")
    if plan.num_tokens > settings.max_batch_tokens:
        wrong.append(f"{plan.num_tokens} tokens planned, the limit is {settings.max_batch_tokens}")
    if len(plan.slices) > settings.max_requests_per_batch:
        wrong.append(f"{len(plan.slices)} rows planned, the limit is {settings.max_requests_per_batch}")
    written: list[tuple[int, int, int]] = []
    for piece in plan.slices:
        seq = piece.seq
        if piece.length < 1 or piece.start + piece.length != seq.computed:
            wrong.append(f"sequence {seq.key}: slice {piece.start}+{piece.length} does not end at {seq.computed}")
        known = len(seq.tokens) + (1 if piece.carry else 0)
        if piece.start + piece.length > known:
            wrong.append(f"sequence {seq.key}: slice ends at {piece.start + piece.length}, {known} tokens are known")
        if piece.samples != (piece.start + piece.length == known):
            wrong.append(f"sequence {seq.key}: samples={piece.samples} at {piece.start + piece.length} of {known}")
        for allocator in state.cache.allocators:
            table = seq.tables[allocator.index]
            if any(table[: allocator.first_kept(seq.settled)]):
                wrong.append(f"sequence {seq.key}: group {allocator.index} keeps blocks behind its window: {table}")
            for position in range(piece.start, piece.start + piece.length):
                page, slot = divmod(position, state.layout.page_size)
                written.append((allocator.index, table[page], slot))
    wrong += _repeated("slot written twice", written)
    wrong += [f"slot in the trash block written: {slot}" for slot in written if slot[1] == TRASH_BLOCK]
    wrong += _repeated("block copied to twice", [b for _, b in (*plan.copies.restore, *plan.copies.fork)])
    wrong += _repeated("host slot written twice", [slot for _, slot in plan.copies.offload])
    return wrong


def _check_pool(state: State) -> Iterator[str]:
    """Each block is in exactly one state: free, cached or owned."""
    pool = state.cache.pool
    free, cached = Counter(pool.free), set(pool.cached)
    yield from (f"block {b} is {n} times in the free list" for b, n in free.items() if n > 1)
    for block in range(1, pool.num_blocks + 1):
        states = (block in free, block in cached, pool.refs[block] > 0)
        if sum(states) != 1:
            yield f"block {block}: free={states[0]} cached={states[1]} owned={states[2]}, exactly one must hold"
        if pool.refs[block] < 0:
            yield f"block {block} has {pool.refs[block]} references"
        if block in cached and pool.pages[block] is None:
            yield f"block {block} is cached but not published"
        if block in free and (pool.pages[block] is not None or pool.groups[block] != -1):
            yield f"block {block} is free but published or in a group"
        if block not in free and not 0 <= pool.groups[block] < len(state.layout.groups):
            yield f"block {block} is in use in group {pool.groups[block]}"
    strangers = [b for b in [*free, *cached] if not 1 <= b <= pool.num_blocks]
    if strangers or pool.refs[TRASH_BLOCK] or pool.pages[TRASH_BLOCK] is not None:
        yield f"blocks {strangers} cannot be in the pool, or the trash block is in use"
    uses = [pool.last_use[block] for block in pool.cached]
    if uses != sorted(uses):
        yield f"cached blocks are not in order of their last use: {list(zip(pool.cached, uses, strict=True))}"


def _check_references(state: State) -> Iterator[str]:
    """References are the table entries that point at a block, counted anew."""
    pool = state.cache.pool
    counted: Counter[int] = Counter()
    for seq in state.sequences():
        for group, table in enumerate(seq.tables):
            for index, block in enumerate(table):
                if block == TRASH_BLOCK:
                    continue
                counted[block] += 1
                if pool.groups[block] != group:
                    yield f"sequence {seq.key} has block {block} of group {pool.groups[block]} in group {group}"
                end = (index + 1) * state.layout.page_size
                if pool.refs[block] > 1 and end > seq.settled:
                    yield f"block {block} is shared but sequence {seq.key} still writes it ({seq.settled} < {end})"
    for block in range(1, pool.num_blocks + 1):
        if pool.refs[block] != counted[block]:
            yield f"block {block} has {pool.refs[block]} references, table entries that point at it: {counted[block]}"


def _check_contents(state: State) -> Iterator[str]:
    """Published blocks hold what the prefix index says: digests computed anew, tokens those of their owners."""
    cache, pool = state.cache, state.cache.pool
    digests: dict[int, bytes] = {}
    published = [b for b in range(1, pool.num_blocks + 1) if pool.pages[b] is not None]
    if sorted(pool.index.values()) != published:
        yield f"the prefix index names {sorted(pool.index.values())}, published are {published}"
    for key, block in pool.index.items():
        page = pool.pages[block]
        if page is None:
            continue
        for link in _unknown_links(page, digests):
            above = digests[id(link.parent)] if link.parent is not None else root_digest(link.salt)
            digests[id(link)] = cache.prefix.digest(above, link.tokens)
        if digests[id(page)] != page.digest or key != pool.key(page, pool.groups[block]):
            yield f"block {block} is published under a digest that its tokens do not have"
    for seq in [*state.running.values(), *state.leaving.values()]:
        spelled: dict[int, int] = {}
        for table in seq.tables:
            for index, block in enumerate(table):
                page = pool.pages[block]
                if page is None:
                    continue
                end = (index + 1) * state.layout.page_size
                if end > seq.settled or _pages_spelled(page, seq.tokens, spelled) != index + 1:
                    yield f"block {block}, entry {index} of sequence {seq.key}, is published with other tokens"


def _check_host(state: State) -> Iterator[str]:
    """Every host slot is free, draining or owned by one parked sequence."""
    host = state.cache.host
    draining = [slot for _, slot in host.draining]
    owned = [(slot, (seq.key, group, index)) for seq in state.sequences() for group, index, slot in seq.host]
    slots = Counter([*host.free, *draining, *(slot for slot, _ in owned)])
    if slots != Counter(range(host.num_slots)):
        yield f"host slots are not each in one state: {dict(slots)}"
    owners = {slot: owner for slot, owner in enumerate(host.owners) if owner is not None}
    if owners != dict(owned):
        yield f"host slots belong to {owners}, the sequences say {dict(owned)}"


def _check_places(state: State) -> Iterator[str]:
    """Every sequence is in one place, and looks as one does there."""
    line = state.line
    places: dict[str, Iterable[Sequence]] = {
        "fresh": line.fresh.values(), "dropped": line.dropped, "parked": line.parked,
        "running": state.running.values(), "leaving": state.leaving.values(),
    }  # fmt: skip
    yield from _repeated("sequence in two places", (seq.key for seqs in places.values() for seq in seqs))
    for name, seqs in places.items():
        keys = [seq.key for seq in seqs]
        if name in ("fresh", "dropped", "parked") and keys != sorted(keys):
            yield f"{name} sequences are not in order of arrival: {keys}"
        for seq in seqs:
            idle = not seq.in_flight and not seq.pending and seq.row < 0 and not any(seq.tables)
            if name in ("fresh", "dropped"):
                right = idle and not seq.computed and not seq.host and seq.status is RequestStatus.PENDING
            elif name == "parked":
                right = idle and bool(seq.host) and seq.computed > 0 and seq.status < RequestStatus.FINISHED
            elif name == "running":
                right = seq.row >= 0 and not seq.host
                right = right and seq.status in (RequestStatus.PREFILLING, RequestStatus.DECODING)
            else:
                right = seq.row >= 0 and seq.in_flight > 0
            if not right:
                yield f"a sequence cannot be {name} like this: {_brief(seq)}"
    living = [s.key for seqs in places.values() for s in seqs if s.status < RequestStatus.FINISHED]
    known = [seq.key for family in state.families.values() for seq in family]
    if sorted(living) != sorted(known):
        yield f"living sequences are {sorted(living)}, the families name {sorted(known)}"
    if not set(state.rework) | set(state.held) | set(state.stops) | state.stateful | set(state.cache.prefix.chains) <= {
        s.key for seqs in places.values() for s in seqs
    }:
        yield "something is remembered about a sequence that is gone"


def _check_rows(state: State) -> Iterator[str]:
    taken = [seq.row for seq in [*state.running.values(), *state.leaving.values()]]
    if sorted([*taken, *state.rows.free]) != list(range(state.rows.made)):
        yield f"rows taken {sorted(taken)} and free {sorted(state.rows.free)} are not the {state.rows.made} made"


def _check_tables(state: State, seq: Sequence) -> Iterator[str]:
    """Tables cover what is computed, and hold every block that a query can still see."""
    pages = pages_for(seq.computed, state.layout.page_size)
    if any(len(table) != pages for table in seq.tables):
        yield f"sequence {seq.key} computed {seq.computed} tokens, its tables have {[len(t) for t in seq.tables]} pages"
    blocks = [block for table in seq.tables for block in table if block != TRASH_BLOCK]
    yield from _repeated(f"block twice in the tables of sequence {seq.key}", blocks)
    for allocator in state.cache.allocators:
        table = seq.tables[allocator.index]
        if TRASH_BLOCK in table[allocator.first_kept(seq.settled) :]:
            yield f"sequence {seq.key} lost a block inside the window of group {allocator.index}: {table}"
    if not 0 <= seq.settled <= len(seq.tokens) or seq.computed > len(seq.tokens) + seq.pending:
        yield f"sequence {seq.key} is ahead of its tokens: {_brief(seq)}"
    if seq.status < RequestStatus.FINISHED and seq.num_output > seq.request.max_new_tokens:
        yield f"sequence {seq.key} has {seq.num_output} new tokens, asked for {seq.request.max_new_tokens}"


def _check_flights(state: State) -> Iterator[str]:
    """Steps in flight hold just the tokens that sequences say are in flight."""
    in_flight: Counter[int] = Counter()
    samples: Counter[int] = Counter()
    for flight in state.flights:
        for piece in flight.plan.slices:
            in_flight[piece.seq.key] += piece.length
            samples[piece.seq.key] += piece.samples
    for seq in state.sequences():
        if seq.in_flight != in_flight[seq.key]:
            yield f"sequence {seq.key} has {seq.in_flight} tokens in flight, the plans say {in_flight[seq.key]}"
        if seq.key in state.running and bool(seq.pending) != bool(samples[seq.key]):
            yield f"sequence {seq.key}: pending={seq.pending}, samples in flight: {samples[seq.key]}"
    strangers = set(in_flight) - {seq.key for seq in state.sequences()}
    if strangers:
        yield f"steps in flight compute sequences that are gone: {sorted(strangers)}"


def _unknown_links(page: Page | None, known: Container[int]) -> list[Page]:
    """The page and those before it that are not known yet, first to last, so that no chain is walked twice."""
    links = []
    while page is not None and id(page) not in known:
        links.append(page)
        page = page.parent
    return links[::-1]


def _pages_spelled(page: Page, tokens: list[int], spelled: dict[int, int]) -> int:
    """How many pages the chain up to ``page`` has if it says just how ``tokens`` begin, else -1. Remembers answers."""
    for link in _unknown_links(page, spelled):
        before = spelled[id(link.parent)] if link.parent is not None else 0
        start = before * len(link.tokens)
        right = before >= 0 and list(link.tokens) == tokens[start : start + len(link.tokens)]
        spelled[id(link)] = before + 1 if right else -1
    return spelled[id(page)]


def _repeated(what: str, values: Iterable[object]) -> list[str]:
    return [f"{what}: {value} ({count} times)" for value, count in Counter(values).items() if count > 1]


def _brief(seq: Sequence) -> str:
    return (
        f"key={seq.key} status={seq.status.name} computed={seq.computed} in_flight={seq.in_flight} "
        f"pending={seq.pending} tokens={len(seq.tokens)} row={seq.row} tables={seq.tables} host={seq.host}"
    )

"""A KV cache without tensors: every slot remembers which token, after which prefix, was written there.

A real cache stores keys and values that depend on all tokens up to a position. Here a slot stores a *name* of that
prefix instead, so a read can be compared with what the reader must see. One rule finds wrong sharing, early reuse, lost
copies and bad chunk bounds alike: every key position inside the window of a query token must read back the name of its
own prefix.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.core.layout import TRASH_BLOCK, CacheLayout, LayerGroup
from engine.core.plan import Copies, Slice, StepPlan
from engine.core.request import Sequence

Entry = tuple[int, int, int]
"""(group, name of the prefix ending here, position)"""


class GhostError(AssertionError):
    """A query token would have read something else than its own past, or a write went where it must not."""


@dataclass
class PrefixNames:
    """A trie that numbers (salt, token prefix) pairs. Two prefixes are equal exactly when their numbers are."""

    nodes: dict[tuple[object, int], int] = field(default_factory=dict)

    def path(self, salt: bytes, tokens: Iterable[int]) -> list[int]:
        """Names of all non-empty prefixes of ``tokens``, shortest first."""
        names: list[int] = []
        parent: object = salt
        for token in tokens:
            name = self.nodes.setdefault((parent, token), len(self.nodes))
            names.append(name)
            parent = name
        return names


@dataclass
class _Query:
    """One slice made ready: its sequence, its bounds, and the names of its whole prefix."""

    slice: Slice
    tables: list[list[int]]
    names: list[int]


class GhostKV:
    """Executes plans in order on remembered names; ``run`` raises ``GhostError`` at the first wrong read or write.

    Attributes:
        sampled: the newest token drawn for each sequence key, known or still on its way to the scheduler.
        lost: host slots that a failed step should have filled.
    """

    def __init__(self, layout: CacheLayout) -> None:
        self.layout = layout
        self.names = PrefixNames()
        self.kv: dict[int, dict[int, Entry]] = {}
        self.host: dict[int, dict[int, Entry]] = {}
        self.sampled: dict[int, int] = {}
        self.lost: set[int] = set()

    def run(
        self, plan: StepPlan, free: Iterable[int], sealed: set[int], owners: dict[int, int], doomed: set[int]
    ) -> None:
        """Copies, then reads of the past, then writes, then every read again with the writes in place.

        Args:
            free: blocks nobody owns and nothing is cached in, as of this plan; what they hold is thrown away.
            sealed: blocks whose content is published; no step may write them.
            owners: number of table entries pointing at each block.
            doomed: keys of sequences whose reads do not matter any more; their writes still must go where they may.
        """
        self.run_copies(plan.copies)
        for block in free:
            self.kv.pop(block, None)
        queries = [self._query(s) for s in plan.slices]
        readers = [query for query in queries if query.slice.seq.key not in doomed]
        for query in readers:
            self._read(query, below=query.slice.start, step=plan.step)
        self._write(queries, sealed, owners, plan.step)
        for query in readers:
            self._read(query, below=query.slice.start + query.slice.length, step=plan.step)

    def run_copies(self, copies: Copies) -> None:
        for block, slot in copies.offload:
            self._expect(0 <= slot < self.layout.host_blocks, f"offload to host slot {slot}, which does not exist")
            self._expect(0 < block <= self.layout.num_blocks, f"offload of block {block}, which does not exist")
            self.host[slot] = dict(self.kv.get(block, {}))
            self.lost.discard(slot)
        for slot, block in copies.restore:
            self._expect(slot in self.host or slot in self.lost, f"restore from host slot {slot}, which holds nothing")
            self._expect(0 < block <= self.layout.num_blocks, f"restore into block {block}, which does not exist")
            self.kv[block] = self.host.pop(slot, {})
        for source, target in copies.fork:
            self._expect(0 < target <= self.layout.num_blocks, f"fork into block {target}, which does not exist")
            self.kv[target] = dict(self.kv.get(source, {}))

    def spoil(self, plan: StepPlan, seq: Sequence) -> None:
        """What this step wrote for ``seq`` turns into rubbish, as after a NaN in its row."""
        for s in plan.slices:
            if s.seq is not seq:
                continue
            for group in self.layout.groups:
                for position in range(s.start, s.start + s.length):
                    table = seq.tables[group.index] if group.index < len(seq.tables) else []
                    index = position // self.layout.page_size
                    if index < len(table) and table[index] != TRASH_BLOCK:
                        slot = position % self.layout.page_size
                        self.kv.setdefault(table[index], {})[slot] = (group.index, -1, position)

    def query_token(self, s: Slice) -> int:
        """The last query token of a slice: known, or the one the step before is drawing."""
        return self.sampled[s.seq.key] if s.carry else s.seq.tokens[s.start + s.length - 1]

    def _query(self, s: Slice) -> _Query:
        tokens = s.seq.tokens[: s.start + s.length - int(s.carry)]
        if s.carry:
            self._expect(s.length == 1, f"carry slice of {s.length} tokens")
            self._expect(s.seq.key in self.sampled, f"carry for {s.seq.output_id}, but no token is being drawn for it")
            self._expect(
                s.start == len(tokens), f"carry of {s.seq.output_id} starts at {s.start}, not after its tokens"
            )
            tokens = [*tokens, self.sampled[s.seq.key]]
        self._expect(len(tokens) == s.start + s.length, f"slice of {s.seq.output_id} goes past its tokens")
        return _Query(s, s.seq.tables, self.names.path(s.seq.request.salt, tokens))

    def _read(self, query: _Query, below: int, step: int) -> None:
        s = query.slice
        for group in self.layout.groups:
            # Every query sees itself, so together the windows cover all from the first query's oldest key to the end.
            oldest = 0 if group.window is None else max(0, s.start - group.window + 1)
            for position in range(oldest, min(s.start + s.length, below)):
                self._read_one(query, group, position, max(position, s.start), step)

    def _read_one(self, query: _Query, group: LayerGroup, position: int, q: int, step: int) -> None:
        index, slot = divmod(position, self.layout.page_size)
        table = query.tables[group.index]
        block = table[index] if index < len(table) else TRASH_BLOCK
        found = self.kv[block].get(slot) if block in self.kv else None
        wanted = (group.index, query.names[position], position)
        if block == TRASH_BLOCK or found != wanted:
            raise GhostError(
                f"step {step}: {query.slice.seq.output_id} query {q} reads position {position} of group {group.index}:"
                f" block {block} slot {slot} of table {table} holds {found}, wanted {wanted}"
            )

    def _write(self, queries: list[_Query], sealed: set[int], owners: dict[int, int], step: int) -> None:
        written: set[tuple[int, int]] = set()
        for query in queries:
            s = query.slice
            for group in self.layout.groups:
                for position in range(s.start, s.start + s.length):
                    who = f"step {step}: {s.seq.output_id} writes position {position} of group {group.index}"
                    index, slot = divmod(position, self.layout.page_size)
                    table = query.tables[group.index]
                    self._expect(index < len(table), f"{who}: its table has only {len(table)} entries")
                    block = table[index]
                    self._expect(block != TRASH_BLOCK, f"{who}: into the trash block, yet it sees itself")
                    self._expect(block not in sealed, f"{who}: block {block} is published")
                    self._expect(owners.get(block, 0) == 1, f"{who}: block {block} has {owners.get(block, 0)} owners")
                    self._expect((block, slot) not in written, f"{who}: block {block} slot {slot} is written twice")
                    written.add((block, slot))
                    self.kv.setdefault(block, {})[slot] = (group.index, query.names[position], position)

    @staticmethod
    def _expect(condition: bool, message: str) -> None:
        if not condition:
            raise GhostError(message)

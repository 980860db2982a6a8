"""Seeded faults: if one of these small edits went unnoticed, the tests beside this file would prove nothing."""

from collections.abc import Callable

import pytest

from tests.core.mutants import DoesNotApply, Mutant, applied, killed_by
from tests.core.scenarios import PROMPT, Walk, request, same_digest, world

CACHE = "engine.core.cache"
PREFIX = "engine.core.prefix"
POOL = "engine.core.block_pool"
HOST = "engine.core.host_pool"
ALLOCATORS = "engine.core.allocators"
ADMISSION = "engine.core.admission"
RUNNING = "engine.core.running"
PREEMPTION = "engine.core.preemption"
OUTCOME = "engine.core.outcome"
LIFECYCLE = "engine.core.lifecycle"
FOLD = "engine.core.fold"
STOP = "engine.core.stop"
POLICY = "engine.core.policy"

MUTANTS = [
    Mutant("the last block of a sequence is not released", CACHE,
           "for index in range(len(seq.tables[0]) - 1 if seq.tables else -1, -1, -1):",
           "for index in range(len(seq.tables[0]) - 2 if seq.tables else -1, -1, -1):"),
    Mutant("a window is one token short", ALLOCATORS,
           "return max(0, settled - self.window + 1) // self.page_size",
           "return max(0, settled - self.window + 2) // self.page_size"),
    Mutant("blocks are recycled as if the step in flight were done", CACHE,
           "index = allocator.first_kept(seq.computed - seq.in_flight) - 1",
           "index = allocator.first_kept(seq.computed) - 1"),
    Mutant("blocks behind a window are never recycled", CACHE,
           "            while index >= 0 and table[index] != TRASH_BLOCK:",
           "            while False and index >= 0 and table[index] != TRASH_BLOCK:"),
    Mutant("a recycled entry still points at its block", CACHE,
           "                table[index] = TRASH_BLOCK\n                index -= 1",
           "                index -= 1"),
    Mutant("pages are published before they are written", PREFIX,
           "        full = (seq.computed - seq.in_flight) // self.page_size\n",
           "        full = min(seq.computed, len(seq.tokens)) // self.page_size\n"),
    Mutant("a partial page is published", PREFIX,
           "        full = (seq.computed - seq.in_flight) // self.page_size\n",
           "        full = min(len(seq.tables[0]), -(-(seq.computed - seq.in_flight) // self.page_size))\n"),
    Mutant("tokens are not compared on a hit", POOL,
           "if block and self.verify and not same_prefix(self.pages[block], page):",
           "if False and not same_prefix(self.pages[block], page):"),
    Mutant("a prefix hit covers the last token too", PREFIX,
           "(len(seq.tokens) - 1) // self.page_size)",
           "len(seq.tokens) // self.page_size)"),
    Mutant("a shared block gains no reference", POOL,
           "        self.refs[block] += 1\n        self.last_use[block] = self.step",
           "        self.last_use[block] = self.step"),
    Mutant("a block is free while somebody else still holds it", POOL,
           "        if refs:\n            return False\n",
           "        if refs > 1:\n            return False\n"),
    Mutant("an evicted block can still be found", POOL,
           "        del self.index[self.key(page, self.groups[block])]\n        self.pages[block] = None",
           "        self.pages[block] = self.pages[block]"),
    Mutant("the most recently used block is evicted", POOL,
           "block = next(iter(self.cached))", "block = next(reversed(self.cached))"),
    Mutant("cached blocks are evicted though free ones are there", POOL,
           "        if self.free:\n            block = self.free.pop()",
           "        if self.free and not self.cached:\n            block = self.free.pop()"),
    Mutant("a sequence that ends while offloaded keeps its host slots", CACHE,
           "        freed = self.release(seq)\n        self.drop_host(seq)\n        self.prefix.forget(seq)\n"
           "        return freed\n\n    def restart",
           "        freed = self.release(seq)\n        self.prefix.forget(seq)\n"
           "        return freed\n\n    def restart"),
    Mutant("a host slot is filled again in the step that reads it", HOST,
           "        self.draining.append((step, slot))", "        self.free.append(slot)"),
    Mutant("a drained host slot never comes back", HOST,
           "self.free.extend(slot for at, slot in self.draining if at <= step)",
           "self.free.extend(slot for at, slot in self.draining if at < step)"),
    Mutant("restored blocks are swapped", CACHE,
           "            copies.append((slot, block))\n",
           "            copies.insert(0, (slot, copies[0][1] if copies else block))\n"),
    Mutant("the partial block of a sibling is not copied", CACHE,
           "zip(hit.fork, seq.tables, strict=False))", "zip(hit.fork[:0], seq.tables, strict=False))"),
    Mutant("a sibling writes into the block of the other", ADMISSION,
           "    walk.fork.extend(copies)\n",
           "    walk.fork.extend(copies)\n    for block, _ in copies:\n        seq.tables[0][-1] = block\n"),
    Mutant("a token in flight is not carried", RUNNING,
           "start, 1, True, pending > 0, output + pending))", "start, 1, True, False, output + pending))"),
    Mutant("the noise of a carried token is that of the one before", RUNNING,
           "start, 1, True, pending > 0, output + pending))", "start, 1, True, pending > 0, output))"),
    Mutant("one token more than asked for is planned", RUNNING,
           "output + pending >= seq.request.max_new_tokens", "output + pending > seq.request.max_new_tokens"),
    Mutant("the margin is ignored", ADMISSION,
           "if usable - need < state.margin and state.rows_taken:", "if False:"),
    Mutant("a request that is alone waits for blocks to start in one piece", ADMISSION,
           "    alone = not state.rows_taken\n    need =", "    alone = False\n    need ="),
    Mutant("an unfit head of the line is overtaken without limit", ADMISSION,
           "return (times if key == head.key else 0) < state.settings.skip_limit", "return True"),
    Mutant("a row is not given back", LIFECYCLE,
           "        state.rows.give_back(seq.row)\n", ""),
    Mutant("a preempted sequence keeps its row", PREEMPTION,
           "    state.rows.give_back(victim.row)\n    victim.row = -1\n", "    state.rows.give_back(victim.row)\n"),
    Mutant("the blocks of an ended sequence go back under a step in flight", LIFECYCLE,
           "    if seq.in_flight:\n        state.running.pop(seq.key, None)\n", "    if False:\n"),
    Mutant("a waiting decode gets no decision", RUNNING,
           "        walk.wait(seq, Verdict.WAIT_TOKENS, 1, 0, \"tokens\")", "        pass"),
    Mutant("a victim's decision tells the wrong number of blocks", PREEMPTION,
           "    freed = cache.pool.usable - before\n", "    freed = cache.pool.usable - before + 1\n"),
    Mutant("a victim is in flight", PREEMPTION,
           "(busy if other.in_flight else idle).append(other)", "idle.append(other)"),
    Mutant("pages of a failed row stay in the index", OUTCOME,
           "            cache.prefix.disown(seq)\n", "            pass\n"),
    Mutant("what a failed step should have offloaded is believed", OUTCOME,
           "    lost = {slot for _, slot in plan.copies.offload}\n", "    lost = set()\n"),
    Mutant("rows are counted without those that left", OUTCOME,
           "        if piece.samples:\n            row",
           "        if piece.samples and seq.key not in leaving:\n            row"),
    Mutant("after a preemption the recomputed tokens are not counted", RUNNING,
           "        count_rework(state, seq, start, length)", "        pass"),
    Mutant("decodes are held back for ever", POLICY,
           "return not held or max(held.values()) < settings.max_steps_without_decode", "return True"),
    Mutant("the fold forgets evictions", FOLD,
           "        block = self._look(delta.block)\n        block.published = False\n",
           "        block = self._look(delta.block)\n"),
    Mutant("a stop string is not matched over two tokens", STOP,
           "        self.held = text[len(text) - keep :]\n", "        self.held = \"\"\n"),
    Mutant("salts do not separate", PREFIX,
           "Chain(root_digest(seq.request.salt))", "Chain(root_digest(b\"\"))"),
]  # fmt: skip

def collide() -> None:
    """All pages have one digest, so only the comparison of tokens tells them apart."""
    harness = world(num_blocks=30, digest=same_digest)
    for i, prompt in enumerate((PROMPT, PROMPT[1:], PROMPT[::-1])):
        harness.submit(request(f"r{i}", prompt, 3, seed=i))
        harness.drain()


def alone() -> None:
    """One request that fits only in small chunks, and a margin that nobody could keep."""
    harness = world(windows=(3,), page_size=1, num_blocks=4, safety_margin=1.0)
    harness.submit(request("alone", PROMPT, 3))
    harness.drain()


def narrow() -> None:
    """Two decodes, and suddenly a budget for one."""
    harness = world()
    harness.submit(request("a", PROMPT[:1], 3))
    harness.submit(request("b", PROMPT[:1], 3))
    harness.step()
    harness.configure(max_batch_tokens=1)
    harness.drain()


def held_back() -> None:
    """A decode beside a prompt of many chunks, under a policy that prefers the chunks."""
    harness = world(policy="prefill_first", max_batch_tokens=4, max_steps_without_decode=2, num_blocks=40)
    harness.submit(request("decodes", PROMPT, 6))
    for _ in range(3):
        harness.step()
    harness.submit(request("arrives", PROMPT * 4, 2))
    harness.drain()


def offloaded_and_cancelled() -> None:
    harness = world(num_blocks=10, host_blocks=12)
    harness.submit(request("old", PROMPT, 10))
    harness.submit(request("new", PROMPT[1:], 10, seed=1))
    while not harness.queues().offloaded:
        harness.step()
    harness.cancel("new")
    harness.drain()


def walk(seed: int) -> Callable[[], object]:
    return lambda: Walk(seed).run()


def crowded(seed: int, fault: str = "") -> Callable[[], object]:
    def trial() -> None:
        walk = Walk(seed, crowded=True, faults=False)
        walk.harness.faults.step = fault
        walk.run(60)

    return trial


DIRECTED = (collide, alone, narrow, held_back, offloaded_and_cancelled, crowded(0, "offload"), crowded(23))
TELLING = (11, 13, 9, 34, 19, 5, 1, 2, 28)
"""Seeds of walks that break most edits; the other seeds follow only where these find nothing."""
TRIALS = [*DIRECTED, *map(walk, TELLING), *map(walk, range(100)), *(crowded(seed) for seed in range(60))]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name.replace(" ", "_"))
def test_a_seeded_fault_is_noticed(mutant: Mutant) -> None:
    cause = killed_by(mutant, TRIALS)
    assert cause, f"nobody notices when {mutant.name}"


def test_the_same_trials_pass_without_a_fault() -> None:
    for trial in TRIALS[: len(DIRECTED) + 4]:
        trial()


def test_a_mutant_that_does_not_apply_is_an_error() -> None:
    for old, new in (("no such text", ""), ("self", "this"), ("        return freed\n\n    def restart",) * 2):
        with pytest.raises(DoesNotApply), applied(Mutant("broken", CACHE, old, new)):
            pass


def test_the_edit_is_gone_afterwards() -> None:
    mutant = MUTANTS[0]
    assert killed_by(mutant, [walk(0)])
    walk(0)()

"""What a decode row promises about its next block, against the steps that really took one."""

import re
from dataclasses import dataclass, field

import pytest

from cbtui import sentences
from cbtui.model import MonitorState
from cbtui.offscreen import Offscreen
from cbtui.scenarios import find_scenario
from cbtui.theme import theme_named
from cbtui.view.chrome import Chrome
from cbtui.view.scene import Scene
from engine.core.observe import StepRecord, Verdict
from tests.scenarios.run import loaded_for
from tests.tui.scripted import make_rig, prompt

LOOK = theme_named("dark")
LEAVES = {Verdict.OFFLOAD, Verdict.RECOMPUTE, Verdict.CANCELLED, Verdict.FAILED}


@dataclass
class Watch:
    """The sentence of every decode row after every step, and the blocks of every table."""

    said: dict[tuple[int, int], str] = field(default_factory=dict)
    blocks: dict[tuple[int, int], int] = field(default_factory=dict)
    full: int = 0

    def look(self, state: MonitorState, past: int | None = None) -> None:
        scene = Scene.of(state, Chrome(past=past), LOOK)
        for key, live in scene.picture.sequences.items():
            story = state.story(key)
            self.blocks[scene.step, key] = len(live.tables[0])
            decision = scene.decision(story)
            if live.change.place == "running" and decision is not None and decision.verdict is Verdict.DECODE:
                self.said[scene.step, key] = sentences.why(scene, story)[0]
                self.full += live.change.computed % scene.picture.page_size == 0

    def check(self, records: dict[int, StepRecord]) -> tuple[int, int]:
        """Every promise against what came; how many came true, and how many ended without another block."""
        kept = without = 0
        for (step, key), words in self.said.items():
            found = re.search(r"next \d+ blocks? in (?:(\d+) steps|the next step)", words)
            assert found or "no new block needed any more" in words, words
            ahead = None if found is None else int(found[1] or 1)
            decodes = 0
            for later in range(step + 1, max(records) + 1):
                record = records[later]
                if any(d.seq == key and d.verdict in LEAVES for d in record.decisions):
                    break
                if any(part.seq == key for part in record.slices):
                    decodes += 1
                    before, after = self.blocks.get((later - 1, key), 0), self.blocks.get((later, key), 0)
                    ended = any(change.seq == key and change.place == "done" for change in record.changes)
                    taken = any(str(d.op) == "alloc" and d.seq == key for d in record.deltas)
                    assert taken == (decodes == ahead), (step, key, words, later)
                    assert ended or (after > before) == taken
                    if taken:
                        kept += 1
                        break
                if any(d.seq == key and d.verdict is Verdict.FINISHED for d in record.decisions):
                    assert ahead is None, (step, key, words, later)
                    without += 1
                    break
        return kept, without


@pytest.mark.parametrize("hybrid", [False, True])
def test_it_comes_in_the_step_that_was_said_live_and_in_the_past(hybrid):
    rig, live = make_rig(hybrid=hybrid, window=None if not hybrid else 24, num_blocks=60, page_size=8), Watch()
    for number, (length, new) in enumerate([(15, 30), (16, 40), (17, 9), (24, 1), (33, 26), (8, 2), (15, 10)]):
        rig.add(f"r{number}", prompt(number, length), new)
    while rig.scheduler.has_work:
        rig.step()
        live.look(rig.state)
    records = {record.step: record for record in rig.records}
    kept, without = live.check(records)
    assert kept > 50 and without > 8 and live.full > 10
    past = Watch()
    for step in range(1, rig.state.step):
        past.look(rig.state, step)
    assert past.said == {at: words for at, words in live.said.items() if at[0] < rig.state.step}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", ["first-tokens", "offload", "recompute"])
def test_it_comes_in_the_step_that_was_said_by_a_frame_without_a_terminal(name, asynchronous):
    scenario, watch = find_scenario(name), Watch()
    config = {**scenario.config, "host_blocks": scenario.host_blocks, "use_async_batching": asynchronous}
    monitor = Offscreen(loaded_for(scenario.model), config)
    step = monitor.step

    def watched() -> bool:
        worked = step()
        watch.look(monitor.state)
        return worked

    monitor.step = watched
    try:
        list(monitor.play(scenario))
        records, missed = monitor.engine.tap.read(0)
    finally:
        monitor.close()
    kept, without = watch.check({record.step: record for record in records})
    assert not missed and kept > 10 and without > 3 and watch.full > 2

"""A scenario run on a tiny model without threads, and the plain facts of its records, worked out a second time here."""

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from cbtui.offscreen import Offscreen
from cbtui.scenarios import find_scenario
from cbtui.scenarios.figures import Moment
from cbtui.scenarios.plot import Scenario
from engine.core.fold import fold
from engine.core.observe import BlockOp, Decision, Keyframe, StepRecord, Verdict
from engine.loading import load
from engine.run.facts import inspect_model
from tests.cli.tiny_files import make_tokenizer
from tests.tiny import tiny_model


def tiny_loaded(kind: str = "llama", **fields: Any) -> Any:
    """What loading a tiny model would give: one token a character, and a chat template of two characters."""
    model = tiny_model(kind, **fields)
    return SimpleNamespace(model=model, tokenizer=make_tokenizer(), name="tiny", facts=inspect_model(model))


LONG = "a way to come in: "
"""The beginning of a chat template with more tokens than those of the tiny models."""


@cache
def loaded_for(scenario_model: str, kind: str = "tiny") -> Any:
    """A stand-in for a bundled model: full attention, or windows as long as those of ``demo-hybrid``.

    Args:
        kind: "tiny", "wordy" (tiny, with a chat template that takes 20 tokens instead of two) or "bundled" (the model
            itself).
    """
    if kind == "bundled":
        return load(scenario_model, device="cpu", dtype="float32")
    loaded = tiny_loaded("gemma2", sliding_window=48) if scenario_model == "demo-hybrid" else tiny_loaded()
    if kind == "wordy":
        loaded.tokenizer.chat_template = LONG + loaded.tokenizer.chat_template
    return loaded


@dataclass
class Run:
    """Everything a scenario did.

    Attributes:
        told: (moment, wordings) of each caption, in the order they came.
        records: by step, from 1. frames: the full state after each step, frames[0] before the first.
    """

    scenario: Scenario
    told: list[tuple[Moment, tuple[str, ...]]]
    records: dict[int, StepRecord]
    frames: dict[int, Keyframe]
    refused: dict[str, str]

    def key(self, name: str) -> int:
        """The engine's number of a request."""
        return next(i.seq for r in self.records.values() for i in r.requests if i.request_id == name)

    def letter(self, name: str) -> str:
        """Letters go by arrival; refused ones take one too."""
        arrivals: list[str] = []
        for record in self.records.values():
            arrivals += [info.request_id for info in record.requests]
            arrivals += [ack.target for ack in record.commands if ack.kind == "add" and not ack.accepted]
        return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[arrivals.index(name)]

    def info(self, name: str) -> Any:
        return next(i for r in self.records.values() for i in r.requests if i.request_id == name)

    def decision(self, step: int, name: str, verdict: Verdict) -> Decision:
        """The decision of a step for a request, which must be there."""
        key = self.key(name)
        found = [d for d in self.records[step].decisions if d.seq == key and d.verdict is verdict]
        assert len(found) == 1, (step, name, verdict, self.records[step].decisions)
        return found[0]

    def steps_with(self, name: str, verdict: Verdict) -> list[int]:
        key = self.key(name)
        return [s for s, r in self.records.items() if any(d.seq == key and d.verdict is verdict for d in r.decisions)]

    def arrived(self, name: str) -> int:
        return next(s for s, r in self.records.items() if any(i.request_id == name for i in r.requests))

    def token_steps(self, name: str) -> list[int]:
        key = self.key(name)
        return [s for s, r in self.records.items() for o in r.outputs if o.seq == key]

    def tokens(self, name: str, step: int) -> tuple[int, ...]:
        key = self.key(name)
        return tuple(o.token for s, r in self.records.items() if s <= step for o in r.outputs if o.seq == key)

    def ended(self, name: str) -> int:
        key = self.key(name)
        return next(s for s, r in self.records.items() if any(c.seq == key and c.place == "done" for c in r.changes))

    def held(self, step: int, name: str, group: int | None = None) -> int:
        """Blocks a request's table points at after a step."""
        tables = self.frames[step].sequences[self.key(name)].tables
        chosen = tables if group is None else (tables[group],)
        return sum(block != 0 for table in chosen for block in table)

    def blocks(self, step: int, state: str) -> int:
        return sum(view.state == state for view in self.frames[step].blocks[1:])

    def pool(self) -> int:
        return len(self.frames[0].blocks) - 1

    def slices(self, step: int, kind: str = "") -> list[Any]:
        return [part for part in self.records[step].slices if part.kind == kind or not kind]

    def batches(self, first: int, last: int) -> int:
        """Steps from first to last that computed something."""
        return sum(bool(self.records[s].slices) for s in range(first, last + 1))

    def gap(self, name: str, step: int) -> int:
        """The most steps between two tokens of a request up to a step."""
        steps = [s for s in self.token_steps(name) if s <= step]
        return max(b - a for a, b in pairwise(steps))

    def recycled(self, name: str) -> list[int]:
        """Steps of a request's blocks that fell behind a window, one entry for each block."""
        key = self.key(name)
        return [s for s, r in self.records.items() for d in r.deltas if d.op is BlockOp.RECYCLE and d.seq == key]


@cache
def run_of(name: str, kind: str = "tiny") -> Run:
    """A bundled scenario, played to its end."""
    scenario = find_scenario(name)
    return play(scenario, loaded_for(scenario.model, kind))


def play(scenario: Scenario, loaded: Any, **config: Any) -> Run:
    """Plays a scenario headless; all its records are kept."""
    monitor = Offscreen(loaded, {**scenario.config, "host_blocks": scenario.host_blocks, **config})
    try:
        frames = {0: monitor.engine.keyframe()}
        told = [(moment, monitor.caption(scenario, moment).texts) for moment in monitor.play(scenario)]
        assert monitor.error is None
        records, missed = monitor.engine.tap.read(0)
        assert not missed
    finally:
        monitor.close()
    for record in records:
        frames[record.step] = fold(frames[record.step - 1], record)
    refused = {s.request_id: s.refusal for s in monitor.state.stories.values() if s.is_refused}
    return Run(scenario, told, {record.step: record for record in records}, frames, refused)


def numbers(text: str) -> list[str]:
    """All numbers in a text, in order; what an output says is left out."""
    return re.findall(r"\d+(?:\.\d+)?", re.sub(r"“[^”]*”", "", text))


def prefill_of(run: Run, step: int, name: str) -> Any:
    """The chunk of a request's prompt in a step, which must be there."""
    return next(part for part in run.slices(step, "prefill") if part.seq == run.key(name))

"""Small worlds and random walks through them: what the mutant tests and the determinism tests drive."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.cache import PagedCache
from engine.core.counters import Counters, Spans
from engine.core.layout import CacheLayout, LayerGroup, SchedulerSettings
from engine.core.observe import StepRecord
from engine.core.pages import page_digest
from engine.core.request import Request, SamplingParams
from tests.core import oracle
from tests.core.fake_model import ALPHABET, EOS, LETTERS
from tests.core.harness import Harness


def layout_of(
    windows: tuple[int | None, ...] = (None,), *, page_size: int = 2, num_blocks: int = 16, host_blocks: int = 0
) -> CacheLayout:
    """A layout with one layer group for each window."""
    groups = tuple(LayerGroup(i, window, (i,)) for i, window in enumerate(windows))
    return CacheLayout(page_size, groups, num_blocks, host_blocks)


def request(
    name: str,
    prompt: tuple[int, ...],
    new: int = 4,
    *,
    seed: int = 0,
    n: int = 1,
    eos: bool = False,
    stop: tuple[str, ...] = (),
    salt: bytes = b"",
    stateful: bool = False,
) -> Request:
    """A greedy request. A ``stateful`` one has a penalty, so no token of it can be planned before the last is known."""
    return Request(
        request_id=name,
        prompt_ids=prompt,
        sampling=SamplingParams(seed=seed, logprobs=0, repetition_penalty=1.1 if stateful else 1.0),
        max_new_tokens=new,
        eos_ids=frozenset({EOS}) if eos else frozenset(),
        stop_strings=stop,
        num_return_sequences=n,
        record_timestamps=True,
        salt=salt,
    )


PROMPT = (0, 1, 2, 0, 1, 2, 2, 1)


def world(depth: int = 0, **knobs: object) -> Harness:
    """A watched harness; ``knobs`` are those of the layout, ``digest`` of its pages, and the rest of the settings."""
    digest: Any = knobs.pop("digest", page_digest)
    shape: dict[str, Any] = {
        k: knobs.pop(k) for k in ("windows", "page_size", "num_blocks", "host_blocks") if k in knobs
    }
    chosen = {"max_batch_tokens": 12, "max_requests_per_batch": 4, "safety_margin": 0.0} | knobs
    layout = layout_of(**shape)
    settings = SchedulerSettings(**chosen)  # type: ignore[arg-type]
    return Harness(layout, settings, depth=depth, watched=True, cache=PagedCache(layout, digest))


def same_digest(parent: bytes, tokens: Sequence[int]) -> bytes:
    """A digest that tells nothing apart, so only the comparison of tokens does."""
    return b"always the same."


def output(harness: Harness, key: int) -> tuple[int, ...]:
    seq = next(s for s in harness.sequences if s.key == key)
    return tuple(seq.tokens[seq.num_prompt :])


def empty_record(step: int) -> StepRecord:
    return StepRecord(
        step=step,
        time=float(step),
        spans=Spans(),
        commands=(),
        requests=(),
        slices=(),
        decisions=(),
        deltas=(),
        changes=(),
        outputs=(),
        counters=Counters(),
        limit="",
        budget=8,
        rows=4,
        waiting=(),
    )


WINDOWS: tuple[tuple[int | None, ...], ...] = ((None,), (3,), (None, 4), (None, 2, 5), (None, 1), (6,), (None, 7, 3))


@dataclass(frozen=True)
class World:
    """The knobs of one scenario."""

    layout: CacheLayout
    settings: SchedulerSettings
    depth: int
    watched: bool
    tight: bool


def random_world(rng: random.Random) -> World:
    windows = rng.choice(WINDOWS)
    page_size = rng.choice((1, 1, 2, 2, 3, 4))
    tight = rng.random() < 0.6
    if tight:
        # The longest sequence and a half, so that the running ones grow into each other.
        longest = oracle.most_blocks(layout_of(windows, page_size=page_size), 20, 4)
        num_blocks = longest + rng.randint(0, longest // 2)
    else:
        num_blocks = rng.randint(3 * len(windows), 24)
    layout = layout_of(
        windows, page_size=page_size, num_blocks=num_blocks, host_blocks=rng.choice((0, 5, 12, 30) if tight else (0, 4))
    )
    settings = SchedulerSettings(
        policy=rng.choice(("fifo", "prefill_first")),
        max_batch_tokens=rng.choice((1, 2, 3, 4, 6, 8, 12, 12)),
        max_requests_per_batch=rng.randint(2, 4) if tight else rng.randint(1, 4),
        safety_margin=0.0 if tight else rng.choice((0.0, 0.15, 0.4)),
        allow_block_sharing=rng.random() < 0.8,
        skip_limit=rng.choice((0, 0, 2)),
        max_steps_without_decode=rng.choice((1, 3, 16)),
    )
    return World(layout, settings, depth=rng.randint(0, 1), watched=rng.random() < 0.5, tight=tight)


def random_request(rng: random.Random, name: str, tight: bool = False, stateful: float = 0.2) -> Request:
    """With ``tight`` the prompt is short and the output long: more are let in than can stay.

    ``stateful`` is the share of requests that wait for their last token before the next is planned.
    """
    length = rng.choice((1, 2, 3, 4) if tight else (1, 2, 3, 4, 6, 8, 11))
    # Few distinct prompts, so that prefixes meet.
    start = rng.choice(((0, 1, 2), (0, 1, 1), (2, 2, 2)))
    prompt = tuple(start[i % 3] if i < 7 or rng.random() < 0.7 else rng.randrange(ALPHABET) for i in range(length))
    return request(
        name,
        prompt,
        rng.choice((5, 12, 16) if tight else (1, 2, 4, 7, 10)),
        seed=rng.randrange(2),
        n=rng.choice((1, 1, 1, 2, 3)),
        eos=rng.random() < (0.1 if tight else 0.3),
        stop=(LETTERS[1] + LETTERS[2],) if rng.random() < (0.1 if tight else 0.3) else (),
        salt=rng.choice((b"", b"", b"", b"other")),
        stateful=rng.random() < stateful,
    )


def crowded_world(rng: random.Random) -> World:
    """Asynchronous, short of blocks, and with a host pool that is soon full."""
    windows = rng.choice(WINDOWS)
    page_size = rng.choice((1, 2))
    longest = oracle.most_blocks(layout_of(windows, page_size=page_size), 20, 4)
    layout = layout_of(
        windows,
        page_size=page_size,
        num_blocks=longest + rng.randint(0, longest // 2),
        host_blocks=rng.choice((5, 8, 12)),
    )
    settings = SchedulerSettings(max_batch_tokens=12, max_requests_per_batch=4, safety_margin=0.0)
    return World(layout, settings, depth=1, watched=False, tight=True)


class Walk:
    """A seeded random walk: the same seed makes the same commands, whatever hash seed or observer there is.

    Args:
        seed: of everything random.
        watched, depth: in place of what the seed would choose.
        faults: whether rows and steps fail.
        crowded: always under pressure, and most sequences wait for their last token.
    """

    def __init__(
        self,
        seed: int,
        *,
        watched: bool | None = None,
        depth: int | None = None,
        faults: bool = True,
        crowded: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        world = crowded_world(self.rng) if crowded else random_world(self.rng)
        self.tight = world.tight
        self.stateful = 0.6 if crowded else self.rng.choice((0.0, 0.2, 0.6))
        self.harness = Harness(
            world.layout,
            world.settings,
            depth=world.depth if depth is None else depth,
            watched=world.watched if watched is None else watched,
        )
        self.names: list[str] = []

    def run(self, moves: int = 40) -> Harness:
        for _ in range(moves):
            self.move()
        self.harness.drain()
        return self.harness

    def move(self) -> None:
        rng, harness = self.rng, self.harness
        kind = rng.choices(
            ("step", "submit", "cancel", "configure", "clear", "fail row", "fail step"),
            (20, 9, 1.5, 0.7, 0.4, 0.5 * self.faults, 0.3 * self.faults),
        )[0]
        if kind == "step":
            harness.step()
        elif kind == "submit":
            self.submit()
        elif kind == "cancel":
            harness.cancel(rng.choice(self.names) if self.names else "nobody")
        elif kind == "configure":
            harness.configure(**random_settings(rng))
        elif kind == "clear":
            harness.clear_cache()
        elif kind == "fail row":
            harness.faults.rows = {rng.randrange(3)}
        elif kind == "fail step":
            harness.faults.step = rng.choice(("before copies", "after copies", "offload"))

    def submit(self) -> None:
        """Now and then under a name that may still be alive."""
        rng = self.rng
        name = rng.choice(self.names) if self.names and rng.random() < 0.05 else f"r{len(self.names)}"
        self.names.append(name)
        self.harness.submit(random_request(rng, name, self.tight, self.stateful))


def random_settings(rng: random.Random) -> dict[str, object]:
    """One changed setting."""
    choices: dict[str, tuple[object, ...]] = {
        "policy": ("fifo", "prefill_first"),
        "max_batch_tokens": (1, 3, 7, 12),
        "max_requests_per_batch": (1, 2, 4),
        "safety_margin": (0.0, 0.3),
        "allow_block_sharing": (True, False),
        "skip_limit": (0, 1, 3),
        "max_steps_without_decode": (1, 4),
    }
    name = rng.choice(sorted(choices))
    return {name: rng.choice(choices[name])}

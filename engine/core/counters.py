"""Numbers a step record carries: the seconds of its parts, running totals, what ranks waited for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spans:
    """Exclusive wall-clock seconds of the parts of a step; they sum to the whole step."""

    commands: float = 0.0
    plan: float = 0.0
    launch: float = 0.0
    wait: float = 0.0
    apply: float = 0.0
    deliver: float = 0.0

    @property
    def total(self) -> float:
        return self.commands + self.plan + self.launch + self.wait + self.apply + self.deliver


@dataclass(frozen=True, slots=True)
class Counters:
    """Running totals since the engine was built. They never go down.

    The first five count sequences: ``accepted - finished - failed - cancelled`` of them have not ended. A refused
    request counts once.
    """

    accepted: int = 0
    rejected: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0  # query tokens computed that were not decode steps
    output_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens taken from the prefix cache
    lookups: int = 0  # admissions that asked the prefix cache (a retry of the same waiting request counts once)
    lookup_tokens: int = 0  # prompt tokens asked for in those look-ups
    evictions: int = 0
    offloads: int = 0  # sequences moved to the host pool
    restores: int = 0
    preemptions: int = 0  # sequences whose cache was dropped
    recomputed_tokens: int = 0
    offloaded_blocks: int = 0
    restored_blocks: int = 0


@dataclass(frozen=True, slots=True)
class RankWait:
    """What one of the processes of a split model waited for, in seconds.

    Attributes:
        rank: from 0, the one that plans.
        plan: between its last step and this one: for rank 0 to plan and send it, and for all ranks to be ready.
        tensors: in the step before, for the other ranks' parts of the tensors; -1 where the device does not tell.
    """

    rank: int
    plan: float
    tensors: float

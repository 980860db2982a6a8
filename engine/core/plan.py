"""The whole contract between the scheduler and whatever runs the model: a plan goes out, a result comes back."""

from dataclasses import dataclass, field

from engine.core.observe import Decision
from engine.core.request import Sequence


@dataclass(frozen=True, slots=True)
class Slice:
    """The tokens of one sequence that a step computes.

    ``length`` query tokens at positions ``start … start+length-1``. Their ids are ``seq.tokens[start:start+length]``,
    except that with ``carry`` the last one is the token the step in flight is sampling for this sequence right now
    (it is not in ``seq.tokens`` yet, and ``length`` is then 1).

    Attributes:
        seq: read by the runner during ``launch()`` only; the scheduler changes it afterwards.
        samples: whether the logits of the last query token are sampled.
        position: number of output tokens before the one sampled here (the position of its noise).
    """

    seq: Sequence
    start: int
    length: int
    samples: bool
    carry: bool = False
    position: int = 0


@dataclass(frozen=True, slots=True)
class Copies:
    """Block copies a step makes before its forward pass, in this order: offload, restore, fork.

    Attributes:
        offload: (block, host slot); restore: (host slot, block); fork: (source block, target block).
    """

    offload: tuple[tuple[int, int], ...] = ()
    restore: tuple[tuple[int, int], ...] = ()
    fork: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.offload or self.restore or self.fork)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: what to copy, what to compute, and why each candidate was treated as it was.

    Attributes:
        step: number of the step, from 1.
        slices: at most one per sequence; lengths sum to at most ``max_batch_tokens``.
        copies: block copies to make first.
        decisions: exactly one per visited candidate, in the order visited.
        limit: what ended the walk: ``"tokens"``, ``"rows"``, ``"blocks"`` or ``"margin"``; ``""`` for nothing.
    """

    step: int
    slices: tuple[Slice, ...]
    copies: Copies
    decisions: tuple[Decision, ...]
    limit: str = ""

    @property
    def num_tokens(self) -> int:
        return sum(s.length for s in self.slices)


@dataclass(slots=True)
class StepResult:
    """What came back. Lists run parallel to the plan's sampling slices, in plan order.

    Attributes:
        tokens: sampled token ids; -1 where the row failed.
        logprobs: raw log-probability of each sampled token, None for rows that did not ask; None when nobody did.
        top_logprobs: per row a tuple of (id, logprob), or None.
        failures: row number -> reason, for example ``"non-finite logits"``. Only that row's request fails.
        error: the whole step failed with this exception; every slice's request fails with it.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float | None] | None = None
    top_logprobs: list[tuple[tuple[int, float], ...]] | None = None
    failures: dict[int, str] = field(default_factory=dict)
    error: BaseException | None = None

"""Requests, the sequences they become, and what they return."""

import enum
from dataclasses import dataclass, field
from typing import Any


class RequestStatus(enum.IntEnum):
    """Where a request is in its life. ``>= FINISHED`` is terminal; the first five numbers follow ``transformers``."""

    PENDING = 0
    PREFILLING = 1
    DECODING = 2
    FINISHED = 3
    FAILED = 4
    CANCELLED = 5


class FinishReason(enum.StrEnum):
    """Why a request ended."""

    EOS = "eos"
    STOP_STRING = "stop_string"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the tokens of one request are drawn. Every value is this request's own; neighbours never matter.

    Attributes:
        temperature: > 0, or 0 for greedy.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: nucleus mass in (0, 1].
        min_p: keep tokens with at least this share of the top probability, in [0, 1].
        do_sample: False is greedy (the lowest index wins a tie), whatever the temperature.
        seed: noise is a function of (seed, position, token) only; None lets the engine draw one.
        repetition_penalty: > 0, over prompt + output; presence/frequency_penalty: over the output only.
        no_repeat_ngram: n-gram size that may not repeat, 0 is off.
        min_new_tokens: no end-of-sequence before this many new tokens.
        bad_words: token id sequences that may not be produced.
        logit_bias: token id -> value added to its logit.
        forced_first: token id the first new token is forced to, or None.
        logprobs: number of top log-probabilities wanted beside the sampled one; -1 asks for none at all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    do_sample: bool = False
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram: int = 0
    min_new_tokens: int = 0
    bad_words: tuple[tuple[int, ...], ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    forced_first: int | None = None
    logprobs: int = -1

    @property
    def is_greedy(self) -> bool:
        return not self.do_sample or self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller asked for, checked and complete. Never changes.

    Attributes:
        request_id: the caller's name for it, unique among live requests.
        prompt_ids: prompt token ids, at least one.
        sampling: how tokens are drawn.
        max_new_tokens: limit on new tokens, already lowered to the position limit.
        eos_ids: token ids that end the request; they are part of the output.
        stop_strings: texts that end the request; the text is cut before the match.
        num_return_sequences: how many sequences are drawn from this prompt.
        streaming: deliver partial outputs too.
        record_timestamps: keep the time of each token.
        created_time: seconds on the engine's monotonic clock.
        salt: mixed into content hashes; requests with different salts never share blocks.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams = SamplingParams()
    max_new_tokens: int = 20
    eos_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    num_return_sequences: int = 1
    streaming: bool = False
    record_timestamps: bool = False
    created_time: float = 0.0
    salt: bytes = b""


@dataclass(slots=True, eq=False)
class Sequence:
    """One stream of tokens of a request. Mutable; only the engine thread touches it.

    There is no phase flag: ``computed`` must catch up with ``tokens``. What is still missing is the next chunk::

        tokens    0 ........ settled ........ computed ........ len(tokens)
                  written & known | in flight | to be computed  |

    Attributes:
        key: number unique in this engine, in order of arrival; all observation types use it.
        child: 0 for the first sequence of a request, 1 … n-1 for its siblings.
        tokens: prompt then output ids. Never holds placeholders.
        num_prompt: prompt length; ``tokens[num_prompt:]`` is the output.
        computed: tokens whose keys and values are written or being written by a launched step.
        in_flight: how many of ``computed`` belong to a launched step that is not applied yet.
        pending: 1 while a launched step will produce this sequence's next token, else 0.
        tables: one position-indexed, append-only block table per layer group; entry i holds tokens
            [i*page_size, (i+1)*page_size). Entries behind a window are the trash block.
        host: while offloaded, (group, table index, host slot) of every block in the host pool.
        row: slot of this sequence among running ones (stable while it runs), -1 when it holds none.
        status: see RequestStatus.
        cached_tokens: prompt tokens taken from the prefix cache at the first admission.
        preemptions: how often it lost its place; recomputed: tokens computed again because of that.
    """

    key: int
    request: Request
    child: int
    tokens: list[int]
    num_prompt: int
    computed: int = 0
    in_flight: int = 0
    pending: int = 0
    tables: list[list[int]] = field(default_factory=list)
    host: list[tuple[int, int, int]] = field(default_factory=list)
    row: int = -1
    status: RequestStatus = RequestStatus.PENDING
    finish_reason: FinishReason | None = None
    error: str | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    recomputed: int = 0
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    timestamps: list[float] = field(default_factory=list)
    started_time: float = -1.0
    first_token_time: float = -1.0
    finished_time: float = -1.0
    text: str = ""

    @property
    def settled(self) -> int:
        return self.computed - self.in_flight

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def output_id(self) -> str:
        """Id it is delivered under: the request's id, or ``id__child#k`` for its k-th sibling, from 0."""
        base = self.request.request_id
        return base if self.child == 0 else f"{base}__child#{self.child - 1}"

    def twin(self) -> "Sequence":
        """An independent sequence in the same state for dry runs, without what was noted of its tokens and times.

        ``dataclasses.replace`` does the same three times as slowly, and a dry run copies everybody.
        """
        return Sequence(
            self.key, self.request, self.child, self.tokens[:], self.num_prompt, self.computed, self.in_flight,
            self.pending, [table[:] for table in self.tables], self.host[:], self.row, self.status, self.finish_reason,
            self.error, self.cached_tokens, self.preemptions, self.recomputed, [], [], [], self.started_time,
            self.first_token_time, self.finished_time, self.text,
        )  # fmt: skip


@dataclass(slots=True)
class GenerationOutput:
    """What a caller gets: the reference's fields, then ours.

    Attributes:
        request_id: id given or generated when the request was added.
        prompt_ids, generated_tokens: token ids.
        logprobs: natural log of the raw softmax (before temperature) of each generated token, when asked for.
        error: why it failed, else None.
        status: terminal unless this is a streaming partial.
        created_time: when it was added; lifespan: (started, finished); seconds on one monotonic clock, -1 for not yet.
        timestamps: time of each generated token when ``record_timestamps`` was set, else None.
        finish_reason: None on a partial output.
        text: decoded output (stop string removed) when the engine has a tokenizer and text was needed, else None.
        top_logprobs: per token, the (id, logprob) pairs asked for.
        cached_tokens: prompt tokens that came from the prefix cache.
        preemptions: how often the request lost its blocks or its place.
        time_to_first_token: seconds from created_time, or None.
    """

    request_id: str
    prompt_ids: list[int] = field(default_factory=list)
    generated_tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    error: str | None = None
    status: RequestStatus = RequestStatus.PENDING
    created_time: float = 0.0
    lifespan: tuple[float, float] = (-1.0, -1.0)
    timestamps: list[float] | None = None
    finish_reason: FinishReason | None = None
    text: str | None = None
    top_logprobs: list[Any] = field(default_factory=list)
    cached_tokens: int = 0
    preemptions: int = 0
    time_to_first_token: float | None = None

    def is_finished(self) -> bool:
        """True once the request reached a terminal state."""
        return self.status >= RequestStatus.FINISHED

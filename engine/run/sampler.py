"""From logits to tokens: every row by its own parameters, in one pass, without touching rows that need nothing."""

from dataclasses import dataclass, field
from typing import Protocol

import torch

from engine.core.errors import EngineError
from engine.core.plan import Slice
from engine.core.request import SamplingParams, Sequence
from engine.run.noise import gumbel, request_seed, step_key
from engine.run.processors import Edits, RowRules, changes_logits
from engine.run.upload import upload

SOUND, NOT_FINITE, NOTHING_LEFT = 0, 1, 2
REASONS = {NOT_FINITE: "non-finite logits", NOTHING_LEFT: "bans leave no token to choose"}

_NUCLEUS = 256
"""How many of the likeliest are sorted before more of a row is; the nucleus of a trained model is rarely wider."""


@dataclass(slots=True)
class _Row:
    """What is known of the sequence that holds a row: its seed, and its rules where it has any."""

    seq: Sequence
    plain: bool
    seed: int
    rules: RowRules | None


@dataclass(slots=True)
class SampleJob:
    """What the sampler has to know about a step, read at launch.

    Attributes:
        edits: changes to the logits, or None.
        drawn: rows that are drawn rather than greedy; ``params`` and ``keys`` run parallel to it.
        wanted: row -> number of top log-probabilities (0 for the sampled token's only).
    """

    count: int
    edits: Edits | None = None
    drawn: list[int] = field(default_factory=list)
    params: list[SamplingParams] = field(default_factory=list)
    keys: list[tuple[int, int]] = field(default_factory=list)
    wanted: dict[int, int] = field(default_factory=dict)


class Draw(Protocol):
    """Draws a token from each of some rows of logits [rows, vocabulary]; params and keys run parallel to ``rows``.

    Returns:
        int64 [len(rows)]; any token for a row whose largest logit is not finite.
    """

    def __call__(
        self, logits: torch.Tensor, rows: list[int], params: list[SamplingParams], keys: list[tuple[int, int]], /
    ) -> torch.Tensor: ...


@dataclass(slots=True)
class Sampled:
    """The outcome on the device.

    Attributes:
        tokens: int64 [rows].
        faults: int64 [rows], SOUND or why the row has no token; None: NOT_FINITE where the token is -1.
        logprobs: float32, raw log-probability of the sampled token of each wanted row, in the job's order; or None.
        top: row -> (log-probabilities, ids) of the likeliest tokens.
    """

    tokens: torch.Tensor
    faults: torch.Tensor | None = None
    logprobs: torch.Tensor | None = None
    top: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


class Sampler:
    """Draws one token per row. Keeps seed and rules of the sequence in each row while it runs."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rows: dict[int, _Row] = {}

    def prepare(self, slices: list[Slice]) -> SampleJob:
        """Read what the sampling slices ask for; after this the scheduler may change their sequences."""
        job = SampleJob(len(slices))
        for index, piece in enumerate(slices):
            seq = piece.seq
            row = self._rows.get(seq.row)
            if row is None or row.seq is not seq:
                row = self._rows[seq.row] = self._meet(seq)
            if not row.plain:
                self._read(job, index, piece, row)
        return job

    def _meet(self, seq: Sequence) -> _Row:
        params = seq.request.sampling
        rules = RowRules(seq) if changes_logits(params) else None
        plain = params.is_greedy and params.logprobs < 0 and rules is None
        return _Row(seq, plain, request_seed(self._seed, params.seed, seq.request.request_id, seq.child), rules)

    @staticmethod
    def _read(job: SampleJob, index: int, piece: Slice, row: _Row) -> None:
        params = row.seq.request.sampling
        if not params.is_greedy:
            job.drawn.append(index)
            job.params.append(params)
            job.keys.append(step_key(row.seed, piece.position))
        if params.logprobs >= 0:
            job.wanted[index] = params.logprobs
        if row.rules is not None:
            if piece.carry and row.rules.history is not None:
                raise EngineError(f"{row.seq.output_id} needs its last token before it is known; it may not be carried")
            if job.edits is None:
                job.edits = Edits()
            job.edits.add(index, row.rules, row.seq.tokens, piece.position)

    def sample(
        self, logits: torch.Tensor, job: SampleJob, greedy: torch.Tensor | None = None, draw: Draw | None = None
    ) -> Sampled:
        """Draw a token for each row.

        Args:
            logits: [rows, vocabulary], any float type; may be changed.
            job: from ``prepare``, for the same rows.
            greedy: int64 [rows], the lowest index of each row's largest logit, -1 for a row that is not finite, where
                whoever computed the logits knows it already.
            draw: draws instead of PyTorch.
        """
        if greedy is not None and job.edits is None and not job.drawn and not job.wanted:
            return Sampled(greedy)
        wanted = upload(list(job.wanted), logits.device) if job.wanted else None
        raw = None if wanted is None else logits[wanted].float().log_softmax(-1)
        tokens, faults = _largest(logits) if greedy is None else (greedy.clamp(min=0), (greedy < 0).long() * NOT_FINITE)
        if job.edits is not None:
            logits = logits.float()
            job.edits.apply(logits)
            rows = upload(job.edits.rows, logits.device)
            tokens[rows], changed = _largest(logits[rows])
            faults[rows] = torch.where(faults[rows] == SOUND, changed * NOTHING_LEFT, faults[rows])
        if job.drawn:
            rows = upload(job.drawn, logits.device)
            tokens[rows] = (draw or draw_rows)(logits, job.drawn, job.params, job.keys)
        if raw is None or wanted is None:
            return Sampled(tokens, faults)
        chosen = raw.gather(1, tokens[wanted, None]).squeeze(1)
        top = {row: tuple(raw[i].topk(n)) for i, (row, n) in enumerate(job.wanted.items()) if n}
        return Sampled(tokens, faults, chosen, top)  # type: ignore[arg-type]


def _largest(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The lowest index of each row's largest logit, and NOT_FINITE where that is no number (else SOUND)."""
    peak, tokens = logits.max(dim=-1)
    return tokens, (~peak.isfinite()).long() * NOT_FINITE


def draw_rows(
    logits: torch.Tensor, rows: list[int], params: list[SamplingParams], keys: list[tuple[int, int]]
) -> torch.Tensor:
    """See ``Draw``."""
    scores = logits[upload(rows, logits.device)].float()
    # A row that has failed is drawn from zeros, which keeps the arithmetic quiet.
    failed = ~scores.amax(-1, keepdim=True).isfinite()
    return draw(scores.masked_fill_(failed, 0.0), params, keys)


def draw(scores: torch.Tensor, params: list[SamplingParams], keys: list[tuple[int, int]]) -> torch.Tensor:
    """Temperature, then top-k, top-p and min-p, then the largest score plus Gumbel noise.

    The largest of ``score + Gumbel noise`` is distributed as the softmax of the scores. Tokens that tie with the last
    one kept by top-k, top-p or min-p are kept too. How a row is handled depends on its own parameters only.

    Args:
        scores: float32 [rows, vocabulary], finite peaks; changed.
        params, keys: one per row.

    Returns:
        int64 [rows] token ids.
    """
    scores /= upload([[p.temperature] for p in params], scores.device)
    kinds: dict[int, list[int]] = {}
    for row, p in enumerate(params):
        kinds.setdefault(_width(p, scores.shape[-1]), []).append(row)
    if len(kinds) == 1:
        return _draw_alike(scores, params, keys, next(iter(kinds)))
    tokens = torch.empty(len(params), dtype=torch.int64, device=scores.device)
    for width, members in kinds.items():
        where = upload(members, scores.device)
        tokens[where] = _draw_alike(scores[where], [params[m] for m in members], [keys[m] for m in members], width)
    return tokens


def _width(params: SamplingParams, vocabulary: int) -> int:
    """How many of the likeliest tokens to look at: 0 for all of them, unsorted."""
    if 0 < params.top_k < vocabulary:
        return min(vocabulary, max(64, 1 << params.top_k.bit_length()))
    return min(vocabulary, _NUCLEUS) if params.top_p < 1.0 else 0


def _draw_alike(
    scores: torch.Tensor, params: list[SamplingParams], keys: list[tuple[int, int]], width: int
) -> torch.Tensor:
    """Draw rows of one width."""
    device = scores.device
    if not width:
        if any(p.min_p > 0 for p in params):
            least = upload([[p.min_p] for p in params], device).log_()
            scores.masked_fill_(scores < scores.amax(-1, keepdim=True) + least, float("-inf"))
        return gumbel(keys, torch.arange(scores.shape[-1], device=device)).add_(scores).argmax(-1)
    shares = scores.softmax(-1) if any(p.top_k == 0 or p.top_k >= scores.shape[-1] for p in params) else None
    if device.type != "cpu":
        # Asking whether a few were enough would make the host wait for the device; sorting all is cheap there.
        return _draw_sorted(*scores.sort(dim=-1, descending=True), shares, params, keys)[0]
    tokens = torch.empty(len(params), dtype=torch.int64)
    rows = torch.arange(len(params))
    while len(rows):
        members = rows.tolist()
        best, ids = scores[rows].topk(width)
        some = None if shares is None else shares[rows]
        tokens[rows], enough = _draw_sorted(best, ids, some, [params[m] for m in members], [keys[m] for m in members])
        rows = rows[~enough]
        if width == scores.shape[-1]:
            break
        width = min(scores.shape[-1], 16 * width)
    return tokens


def _draw_sorted(
    best: torch.Tensor,
    ids: torch.Tensor,
    shares: torch.Tensor | None,
    params: list[SamplingParams],
    keys: list[tuple[int, int]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Filter and draw.

    Args:
        best, ids: [rows, width], the largest scores in falling order and their tokens.
        shares: [rows, vocabulary], probability of every token; None when all rows have a top-k.
        params, keys: one per row.

    Returns:
        int64 [rows] tokens, and bool [rows]: whether nothing beyond ``width`` could have been kept.
    """
    device, width = best.device, best.shape[1]
    limit = upload([[p.top_k if 0 < p.top_k < width else width] for p in params], device)
    limited = upload([[0 < p.top_k < width] for p in params], device)
    keep = ~limited | (best >= best.gather(1, limit - 1))
    tied = (limited & keep[:, -1:]).squeeze(1)  # more may tie with the last of top-k, and count for the shares
    # With top-k the nucleus is taken of what top-k left.
    share = best.masked_fill(~keep, float("-inf")).softmax(-1)
    if shares is not None:
        share = torch.where(limited, share, shares.gather(1, ids))
    before = share.cumsum(-1) - share
    top_p = upload([[p.top_p] for p in params], device)
    inside = keep & ((before < top_p) | (top_p >= 1.0))
    inside[:, 0] = True
    keep &= best >= best.masked_fill(~inside, float("inf")).amin(-1, keepdim=True)
    min_p = upload([[p.min_p] for p in params], device)
    keep &= (best >= best[:, :1] + min_p.log()) | (min_p <= 0)
    winner = gumbel(keys, ids).add_(best).masked_fill_(~keep, float("-inf")).argmax(-1, keepdim=True)
    return ids.gather(1, winner).squeeze(1), ~(keep[:, -1] | tied) | best[:, -1].isneginf()

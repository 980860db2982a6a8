"""From logits to tokens: every row by its own parameters, in one pass, without touching rows that need nothing."""

from dataclasses import dataclass, field

import torch

from engine.core.plan import Slice
from engine.core.request import SamplingParams
from engine.run.noise import gumbel, request_seed, step_key
from engine.run.processors import RowRequest, changes_logits, process

_NUCLEUS = 256
"""How many of the likeliest are sorted before the whole row is; the nucleus of a trained model is rarely wider."""


@dataclass(slots=True)
class SampleJob:
    """What the sampler has to know about a step, read at launch.

    Attributes:
        processed: rows whose logits are changed first.
        drawn: rows that are drawn rather than greedy; ``params`` and ``keys`` run parallel to it.
        wanted: row -> number of top log-probabilities (0 for the sampled token's only).
    """

    count: int
    processed: list[RowRequest] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)
    params: list[SamplingParams] = field(default_factory=list)
    keys: list[tuple[int, int]] = field(default_factory=list)
    wanted: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Sampled:
    """Tokens int64 [rows] and whether each row was sound, bool [rows], on the device; and the log-probabilities."""

    tokens: torch.Tensor
    sound: torch.Tensor
    logprobs: torch.Tensor | None = None
    top: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


class Sampler:
    """Draws one token per row. Keeps the seed of each running request."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._plain: dict[SamplingParams, bool] = {}

    def prepare(self, slices: list[Slice]) -> SampleJob:
        """Read what the sampling slices ask for; after this the scheduler may change their sequences."""
        job = SampleJob(len(slices))
        for row, piece in enumerate(slices):
            request = piece.seq.request
            params = request.sampling
            if self._is_plain(params):
                continue
            if not params.is_greedy:
                job.drawn.append(row)
                job.params.append(params)
                seed = request_seed(self._seed, params.seed, request.request_id, piece.seq.child)
                job.keys.append(step_key(seed, piece.position))
            if params.logprobs >= 0:
                job.wanted[row] = params.logprobs
            if changes_logits(params):
                tokens, prompt = tuple(piece.seq.tokens), piece.seq.num_prompt
                eos = tuple(sorted(request.eos_ids))
                job.processed.append(RowRequest(row, params, tokens, prompt, eos, piece.position))
        return job

    def _is_plain(self, params: SamplingParams) -> bool:
        """Greedy with nothing asked for. Remembered, because most requests of a batch share their parameters."""
        plain = self._plain.get(params)
        if plain is None:
            if len(self._plain) > 4096:
                self._plain.clear()
            plain = params.is_greedy and params.logprobs < 0 and not changes_logits(params)
            self._plain[params] = plain
        return plain

    def sample(self, logits: torch.Tensor, job: SampleJob) -> Sampled:
        """Draw a token for each row.

        Args:
            logits: [rows, vocabulary], any float type; may be changed.
            job: from ``prepare``, for the same rows.
        """
        logprobs, top = self._logprobs(logits, job)
        peak, tokens = logits.max(dim=-1)
        sound = peak.isfinite()
        if job.processed:
            logits = logits.float()
            process(logits, job.processed)
            rows = torch.tensor([request.row for request in job.processed], device=logits.device)
            tokens[rows] = logits[rows].argmax(dim=-1)
        if job.drawn:
            rows = torch.tensor(job.drawn, device=logits.device)
            scores = logits[rows].float()
            # A row without a finite peak would poison nothing but itself; zeros keep the arithmetic quiet.
            scores[~sound[rows]] = 0.0
            tokens[rows] = draw(scores, job.params, job.keys)
        chosen = None if logprobs is None else logprobs.gather(1, tokens[:, None]).squeeze(1)
        return Sampled(tokens, sound, chosen, top)

    @staticmethod
    def _logprobs(
        logits: torch.Tensor, job: SampleJob
    ) -> tuple[torch.Tensor | None, dict[int, tuple[torch.Tensor, torch.Tensor]]]:
        """Raw log-probabilities, before anything changes the logits: [rows, vocabulary], and each row's top ones."""
        if not job.wanted:
            return None, {}
        logprobs = logits.float().log_softmax(-1)
        return logprobs, {row: tuple(logprobs[row].topk(n)) for row, n in job.wanted.items() if n}  # type: ignore[misc]


def draw(scores: torch.Tensor, params: list[SamplingParams], keys: list[tuple[int, int]]) -> torch.Tensor:
    """Temperature, then top-k, top-p and min-p, then the largest score plus Gumbel noise.

    The largest of ``score + Gumbel noise`` is distributed as the softmax of the scores. Tokens that tie with the last
    one kept by top-k, top-p or min-p are kept too.

    Args:
        scores: float32 [rows, vocabulary], finite peaks; changed.
        params, keys: one per row.

    Returns:
        int64 [rows] token ids.
    """
    device, vocabulary = scores.device, scores.shape[-1]
    scores /= torch.tensor([[p.temperature] for p in params], device=device)
    top_k = [p.top_k if 0 < p.top_k < vocabulary else vocabulary for p in params]
    narrow = all(k <= _NUCLEUS for k in top_k) or all(p.top_p < 1.0 for p in params)
    if narrow:
        width = min(vocabulary, max(_NUCLEUS, max((k for k in top_k if k < vocabulary), default=0)))
        best, ids = scores.topk(width)
        kept, complete = _filter(best, torch.logsumexp(scores, -1, keepdim=True), top_k, params)
        if complete:
            return _pick(kept, ids, keys)
    best, ids = scores.sort(dim=-1, descending=True, stable=True)
    kept, _ = _filter(best, torch.logsumexp(scores, -1, keepdim=True), top_k, params)
    return _pick(kept, ids, keys)


def _filter(
    best: torch.Tensor, mass: torch.Tensor, top_k: list[int], params: list[SamplingParams]
) -> tuple[torch.Tensor, bool]:
    """Scores in falling order [rows, width] with those that are cut away at -inf, and whether ``width`` was enough."""
    device, width = best.device, best.shape[1]
    last = torch.tensor([[min(k, width) - 1] for k in top_k], device=device)
    limited = torch.tensor([[k <= width] for k in top_k], device=device)
    keep = ~limited | (best >= best.gather(1, last))
    # With top-k the nucleus is taken of what top-k left.
    total = torch.where(limited, best.masked_fill(~keep, float("-inf")).logsumexp(-1, keepdim=True), mass)
    share = (best - total).exp().masked_fill(~keep, 0.0)
    before = share.cumsum(-1) - share
    top_p = torch.tensor([[p.top_p] for p in params], device=device)
    inside = (before < top_p) | (top_p >= 1.0)
    edge = best.masked_fill(~(inside & keep), float("inf")).amin(-1, keepdim=True)
    keep &= best >= edge
    min_p = torch.tensor([[p.min_p] for p in params], device=device)
    keep &= (best >= best[:, :1] + min_p.log()) | (min_p <= 0)
    complete = bool((~keep[:, -1]).all()) or width >= max(top_k)
    return best.masked_fill(~keep, float("-inf")), complete


def _pick(kept: torch.Tensor, ids: torch.Tensor, keys: list[tuple[int, int]]) -> torch.Tensor:
    """The id whose score plus noise is largest."""
    winner = (kept + gumbel(keys, ids)).argmax(-1, keepdim=True)
    return ids.gather(1, winner).squeeze(1)

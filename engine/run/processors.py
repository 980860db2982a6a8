"""Per-request changes to the logits before a token is drawn, in the order ``transformers`` applies them.

Only rows that ask for something are touched. Histories are read when the step is launched, because the scheduler may
change the sequence afterwards.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from engine.core.request import SamplingParams


@dataclass(frozen=True, slots=True)
class RowRequest:
    """What processors need of one row.

    Attributes:
        row: index among the sampling rows.
        params: the request's own parameters.
        tokens: prompt and output ids so far; the first ``num_prompt`` are the prompt.
        eos_ids: ids that end the request.
        position: output tokens before the one drawn here. With a step in flight that is one more than ``tokens`` holds.
    """

    row: int
    params: SamplingParams
    tokens: tuple[int, ...]
    num_prompt: int
    eos_ids: tuple[int, ...]
    position: int


def changes_logits(params: SamplingParams) -> bool:
    """Whether these parameters ask for anything in this file."""
    return bool(
        params.repetition_penalty != 1.0
        or params.presence_penalty
        or params.frequency_penalty
        or params.no_repeat_ngram
        or params.min_new_tokens
        or params.bad_words
        or params.logit_bias
        or params.forced_first is not None
    )


def process(logits: torch.Tensor, requests: Iterable[RowRequest]) -> None:
    """Change the rows of float32 ``logits`` [rows, vocabulary] in place."""
    for request in requests:
        process_row(logits[request.row], request)


def process_row(row: torch.Tensor, request: RowRequest) -> None:
    """Apply everything one request asks for to its logits [vocabulary], in place."""
    params = request.params
    if params.logit_bias:
        ids, values = zip(*params.logit_bias, strict=True)
        row[list(ids)] += torch.tensor(values, device=row.device)
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(set(request.tokens)), device=row.device)
        scores = row[seen]
        row[seen] = torch.where(scores < 0, scores * params.repetition_penalty, scores / params.repetition_penalty)
    if (params.presence_penalty or params.frequency_penalty) and request.position:
        output = torch.tensor(request.tokens[request.num_prompt :], device=row.device)
        ids, counts = output.unique(return_counts=True)
        row[ids] -= params.presence_penalty + params.frequency_penalty * counts
    banned = [*_ngram_bans(request.tokens, params.no_repeat_ngram), *_word_bans(request.tokens, params.bad_words)]
    if request.position < params.min_new_tokens:
        banned.extend(request.eos_ids)
    if banned:
        row[banned] = float("-inf")
    if params.forced_first is not None and request.position == 0:
        row.fill_(float("-inf"))
        row[params.forced_first] = 0.0


def _ngram_bans(tokens: Sequence[int], size: int) -> list[int]:
    """Ids that would complete an n-gram that stands in the tokens already."""
    if not size or len(tokens) < size:
        return []
    tail = tuple(tokens[len(tokens) - size + 1 :])
    return [tokens[i + size - 1] for i in range(len(tokens) - size + 1) if tuple(tokens[i : i + size - 1]) == tail]


def _word_bans(tokens: Sequence[int], words: tuple[tuple[int, ...], ...]) -> list[int]:
    """Last ids of the words whose beginning has just been produced (a word of one id has no beginning)."""
    return [
        w[-1] for w in words if len(w) == 1 or (len(tokens) >= len(w) - 1 and tuple(tokens[1 - len(w) :]) == w[:-1])
    ]

"""Per-request changes to the logits before a token is drawn, in the order ``transformers`` applies them.

Only rows that ask for something are touched. What a row asks for is read when the step is launched, because the
scheduler may change the sequence afterwards; all rows that use the same processor are then changed together.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from engine.core.request import SamplingParams, Sequence
from engine.run.upload import upload


def changes_logits(params: SamplingParams) -> bool:
    """Whether these parameters ask for anything in this file."""
    asked = needs_history(params) or params.min_new_tokens or params.bad_words or params.logit_bias
    return bool(asked) or params.forced_first is not None


def needs_history(params: SamplingParams) -> bool:
    """Whether the tokens so far matter. Sequences that need them are not planned ahead of their own sampled token."""
    return bool(
        params.repetition_penalty != 1.0
        or params.presence_penalty
        or params.frequency_penalty
        or params.no_repeat_ngram
        or any(len(word) > 1 for word in params.bad_words)
    )


class History:
    """A sequence's tokens as an array that grows with them, so that a step adds the new ones only."""

    def __init__(self) -> None:
        self._ids = np.empty(64, np.int64)
        self._count = 0

    def update(self, tokens: list[int]) -> np.ndarray:
        """The first ``len(tokens)`` ids. ``tokens`` must begin with those of the last call."""
        have, want = self._count, len(tokens)
        if want > len(self._ids):
            self._ids = np.resize(self._ids, 2 * want)
        if want > have:
            self._ids[have:want] = tokens[have:]
        self._count = want
        return self._ids[:want]


@dataclass(slots=True)
class _Words:
    """Bad words of one length: their beginnings [n, length - 1] and last ids [n]."""

    heads: np.ndarray
    lasts: np.ndarray


class RowRules:
    """What one sequence asks for, made once and asked at every step."""

    def __init__(self, seq: Sequence) -> None:
        request = seq.request
        self.params, self.num_prompt = request.sampling, seq.num_prompt
        self.eos = np.array(sorted(request.eos_ids), np.int64)
        self.history = History() if needs_history(self.params) else None
        self._words = self._by_length(self.params.bad_words, request.eos_ids)

    @staticmethod
    def _by_length(words: tuple[tuple[int, ...], ...], eos_ids: frozenset[int]) -> list[_Words]:
        """As in ``transformers``, a bad word that is nothing but an end-of-sequence token is left out."""
        lengths: dict[int, list[tuple[int, ...]]] = {}
        for word in words:
            if not (len(word) == 1 and word[0] in eos_ids):
                lengths.setdefault(len(word), []).append(word)
        arrays = [np.array(same, np.int64) for same in lengths.values()]
        return [_Words(array[:, :-1], array[:, -1]) for array in arrays]

    def banned(self, history: np.ndarray | None, num_output: int) -> list[np.ndarray]:
        """Ids that may not come next, in several arrays."""
        bans = [self.eos] if num_output < self.params.min_new_tokens and len(self.eos) else []
        size = self.params.no_repeat_ngram
        if size and history is not None:
            bans.append(_completions(history, size))
        for words in self._words:
            begun = words.heads.shape[1]
            if not begun:
                bans.append(words.lasts)
            elif history is not None and begun <= len(history):
                bans.append(words.lasts[(words.heads == history[len(history) - begun :]).all(1)])
        return bans


def _completions(history: np.ndarray, size: int) -> np.ndarray:
    """Ids that would complete an n-gram that stands in the tokens already."""
    count = len(history) - size + 1
    if count <= 0:
        return history[:0]
    same = np.ones(count, bool)
    for j in range(size - 1):
        same &= history[j : j + count] == history[count + j]
    return history[size - 1 :][same]


@dataclass(slots=True)
class _Pairs:
    """(row, token id) pairs, collected row by row."""

    rows: list[int] = field(default_factory=list)
    ids: list[np.ndarray] = field(default_factory=list)

    def add(self, row: int, ids: np.ndarray) -> None:
        if len(ids):
            self.rows.append(row)
            self.ids.append(ids)

    def tensors(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        rows = np.repeat(self.rows, [len(ids) for ids in self.ids])
        return upload(rows, device), upload(np.concatenate(self.ids), device)


class Edits:
    """What a step changes in its logits, gathered row by row at launch."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._bias: list[tuple[int, int, float]] = []
        self._seen = _Pairs()
        self._penalties: list[float] = []
        self._output = _Pairs()
        self._counted: list[tuple[int, float, float]] = []
        self._banned = _Pairs()
        self._forced: list[tuple[int, int]] = []

    def add(self, row: int, rules: RowRules, tokens: list[int], num_output: int) -> None:
        """Read what one row asks for.

        Args:
            row: index among the sampling rows.
            rules: of its sequence.
            tokens: prompt and output ids known so far; complete where the rules need the history.
            num_output: output tokens before the one sampled now, one still in flight included.
        """
        params = rules.params
        history = None if rules.history is None else rules.history.update(tokens)
        self.rows.append(row)
        self._bias.extend((row, token, value) for token, value in params.logit_bias)
        if history is not None:
            if params.repetition_penalty != 1.0:
                self._seen.add(row, history)
                self._penalties.append(params.repetition_penalty)
            output = history[rules.num_prompt :]
            if (params.presence_penalty or params.frequency_penalty) and len(output):
                self._output.add(len(self._counted), output)
                self._counted.append((row, params.presence_penalty, params.frequency_penalty))
        for ids in rules.banned(history, num_output):
            self._banned.add(row, ids)
        if params.forced_first is not None and num_output == 0:
            self._forced.append((row, params.forced_first))

    def apply(self, logits: torch.Tensor) -> None:
        """Change float32 ``logits`` [rows, vocabulary] in place."""
        if self._bias:
            row, token, value = zip(*self._bias, strict=True)
            where = (self._tensor(row, logits), self._tensor(token, logits))
            logits.index_put_(where, self._tensor(value, logits), accumulate=True)
        if self._seen.rows:
            self._penalise_seen(logits)
        if self._counted:
            self._penalise_output(logits)
        if self._banned.rows:
            logits[self._banned.tensors(logits.device)] = float("-inf")
        if self._forced:
            rows, ids = (self._tensor(column, logits) for column in zip(*self._forced, strict=True))
            logits[rows] = float("-inf")
            logits[rows, ids] = 0.0

    @staticmethod
    def _tensor(values: tuple, like: torch.Tensor) -> torch.Tensor:
        return upload(values, like.device)

    def _penalise_seen(self, logits: torch.Tensor) -> None:
        where = self._seen.tensors(logits.device)
        sizes = [len(ids) for ids in self._seen.ids]
        penalty = upload(np.repeat(np.array(self._penalties, np.float32), sizes), logits.device)
        scores = logits[where]
        # A token that stands several times is written several times with the same value.
        logits[where] = torch.where(scores < 0, scores * penalty, scores / penalty)

    def _penalise_output(self, logits: torch.Tensor) -> None:
        which, ids = self._output.tensors(logits.device)
        counts = torch.zeros(len(self._counted), logits.shape[1], device=logits.device)
        counts.index_put_((which, ids), torch.ones((), device=logits.device), accumulate=True)
        row, presence, frequency = (self._tensor(column, logits) for column in zip(*self._counted, strict=True))
        logits[row] -= presence[:, None] * (counts > 0) + frequency[:, None] * counts

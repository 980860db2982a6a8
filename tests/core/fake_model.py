"""A token source that depends on the request alone, and what a request must therefore produce in any company."""

from dataclasses import dataclass
from functools import lru_cache

from engine.core.request import FinishReason, Request, Sequence

ALPHABET = 3
LETTERS = "abc"
EOS = 0


def draw(request: Request, child: int, position: int, last: int) -> int:
    """Output token number ``position`` after token ``last``: pure in the request's seed, the child, and these two."""
    mixed = (request.sampling.seed or 0) * 7919 + child * 104729 + position * 15485863 + (last + 2) * 32452843 + 12345
    mixed = (mixed ^ (mixed >> 13)) * 0x9E3779B1 & 0xFFFFFFFF
    return (mixed ^ (mixed >> 15)) % ALPHABET


def logprob(token: int, position: int) -> float:
    """A made-up log-probability that names its token and position."""
    return -(1.0 + token + position * ALPHABET) / 1024.0


def text_of(seq: Sequence) -> str:
    """The text of a sequence's newest token; one letter a token."""
    return LETTERS[seq.tokens[-1] % ALPHABET]


@dataclass(frozen=True)
class Expected:
    """All tokens a sequence ends with, why it ends, and its text (only with stop strings, else "")."""

    tokens: tuple[int, ...]
    reason: FinishReason
    text: str


@lru_cache(maxsize=4096)
def expected(request: Request, child: int) -> Expected:
    """The output of one sequence when nothing disturbs it, straight from the meaning of the request."""
    tokens: list[int] = []
    text = ""
    last = request.prompt_ids[-1]
    for position in range(request.max_new_tokens):
        last = draw(request, child, position, last)
        tokens.append(last)
        text += LETTERS[last]
        hits = [text.index(stop) for stop in request.stop_strings if stop in text]
        if last in request.eos_ids or hits:
            reason = FinishReason.EOS if last in request.eos_ids else FinishReason.STOP_STRING
            return Expected(tuple(tokens), reason, text[: min(hits, default=len(text))])
    return Expected(tuple(tokens), FinishReason.LENGTH, text)

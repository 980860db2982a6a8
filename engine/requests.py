"""User input to a checked ``Request``: types, ranges, defaults, precedence. Runs in the caller's thread."""

import difflib
import hashlib
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.core.errors import RequestError
from engine.core.request import Request, SamplingParams
from engine.inputs import token_ids
from engine.sampling_rules import check_value, id_sequences, token_biases, too_many_at_least

# Short names of per-request values.
ALIASES = {
    "no_repeat_ngram": "no_repeat_ngram_size",
    "bad_words": "bad_words_ids",
    "forced_first": "forced_bos_token_id",
}
SAMPLING_NAMES = (
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "min_new_tokens",
    "min_length",
    "max_length",
    "bad_words_ids",
    "suppress_tokens",
    "sequence_bias",
    "logit_bias",
    "forced_bos_token_id",
    "stop_token_ids",
    "logprobs",
)
_SEED_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a request.

    ``max_length`` is prompt + output in tokens the model's positions allow, None for no bound; ``pool_tokens`` is the
    longest sequence the block pool can hold alone.
    """

    vocab_size: int
    max_length: int | None
    pool_tokens: int


class RequestBuilder:
    """Checks what callers ask for and fills in the defaults.

    Args:
        limits: bounds of the model and of the pool.
        defaults: values of the generation config by name (see ``engine.generation``).
        model_eos: end-of-sequence ids of the model, for when neither request nor generation config has any.
        tokenizer: needed for prompts given as text and for stop strings.
        return_logprobs: whether requests return log-probabilities unless they say otherwise.
        seed: engine seed; requests without a seed of their own get one derived from it and their id. None draws one.
    """

    def __init__(
        self,
        limits: Limits,
        defaults: Mapping[str, Any],
        *,
        model_eos: Any = None,
        tokenizer: Any = None,
        return_logprobs: bool = False,
        seed: int | None = None,
    ) -> None:
        self.limits = limits
        self.defaults = dict(defaults)
        self.tokenizer = tokenizer
        self.return_logprobs = return_logprobs
        self._model_eos = model_eos
        self._seed = seed
        self._random = random.SystemRandom()

    def build(
        self,
        prompt: Any,
        *,
        request_id: str,
        created_time: float,
        max_new_tokens: int | None = None,
        streaming: bool = False,
        record_timestamps: bool = False,
        eos_token_id: Any = None,
        num_return_sequences: int | None = None,
        stop_strings: Any = None,
        seed: int | None = None,
        salt: bytes = b"",
        **sampling: Any,
    ) -> Request:
        """A complete request, or an error that names the value, its limit and what to try.

        Raises:
            TypeError: a value has the wrong type.
            RequestError: a value is out of range, a name is unknown, or the prompt is empty or too long.
        """
        if not isinstance(request_id, str):
            raise TypeError(f"request_id must be a str but is {type(request_id).__name__}")
        given = self._known({name: value for name, value in sampling.items() if value is not None})
        ids = self._checked_prompt(prompt)
        new_tokens = self._max_new_tokens(len(ids), max_new_tokens, given.pop("max_length", None))
        stops = self._stop_strings(stop_strings)
        eos = self._eos_ids(eos_token_id, given.pop("stop_token_ids", None))
        copies = self.defaults.get("num_return_sequences", 1) if num_return_sequences is None else num_return_sequences
        self._check("num_return_sequences", copies)
        if not isinstance(salt, bytes):
            raise TypeError(f"salt must be bytes but is {type(salt).__name__}")
        params = self._sampling(given, len(ids), new_tokens, self._request_seed(seed, request_id))
        return Request(
            request_id=request_id,
            prompt_ids=tuple(ids),
            sampling=params,
            max_new_tokens=new_tokens,
            eos_ids=eos,
            stop_strings=stops,
            num_return_sequences=copies,
            streaming=bool(streaming),
            record_timestamps=bool(record_timestamps),
            created_time=created_time,
            salt=salt,
        )

    def _known(self, sampling: dict[str, Any]) -> dict[str, Any]:
        """The per-request values under their full names; refuses a name nobody knows."""
        if "prompt_logprobs" in sampling:
            raise RequestError(
                "prompt_logprobs is not supported: log-probabilities are computed for generated tokens only; "
                "leave it out and use logprobs=n for the top n of each generated token"
            )
        known = {}
        for name, value in sampling.items():
            full = ALIASES.get(name, name)
            if full not in SAMPLING_NAMES:
                near = difflib.get_close_matches(name, [*SAMPLING_NAMES, *ALIASES, "seed", "stop_strings"], n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known names: {', '.join(SAMPLING_NAMES)}"
                raise RequestError(f"unknown sampling parameter {name!r}; {hint}")
            known[full] = value
        return known

    def _checked_prompt(self, prompt: Any) -> list[int]:
        ids = token_ids(prompt, self.tokenizer)
        if not ids:
            raise RequestError("the prompt is empty; a request needs at least one token (a start token will do)")
        if min(ids) < 0 or max(ids) >= self.limits.vocab_size:
            index, bad = next((i, t) for i, t in enumerate(ids) if not 0 <= t < self.limits.vocab_size)
            raise RequestError(
                f"token {index} of the prompt is {bad}, outside 0 … {self.limits.vocab_size - 1}; "
                "was it made with another model's tokenizer?"
            )
        limit = self.limits.max_length
        if limit is not None and len(ids) > limit:
            raise RequestError(f"the prompt has {len(ids)} tokens but the model allows {limit}; shorten it")
        return ids

    def _max_new_tokens(self, prompt: int, given: Any, max_length: Any) -> int:
        """New tokens allowed: request, then generation config, then all there is room for; never past the positions."""
        wanted = given
        if wanted is None and max_length is None:
            wanted = self.defaults.get("max_new_tokens")
        if wanted is not None:
            self._check("max_new_tokens", wanted)
        if wanted is None:
            length = max_length if max_length is not None else self.defaults.get("max_length")
            if length is not None:
                self._check("max_length", length)
                if length < prompt:
                    raise RequestError(
                        f"max_length={length} is less than the prompt's {prompt} tokens; raise it or use max_new_tokens"
                    )
                wanted = length - prompt
        positions = math.inf if self.limits.max_length is None else self.limits.max_length - prompt
        if wanted is None:
            # At least one: a prompt that leaves no room in the pool is for the scheduler to refuse, with its numbers.
            wanted = max(1, self.limits.pool_tokens - prompt)
        return int(min(wanted, positions))

    def _stop_strings(self, given: Any) -> tuple[str, ...]:
        value = given if given is not None else self.defaults.get("stop_strings", ())
        stops = (value,) if isinstance(value, str) else tuple(value)
        for stop in stops:
            if not isinstance(stop, str):
                raise TypeError(f"stop strings must be str but one is {type(stop).__name__} ({stop!r})")
            if not stop:
                raise RequestError("a stop string is empty and would match at once; leave it out")
        if stops and self.tokenizer is None:
            raise RequestError("stop strings need a tokenizer: give the manager one, or use stop_token_ids")
        return stops

    def _eos_ids(self, given: Any, extra: Any) -> frozenset[int]:
        """Request, then generation config, then model; a negative id means "none"; ``extra`` always stops too."""
        value = given
        if value is None:
            value = self.defaults.get("eos_token_id")
        if value is None:
            value = self._model_eos
        eos = set() if value is None else {token for token in _ids("eos_token_id", value) if token >= 0}
        eos |= set() if extra is None else set(_ids("stop_token_ids", extra))
        for token in eos:
            if not 0 <= token < self.limits.vocab_size and (given is not None or extra is not None):
                raise RequestError(f"stop token id {token} is outside 0 … {self.limits.vocab_size - 1}")
        return frozenset(eos)

    def _request_seed(self, given: Any, request_id: str) -> int:
        if given is not None:
            return self._check("seed", given)
        if "seed" in self.defaults:
            return self._check("seed", self.defaults["seed"])
        if self._seed is None:
            return self._random.randrange(_SEED_LIMIT)
        digest = hashlib.blake2b(f"{self._seed}:{request_id}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % _SEED_LIMIT

    def _sampling(self, given: dict[str, Any], prompt: int, new_tokens: int, seed: int) -> SamplingParams:
        vocab = self.limits.vocab_size
        for name, value in given.items():
            self._check(name, value)

        def pick(name: str, otherwise: Any) -> Any:
            return given[name] if name in given else self._default(name, otherwise)

        chosen = any(name in given for name in ("temperature", "top_k", "top_p", "min_p"))
        do_sample = given.get("do_sample", True if chosen else bool(self._default("do_sample", False)))
        least = {"min_new_tokens": pick("min_new_tokens", 0), "min_length": pick("min_length", 0) - prompt}
        name = max(least, key=least.__getitem__)
        shortest = least[name]
        if shortest > new_tokens and ("min_new_tokens" in given or "min_length" in given):
            raise too_many_at_least(f"{name}={pick(name, 0)}", shortest, new_tokens, prompt, self.limits.max_length)
        banned = id_sequences("bad_words_ids", pick("bad_words_ids", ()), vocab)
        banned += tuple((token,) for token in _ids("suppress_tokens", pick("suppress_tokens", ())))
        logprobs = pick("logprobs", self.return_logprobs)
        return SamplingParams(
            temperature=float(pick("temperature", 1.0)),
            top_k=min(pick("top_k", 0), vocab),
            top_p=float(pick("top_p", 1.0)),
            min_p=float(pick("min_p", 0.0)),
            do_sample=do_sample,
            seed=seed,
            repetition_penalty=float(pick("repetition_penalty", 1.0)),
            presence_penalty=float(pick("presence_penalty", 0.0)),
            frequency_penalty=float(pick("frequency_penalty", 0.0)),
            no_repeat_ngram=pick("no_repeat_ngram_size", 0),
            min_new_tokens=max(0, min(shortest, new_tokens)),
            bad_words=banned,
            logit_bias=token_biases({**dict(_pairs(pick("sequence_bias", {}))), **given.get("logit_bias", {})}, vocab),
            forced_first=pick("forced_bos_token_id", None),
            logprobs=(0 if logprobs else -1) if isinstance(logprobs, bool) else logprobs,
        )

    def _default(self, name: str, otherwise: Any) -> Any:
        """The generation config's value, checked like a request's, except that 0 may mean "off" for top_k."""
        value = self.defaults.get(name)
        if value is None or (name == "top_k" and value == 0):
            return otherwise
        return self._check(name, min(value, self.limits.vocab_size) if name == "top_k" else value)

    def _check(self, name: str, value: Any) -> Any:
        if name == "top_k" and value == 0 and type(value) is int:
            # leaving it out would take the generation config's, so the advice is the number that keeps all
            size = self.limits.vocab_size
            limits = f"it must be between 1 and the vocabulary size ({size})"
            raise RequestError(f"top_k=0 is out of range: {limits}; pass top_k={size} to keep all tokens")
        return check_value(name, value, self.limits.vocab_size)


def _ids(name: str, value: Any) -> tuple[int, ...]:
    """One id or many as a tuple of ints."""
    value = value.tolist() if hasattr(value, "tolist") else value
    values: Iterable[Any] = value if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (value,)
    result = []
    for token in values:
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise TypeError(f"{name} holds {type(token).__name__} ({token!r}); token ids are ints")
        result.append(int(token))
    return tuple(result)


def _pairs(bias: Any) -> Iterable[tuple[Any, float]]:
    """(token ids, bias) pairs of a ``sequence_bias`` given as a mapping or as a list of [ids, bias]."""
    if isinstance(bias, Mapping):
        return bias.items()
    return [(tuple(ids), value) for ids, value in bias]

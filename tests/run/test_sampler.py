"""Each processor against ``transformers``' own, filters and noise, and rows that keep to themselves."""

import dataclasses
import math

import pytest
import torch
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.core.errors import EngineError
from engine.core.plan import Slice
from engine.core.request import Request, SamplingParams, Sequence
from engine.run.noise import _hashed, _signed, _to_gumbel, gumbel, request_seed, step_key
from engine.run.processors import Edits, RowRules
from engine.run.sampler import NOT_FINITE, NOTHING_LEFT, SOUND, Sampler

VOCAB = 97


def logits_of(rows: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def sampling_slice(params: SamplingParams, tokens=(1, 2, 3), num_prompt=2, request_id="r", child=0, eos=()) -> Slice:
    request = Request(request_id, tuple(tokens[:num_prompt]), params, eos_ids=frozenset(eos))
    seq = Sequence(0, request, child, list(tokens), num_prompt)
    return Slice(seq, len(tokens) - 1, 1, True, position=len(tokens) - num_prompt)


def sample(logits: torch.Tensor, slices: list[Slice], seed: int = 0):
    sampler = Sampler(seed)
    return sampler.sample(logits.clone(), sampler.prepare(slices))


HISTORY = (5, 6, 7, 5, 6, 9, 5, 6)
PROCESSORS = [
    ({"repetition_penalty": 1.7}, RepetitionPenaltyLogitsProcessor(1.7)),
    ({"no_repeat_ngram": 2}, NoRepeatNGramLogitsProcessor(2)),
    ({"no_repeat_ngram": 3}, NoRepeatNGramLogitsProcessor(3)),
    ({"bad_words": ((3,), (5, 6, 7), (6, 8), (9, 8))}, NoBadWordsLogitsProcessor([[3], [5, 6, 7], [6, 8], [9, 8]])),
    ({"logit_bias": ((4, 2.5), (11, -3.0))}, SequenceBiasLogitsProcessor({(4,): 2.5, (11,): -3.0})),
    ({"min_new_tokens": 6}, MinNewTokensLengthLogitsProcessor(3, 6, [8, 12])),
    ({"min_new_tokens": 5}, MinNewTokensLengthLogitsProcessor(3, 5, [8, 12])),
]


def edited(logits: torch.Tensor, *rows: tuple[SamplingParams, tuple[int, ...], int]) -> torch.Tensor:
    """``logits`` after what every row (parameters, tokens, prompt length) asks for; 8 and 12 end it."""
    edits, logits = Edits(), logits.clone()
    for row, (params, tokens, num_prompt) in enumerate(rows):
        seq = sampling_slice(params, tokens, num_prompt, eos=(8, 12)).seq
        edits.add(row, RowRules(seq), seq.tokens, len(tokens) - num_prompt)
    edits.apply(logits)
    return logits


@pytest.mark.parametrize(("fields", "theirs"), PROCESSORS, ids=[str(fields) for fields, _ in PROCESSORS])
def test_processors_equal_those_of_transformers(fields, theirs):
    logits = logits_of(1)
    expected = theirs(torch.tensor([HISTORY]), logits.clone())
    torch.testing.assert_close(edited(logits, (SamplingParams(**fields), HISTORY, 3)), expected)


def test_processors_together_equal_those_of_transformers_one_after_the_other():
    """All of one row in the order generate applies them, in the company of rows that ask for other things."""
    everything: dict = {}
    expected = logits_of(3)[1:2]
    for fields, theirs in (PROCESSORS[i] for i in (4, 0, 2, 3, 5)):
        everything |= fields
        expected = theirs(torch.tensor([HISTORY]), expected)
    other = SamplingParams(repetition_penalty=0.6, presence_penalty=1.0)
    rows = [(other, (1, 2, 3), 1), (SamplingParams(**everything), HISTORY, 3), (other, HISTORY * 30, 100)]
    got = edited(logits_of(3), *rows)
    torch.testing.assert_close(got[1:2], expected)
    for i in (0, 2):
        torch.testing.assert_close(got[i : i + 1], edited(logits_of(3)[i : i + 1], rows[i]))


def test_a_bad_word_that_is_an_end_of_sequence_is_left_out():
    logits = logits_of(1)
    expected = NoBadWordsLogitsProcessor([[8], [4]], [8, 12])(torch.tensor([HISTORY]), logits.clone())
    assert torch.equal(edited(logits, (SamplingParams(bad_words=((8,), (4,))), HISTORY, 3)), expected)


def test_presence_and_frequency_count_the_output_only():
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    expected = torch.zeros(2, VOCAB)
    expected[0, 2], expected[0, 3] = -0.75, -1.0
    got = edited(torch.zeros(2, VOCAB), (params, (1, 1, 1, 2, 3, 3), 3), (params, (7, 8), 2))
    torch.testing.assert_close(got, expected)


def test_histories_grow_with_their_sequences_and_change_hands_with_the_row():
    """A sequence's bans follow its tokens from step to step, and end when another one gets its row."""
    sampler, logits = Sampler(0), logits_of(1)
    best = logits[0].argsort(descending=True).tolist()
    params = SamplingParams(no_repeat_ngram=1)
    first = sampling_slice(params, (best[0],), 1, request_id="a")
    for step in range(1, 90):
        token = sampler.sample(logits.clone(), sampler.prepare([first])).tokens.item()
        assert token == best[step]
        first.seq.tokens.append(token)
    second = sampling_slice(params, (best[3],), 1, request_id="b")
    assert sampler.sample(logits.clone(), sampler.prepare([second])).tokens.item() == best[0]


def test_a_carried_row_whose_rules_need_its_last_token_is_refused():
    piece = dataclasses.replace(sampling_slice(SamplingParams(repetition_penalty=2.0)), carry=True)
    with pytest.raises(EngineError, match="may not be carried"):
        Sampler(0).prepare([piece])


@pytest.mark.parametrize("do_sample", [False, True])
def test_a_row_whose_bans_leave_nothing_fails_alone(do_sample):
    banned = SamplingParams(do_sample=do_sample, seed=1, bad_words=tuple((i,) for i in range(VOCAB)))
    logits = logits_of(2)
    got = sample(logits, [sampling_slice(banned), sampling_slice(SamplingParams())])
    assert got.faults.tolist() == [NOTHING_LEFT, SOUND]
    assert got.tokens[1] == logits[1].argmax()


def test_the_first_token_can_be_forced_and_only_the_first():
    params = SamplingParams(forced_first=42)
    assert sample(logits_of(1), [sampling_slice(params, (1, 2), 2)]).tokens.tolist() == [42]
    assert sample(logits_of(1), [sampling_slice(params, (1, 2, 3), 2)]).tokens.tolist() == [int(logits_of(1).argmax())]


WARPERS = [
    ({"top_k": 5}, [TopKLogitsWarper(5)]),
    ({"top_p": 0.4}, [TopPLogitsWarper(0.4)]),
    ({"min_p": 0.2}, [MinPLogitsWarper(0.2)]),
    ({"temperature": 0.3, "top_k": 20, "top_p": 0.7, "min_p": 0.02}, None),
]


@pytest.mark.parametrize(("fields", "warpers"), WARPERS, ids=[str(fields) for fields, _ in WARPERS])
def test_filters_leave_the_tokens_transformers_leaves_with_the_same_shares(fields, warpers):
    """Drawn frequencies over many positions against the softmax of what transformers' warpers leave."""
    if warpers is None:
        warpers = [TemperatureLogitsWarper(0.3), TopKLogitsWarper(20), TopPLogitsWarper(0.7), MinPLogitsWarper(0.02)]
    scores = logits_of(1)
    for warper in warpers:
        scores = warper(None, scores)
    expected = scores.softmax(-1)[0]
    draws = 4000
    params = SamplingParams(do_sample=True, seed=7, **fields)
    slices = [sampling_slice(params, tuple(range(2 + i % 50)), 2, request_id=f"r{i}") for i in range(draws)]
    slices = [dataclasses.replace(piece, position=i) for i, piece in enumerate(slices)]
    counts = torch.bincount(sample(logits_of(1).repeat(draws, 1), slices).tokens, minlength=VOCAB) / draws
    assert not counts[expected == 0].any()
    assert (counts - expected).abs().max() < 5 * math.sqrt(0.25 / draws)


def test_a_wide_nucleus_is_not_cut_by_the_narrow_sort():
    """Near-uniform logits over a large vocabulary: the nucleus is wider than what is sorted first."""
    vocabulary, draws = 2000, 400
    logits = 0.01 * torch.randn(1, vocabulary, generator=torch.Generator().manual_seed(1)).repeat(draws, 1)
    params = SamplingParams(do_sample=True, top_p=0.9, seed=3)
    slices = [dataclasses.replace(sampling_slice(params), position=i) for i in range(draws)]
    tokens = sample(logits, slices).tokens
    rank = logits[0].argsort(descending=True).argsort()
    assert (rank[tokens] >= 256).sum() > draws / 2


def test_greedy_takes_the_lowest_index_of_a_tie():
    logits = torch.zeros(2, VOCAB)
    logits[:, [13, 40, 77]] = 1.0
    slices = [sampling_slice(SamplingParams()), sampling_slice(SamplingParams(do_sample=True, temperature=0.0))]
    assert sample(logits, slices).tokens.tolist() == [13, 13]


MIX = [
    SamplingParams(),
    SamplingParams(do_sample=True, temperature=0.8, seed=1),
    SamplingParams(do_sample=True, top_k=3, seed=2),
    SamplingParams(do_sample=True, top_k=40, top_p=0.5, seed=3),
    SamplingParams(do_sample=True, top_p=0.95, seed=4, repetition_penalty=1.3),
    SamplingParams(repetition_penalty=2.0),
    SamplingParams(do_sample=True, min_p=0.3, seed=5, logprobs=2),
]


def test_every_row_draws_the_same_alone_and_in_any_company():
    logits = logits_of(len(MIX))
    slices = [sampling_slice(params, request_id=f"r{i}") for i, params in enumerate(MIX)]
    together = sample(logits, slices).tokens.tolist()
    alone = [sample(logits[i : i + 1], [piece]).tokens.item() for i, piece in enumerate(slices)]
    back = sample(logits.flip(0), slices[::-1]).tokens.flip(0).tolist()
    assert together == alone == back


def test_seeds_of_requests_and_siblings_differ_and_are_stable():
    own = [request_seed(0, 42, "a", child) for child in range(3)]
    assert own[0] == request_seed(9, 42, "b", 0) == 42
    assert len({*own, *(request_seed(0, None, name, child) for name in "ab" for child in range(3))}) == 9
    assert request_seed(1, None, "a", 0) != request_seed(2, None, "a", 0)


def test_noise_is_a_function_of_key_and_token_and_looks_like_gumbel():
    keys = [step_key(5, position) for position in range(50)]
    tokens = torch.arange(2000)
    noise = gumbel(keys, tokens)
    assert torch.equal(noise[7, 100:200], gumbel([keys[7]], tokens[100:200])[0])
    assert noise.isfinite().all()
    assert abs(float(noise.mean()) - 0.5772) < 0.02  # Euler's constant
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.05
    assert abs(float(torch.corrcoef(noise[:2])[0, 1])) < 0.1


def test_noise_is_finite_at_both_ends_and_rises_to_the_share_of_rare_tokens():
    """A uniform number that rounds to 0 or 1 would make a token certain or impossible whatever its probability."""
    out = torch.empty(4)
    _to_gumbel(torch.tensor([0, 1, 2**31 - 1, 2**31 - 129], dtype=torch.int32), out)
    assert out.isfinite().all()
    torch.testing.assert_close(out[0], torch.tensor(32 * math.log(2)))
    assert out.argmax() == 0 and out[1] < out[0]


def test_the_hash_is_the_same_as_in_exact_integers():
    def exact(key: tuple[int, int], token: int) -> int:
        h = (token * 0x9E3779B1 + key[0]) % 2**32
        h = (h ^ h >> 16) * 0x85EBCA6B % 2**32 ^ key[1]
        h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
        return (h ^ h >> 16) % 2**31

    keys = [step_key(seed, seed % 3) for seed in range(20)]
    tokens = [0, 1, 96, 49151, 262143, 2**31 - 1]
    words = torch.tensor([[_signed(low), _signed(high)] for low, high in keys], dtype=torch.int32)
    got = _hashed(words[:, :1], words[:, 1:], torch.tensor(tokens, dtype=torch.int32).expand(len(keys), -1))
    assert got.tolist() == [[exact(key, token) for token in tokens] for key in keys]


KNOWN_NOISE = [
    [2.7865729331970215, 0.06148329749703407, -0.6499381065368652],
    [2.2405049800872803, -1.0135893821716309, 2.0017807483673096],
]


def test_known_noise_does_not_change_from_version_to_version():
    """These values are what seeds mean: a change here changes every seeded text people have kept."""
    assert step_key(0, 0) == (0x7B1DCDAF, 0xE220A839)  # first output of splitmix64(0)
    values = gumbel([step_key(42, 0), step_key(42, 1)], torch.tensor([0, 1, 49151]))
    torch.testing.assert_close(values, torch.tensor(KNOWN_NOISE), rtol=1e-6, atol=1e-6)


def test_log_probabilities_are_raw_and_only_for_those_who_asked():
    logits = logits_of(2)
    params = SamplingParams(do_sample=True, temperature=0.2, top_k=4, seed=1, repetition_penalty=1.5, logprobs=3)
    got = sample(logits, [sampling_slice(params), sampling_slice(SamplingParams())])
    raw = logits.log_softmax(-1)
    token = got.tokens[0]
    torch.testing.assert_close(got.logprobs[0], raw[0, token])
    values, ids = got.top[0]
    torch.testing.assert_close(values, raw[0].topk(3).values)
    assert ids.tolist() == raw[0].topk(3).indices.tolist()
    assert set(got.top) == {0}
    assert sample(logits, [sampling_slice(SamplingParams())] * 2).logprobs is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_marked_and_its_neighbours_are_not(bad):
    logits = logits_of(3)
    logits[1, 5] = bad
    slices = [sampling_slice(params, request_id=f"r{i}") for i, params in enumerate(MIX[:3])]
    got = sample(logits, slices)
    clean = sample(logits_of(3), slices)
    assert got.faults.tolist() == [SOUND, NOT_FINITE, SOUND]
    assert got.tokens[[0, 2]].tolist() == clean.tokens[[0, 2]].tolist()

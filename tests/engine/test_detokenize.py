"""Text from tokens as they come equals the text of all tokens at once."""

import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from engine.detokenize import MAX_HELD, REPLACEMENT, TextStream, decode_all

TEXTS = (
    "Hello world, it's 5 o'clock — isn't it?",
    "emoji 🤖🏽‍♂️👩‍👩‍👧 zażółć 你好 ᚠᛇᚻ 𓀀𓀁 done",
    " leading and trailing ",
    "a\n\n  b\tc",
    "",
)


def byte_level() -> PreTrainedTokenizerFast:
    """Every byte is a token of its own, spelled in the byte-level alphabet; two words and a special token on top."""
    from engine.detokenize import _BYTE_OF

    vocab = {**_BYTE_OF, "Ġword": 256, "ÃŁ": 257, "<|end|>": 258}
    backend = Tokenizer(models.BPE(vocab, []))
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.add_special_tokens({"eos_token": "<|end|>"})
    return tokenizer


def byte_fallback() -> PreTrainedTokenizerFast:
    """Words with a leading mark for the space, and byte tokens for everything else."""
    vocab = {f"<0x{value:02X}>": value for value in range(256)} | {"▁a": 256, "b": 257, "▁": 258, "é": 259}
    backend = Tokenizer(models.BPE(vocab, []))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def all_at_once(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def pieces_of(tokenizer, ids):
    stream = TextStream(tokenizer)
    return [stream.push(token) for token in ids], stream.flush()


class TestByteLevel:
    def test_an_emoji_comes_out_whole_with_its_last_byte(self):
        pieces, tail = pieces_of(byte_level(), list("🤖".encode()))
        assert (pieces, tail) == (["", "", "", "🤖"], "")

    def test_a_character_cut_short_is_flushed_once(self):
        ids = [*b"ab", *"🤖".encode()[:3]]
        stream = TextStream(byte_level())
        assert "".join(stream.push(token) for token in ids) == "ab"
        assert stream.flush() == REPLACEMENT
        assert stream.flush() == ""

    def test_words_and_special_tokens(self):
        pieces, tail = pieces_of(byte_level(), [256, 257, 258, ord("x")])
        assert (pieces, tail) == ([" word", "ß", "", "x"], "")

    @pytest.mark.parametrize("seed", range(20))
    def test_any_bytes_at_all_equal_the_whole(self, seed):
        rng = random.Random(seed)
        ids = [rng.choice([rng.randrange(256), rng.randrange(128, 256), 256, 257, 258]) for _ in range(60)]
        tokenizer = byte_level()
        assert decode_all(tokenizer, ids) == all_at_once(tokenizer, ids)


class TestByteFallback:
    def test_a_run_of_bytes_is_held_until_it_ends(self):
        ids = [256, *"🤖".encode(), 257]
        pieces, tail = pieces_of(byte_fallback(), ids)
        assert (pieces, tail) == (["a", "", "", "", "", "🤖b"], "")

    def test_the_space_after_the_first_word_is_kept(self):
        assert pieces_of(byte_fallback(), [256, 256, 258, 257]) == (["a", " a", " ", "b"], "")

    @pytest.mark.parametrize("seed", range(20))
    def test_any_tokens_at_all_equal_the_whole(self, seed):
        rng = random.Random(seed)
        ids = [rng.choice([rng.randrange(256), 256, 257, 258, 259]) for _ in range(60)]
        tokenizer = byte_fallback()
        assert decode_all(tokenizer, ids) == all_at_once(tokenizer, ids)

    def test_an_endless_run_is_let_out_in_time(self):
        stream = TextStream(byte_fallback())
        pieces = [stream.push(ord("x")) for _ in range(10 * MAX_HELD)]
        assert max(len(piece) for piece in pieces) == MAX_HELD
        assert "".join(pieces) + stream.flush() == "x" * (10 * MAX_HELD)


class TestCost:
    def test_no_token_makes_the_whole_text_be_decoded_again(self):
        class Counting:
            """A tokenizer without a byte-level decoder that counts what it decodes."""

            decoded = 0

            def decode(self, ids, **_):
                Counting.decoded += len(ids)
                return "".join(f"w{i} " for i in ids)

        stream = TextStream(Counting())
        for token in range(1000):
            stream.push(token)
        assert Counting.decoded <= 4 * 1000


@pytest.mark.weights
class TestRealTokenizers:
    @pytest.fixture(scope="class")
    def tokenizer(self, smollm2_dir: Path):
        return AutoTokenizer.from_pretrained(smollm2_dir)

    @pytest.mark.parametrize("text", TEXTS)
    def test_text_survives(self, tokenizer, text):
        assert decode_all(tokenizer, tokenizer(text)["input_ids"]) == text

    def test_random_tokens_equal_the_whole(self, tokenizer):
        rng = random.Random(1)
        for _ in range(100):
            ids = [rng.randrange(len(tokenizer)) for _ in range(rng.randrange(1, 40))]
            assert decode_all(tokenizer, ids) == all_at_once(tokenizer, ids)

"""Stop strings: cut exactly, nothing of a match is ever let out, everything else is let out as soon as it can be."""

from itertools import pairwise, product

import pytest

from engine.core.request import FinishReason
from engine.core.stop import StopText
from tests.core.drive import ask, build, drain, step


def run(strings: tuple[str, ...], pieces: tuple[str, ...]) -> tuple[list[str], bool]:
    """What is let out after each piece, until a match or, after a flush, the end."""
    stop = StopText(strings)
    out = []
    for piece in pieces:
        released, matched = stop.push(piece)
        out.append(released)
        if matched:
            return out, True
    return [*out, stop.flush()], False


@pytest.mark.parametrize(
    ("strings", "pieces", "out", "matched"),
    [
        (("bc",), ("ab", "cd"), ["a", ""], True),
        (("DEFGHIJ",), ("ABC", "DEF", "G", "HI", "J"), ["ABC", "", "", "", ""], True),
        (("DEFGHIJ",), ("ABC", "DEF", "G", "x", "yz"), ["ABC", "", "", "DEFGx", "yz", ""], False),
        (("aab",), ("a", "a", "a", "b"), ["", "", "a", ""], True),
        (("END",), ("the E", "N"), ["the ", "", "EN"], False),
        (("xyz", "b"), ("abxyz",), ["a"], True),
        (("b", "ab"), ("ab",), [""], True),
        ((), ("all", " of it"), ["all", " of it", ""], False),
        (("",), ("an empty one is none",), ["an empty one is none", ""], False),
        (("é\n",), ("caf", "é", "\n"), ["caf", "", ""], True),
    ],
)
def test_what_comes_out(strings: tuple[str, ...], pieces: tuple[str, ...], out: list[str], matched: bool) -> None:
    assert run(strings, pieces) == (out, matched)


@pytest.mark.parametrize("strings", [("ab",), ("aba",), ("aab", "bb"), ("abab", "ba")])
def test_every_text_cut_in_every_way(strings: tuple[str, ...]) -> None:
    for letters in product("ab", repeat=6):
        text = "".join(letters)
        # The match that is complete first counts; with one token a letter that is the one that ends first.
        ends = [(text.find(s) + len(s), text.find(s)) for s in strings if s in text]
        for cuts in ((), (1, 2, 3, 4, 5), (2, 4), (3,), (1, 5)):
            bounds = [0, *cuts, 6]
            pieces = tuple(text[a:b] for a, b in pairwise(bounds))
            out, matched = run(strings, pieces)
            assert matched == bool(ends)
            if not matched:
                assert "".join(out) == text
            elif len(cuts) == 5:
                assert "".join(out) == text[: min(start for end, start in ends if end == min(ends)[0])]
            for count in range(1, len(out) + 1):
                assert not any(s in "".join(out[:count]) for s in strings)


def test_a_sequence_stops_at_a_string_over_two_tokens_and_keeps_the_tokens() -> None:
    words = {1: "He", 2: "llo. ", 3: "ST", 4: "OP", 5: " rest"}
    scheduler = build(text_of=lambda seq: words[seq.tokens[-1]])
    tokens = [1, 2, 3, 4, 5]
    (a,) = scheduler.add(ask("a", 3, 9, stop_strings=("STOP",)))
    texts = []
    while scheduler.has_work:
        step(scheduler, lambda s: tokens[s.position])
        texts.append(a.text)
    assert texts == ["He", "Hello. ", "Hello. ", "Hello. "]
    assert (a.finish_reason, a.tokens[3:]) == (FinishReason.STOP_STRING, [1, 2, 3, 4])


def test_held_text_comes_out_when_the_length_ends_it_and_a_match_beats_the_length() -> None:
    scheduler = build(text_of=lambda seq: "ST" if seq.num_output % 2 else "OP")
    (short,) = scheduler.add(ask("short", 3, 1, stop_strings=("STOP",)))
    (exact,) = scheduler.add(ask("exact", 3, 2, stop_strings=("STOP",)))
    drain(scheduler)
    assert (short.finish_reason, short.text) == (FinishReason.LENGTH, "ST")
    assert (exact.finish_reason, exact.text) == (FinishReason.STOP_STRING, "")


def test_an_end_of_sequence_id_beats_a_stop_string() -> None:
    scheduler = build(text_of=lambda seq: "x")
    (a,) = scheduler.add(ask("a", 3, 5, eos_ids=frozenset({7}), stop_strings=("x",)))
    drain(scheduler, lambda s: 7)
    assert (a.finish_reason, a.text) == (FinishReason.EOS, "")


def test_text_survives_a_preemption() -> None:
    scheduler = build(num_blocks=6, text_of=lambda seq: "abc"[seq.num_output % 3])
    (a,) = scheduler.add(ask("a", 7, 12, stop_strings=("zz",)))
    (b,) = scheduler.add(ask("b", 7, 12, stop_strings=("zz",)))
    drain(scheduler)
    assert b.preemptions > 0
    assert a.text == b.text == "bca" * 4

"""Hostile text: nothing of it reaches the terminal, widths are counted, growing text is not wrapped again."""

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbtui.text import Wrap, asked, char_width, clean, one_line
from cbtui.view.cells import width_of

HOSTILE = (
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07x", "\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "\x9b2Jgone",
    "\x1bPq#0\x1b\\x",     "a\x00b\x08c\x7f", "\u202eevil\u202c", "\u2066x\u2069", "zero\u200bwidth\u200d", "\ufeffbom",
    "\x1b", "\x1b[",
    "👨‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "\ud800", "\U000e0041", "\ue000",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_left_cannot_move_the_cursor(text: str) -> None:
    left = clean(text)
    for char in left:
        assert char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    assert width_of(left) == sum(map(char_width, left))


def test_words_survive_cleaning() -> None:
    assert clean("\x1b[1mfett\x1b[0m und \tTab\r\nneue Zeile") == "fett und  Tab\nneue Zeile"
    assert clean("naïve café 東京 नमस्ते") == "naïve café 東京 नमस्ते"
    assert one_line("a\nb\r\nc", "¶") == "a¶b¶c"


@given(st.text())
def test_cleaning_is_final(text: str) -> None:
    once = clean(text)
    assert clean(once) == once
    assert width_of(once.replace("\n", "")) == sum(map(char_width, once.replace("\n", "")))


@given(st.lists(st.text(alphabet="ab cdé東\n", max_size=9), max_size=60), st.integers(2, 40))
def test_wrapped_lines_fit_and_lose_nothing_but_blanks(pieces: list[str], width: int) -> None:
    wrap = Wrap(width, "¶")
    for token, piece in enumerate(pieces):
        wrap.feed(piece, token)
    lines = ["".join(text for text, _ in line) for line in wrap.lines]
    assert all(width_of(line) <= width for line in lines)
    flat = "".join(pieces).replace("\n", "¶")
    assert "".join(lines).replace(" ", "") == flat.replace(" ", "")


@given(st.lists(st.text(alphabet="ab cd", min_size=1, max_size=7), min_size=2, max_size=60), st.integers(2, 30))
def test_finished_lines_are_never_touched_again(pieces: list[str], width: int) -> None:
    wrap = Wrap(width, "¶")
    done: list[list[tuple[str, int]]] = []
    for token, piece in enumerate(pieces):
        wrap.feed(piece, token)
        assert wrap.lines[: len(done)] == done
        done = [list(line) for line in wrap.lines[:-1]]


def test_every_run_knows_its_token() -> None:
    wrap = Wrap(9, "¶")
    for token, piece in enumerate(["Turn", " the", " barr", "el", " now"]):
        wrap.feed(piece, token)
    assert wrap.lines == [[("Turn", 0), (" the", 1), (" ", 2)], [("barr", 2), ("el", 3), (" ", 4)], [("now", 4)]]


@pytest.mark.parametrize(
    ("prompt", "gist"),
    [
        ("<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nWhat is rain?<|im_end|>\n", "What is rain?"),
        ("<bos><start_of_turn>user\nTwo\nlines<end_of_turn>\n<start_of_turn>model\n", "Two\nlines"),
        ("<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>", "Hello"),
        ("a < b and c > d", "a < b and c > d"),
        ("no chat at all", "no chat at all"),
        ("<|user|>", "<|user|>"),
    ],
)
def test_a_chat_prompt_is_shown_as_what_was_asked(prompt, gist):
    assert asked(prompt) == gist


def test_whole_pieces_break_where_single_characters_do() -> None:
    """A piece that has room on its line is put there at once; wherever pieces end, the lines are the same."""
    draw = random.Random(1)
    for _ in range(300):
        width = draw.randint(1, 14)
        whole, single, token = Wrap(width, "¶"), Wrap(width, "¶"), 0
        for _ in range(30):
            piece = "".join(draw.choice("ab  c\n東é") for _ in range(draw.randint(0, 5)))
            token += draw.random() < 0.8
            whole.feed(piece, token)
            for char in piece.replace("\n", "¶"):
                single._char(char, token)
            assert whole.lines == single.lines

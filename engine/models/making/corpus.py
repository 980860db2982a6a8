"""Which of the teacher's answers are worth learning from."""

import itertools
import json
import re
from pathlib import Path

MARKS = ("```", "http", "<|", "**", "#", "\\", "*", "_", "|", "[", "{", "@", "user", "assistant")
PLAIN = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u2026": "..."}


def straighten(text: str) -> str:
    """Typographic quotes, dashes and ellipses as ASCII, so that a small vocabulary covers the text."""
    for mark, plain in PLAIN.items():
        text = text.replace(mark, plain)
    return text.strip()


def repeats(text: str, size: int = 4) -> bool:
    """Whether the same ``size`` words in a row stand in the text twice: small teachers fall into loops."""
    words = re.findall(r"[a-z']+", text.lower())
    runs = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
    return len(set(runs)) < len(runs)


def topic_words(ask: str) -> set[str]:
    """The nouns of a prompt a person would look for in the answer: its longer words without the frame around them."""
    frame = (
        "tell story about write short list five name three explain simply dialogue between what does with named".split()
    )
    return {word for word in re.findall(r"[a-z]+", ask.lower()) if len(word) > 3} - set(frame)


def has_shape(shape: str, ask: str, text: str) -> bool:
    """Lists are numbered to the end, dialogues alternate speakers, prose is prose and stays with its topic."""
    lines = text.split("\n")
    if shape == "list":
        wanted = 5 if "five" in ask else 3
        items = [re.fullmatch(rf"{n}\. ([A-Za-z' ,-]{{2,40}})\.?", line) for n, line in enumerate(lines, 1)]
        return len(lines) == wanted and all(items) and len({item[1].lower() for item in items if item}) == wanted
    if shape == "dialogue":
        speakers = [re.match(r"([A-Z][a-z]+): \S", line) for line in lines]
        if not (4 <= len(lines) <= 10 and all(speakers)):
            return False
        names = [found[1] for found in speakers if found]
        wanted_names = set(re.findall(r"[a-z]+", ask.split(" between ")[1].split(" about ")[0]))
        alternate = all(a != b for a, b in itertools.pairwise(names))
        return alternate and len(set(names)) == 2 and {name.lower() for name in names} <= wanted_names
    hits = sum(word[:5] in text.lower() for word in topic_words(ask))
    wanted_hits = 2 if shape == "story" else 1
    return "\n" not in text and ":" not in text and hits >= min(wanted_hits, len(topic_words(ask)))


def is_good(row: dict) -> bool:
    """Plain ASCII, ended by the teacher itself, no loops, the shape that was asked for."""
    text = row["answer"]
    size = {"story": (140, 700), "question": (50, 450), "list": (15, 260), "dialogue": (100, 600)}[row["shape"]]
    return (
        row["ended"] == "eos"
        and text.isascii()
        and size[0] <= len(text) <= size[1]
        and not any(mark in text for mark in MARKS)
        and not repeats(text)
        and has_shape(row["shape"], row["ask"], text)
    )


def usable(corpus: Path) -> list[dict]:
    """The good rows of a corpus file, each answer once."""
    rows = (json.loads(line) for line in corpus.read_text().splitlines() if line)
    return list({row["answer"]: row for row in rows if is_good(row)}.values())

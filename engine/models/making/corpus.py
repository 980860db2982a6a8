"""The conversations the demo models learn from: the teacher's better answers, and stories and dialogues of grammars."""

import json
import random
import re
from pathlib import Path

from engine.models.making import about
from engine.models.making.dialogues import dialogue
from engine.models.making.stories import story

MARKS = ("```", "http", "<|", "**", "#", "\\", "*", "_", "|", "[", "{", "@", "user", "assistant", "wine", "beer")
PLAIN = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u2026": "..."}
KEPT_PER_ASK = 3
"""Answers of the teacher kept for one prompt: those it was surest of."""
STORIES, DIALOGUES, ABOUT_COPIES, TAUGHT_COPIES = 9000, 2500, 8, 2
LONG_SHARE, PREFACE_SHARE = 0.12, 0.08


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
    return {word for word in re.findall(r"[a-z]+", ask.lower()) if len(word) > 3} - {"what", "does", "with"}


def has_shape(shape: str, ask: str, text: str) -> bool:
    """Lists are numbered to the end, answers are prose without figures and stay with their topic."""
    if shape == "list":
        lines = text.split("\n")
        wanted = 5 if "five" in ask else 3
        items = [re.fullmatch(rf"{n}\. ([A-Za-z' ,-]{{2,40}})\.?", line) for n, line in enumerate(lines, 1)]
        return len(lines) == wanted and all(items) and len({item[1].lower() for item in items if item}) == wanted
    hits = sum(word[:4] in text.lower() for word in topic_words(ask))
    plain = re.fullmatch(r"[A-Za-z ,.'\"?!-]+[.!]", text) is not None
    return plain and hits >= min(1, len(topic_words(ask)))


def is_good(row: dict) -> bool:
    """Plain ASCII, ended by the teacher itself, no loops, the shape that was asked for."""
    text = row["answer"]
    low, high = {"question": (50, 330), "list": (15, 260)}[row["shape"]]
    return (
        row["ended"] == "eos"
        and text.isascii()
        and low <= len(text) <= high
        and not any(mark in text for mark in MARKS)
        and not repeats(text)
        and has_shape(row["shape"], row["ask"], text)
    )


def taught(answers: Path) -> list[dict]:
    """The teacher's good answers: of each prompt the few it was surest of, each text once."""
    by_ask: dict[str, dict[str, dict]] = {}
    for line in answers.read_text().splitlines():
        row = json.loads(line)
        if is_good(row):
            by_ask.setdefault(row["ask"], {})[row["answer"]] = row
    best = (sorted(rows.values(), key=lambda row: -row["score"])[:KEPT_PER_ASK] for rows in by_ask.values())
    return [row for rows in best for row in rows]


def rephrased(row: dict) -> list[dict]:
    """A row of the teacher under the ways a person may ask the same."""
    ask = row["ask"]
    if row["shape"] == "list":
        number, topic = ask.removeprefix("List ").removeprefix("Name ").rstrip(".").split(" ", 1)
        asks = [ask, f"Name {number} {topic}.", f"List {number} {topic}.", f"Give me {number} {topic}, please."]
    else:
        plain = ask[0].lower() + ask[1:]
        asks = [ask, f"Explain simply: {plain}", f"Tell me, {plain}", ask.rstrip("?"), f"I have a question: {plain}"]
    return [row | {"ask": ask} for ask in dict.fromkeys(asks)]


def longer(rng: random.Random) -> dict:
    """A story in two parts."""
    one, two = story(rng), story(rng)
    ask = one["ask"].replace("a short story", "a long story").replace("a story", "a long story")
    return {"shape": "story", "ask": ask, "answer": f"{one['answer']} And here is another one. {two['answer']}"}


def preface(rng: random.Random) -> str:
    """Text a prompt may begin with before it asks: one to five stories, so that long prompts are nothing new."""
    return "Read this first. " + " ".join(story(rng)["answer"] for _ in range(rng.randint(1, 5))) + "\n"


def conversations(answers: Path, seed: int = 0) -> list[dict]:
    """All rows (``shape``, ``ask``, ``answer``) in an order drawn from ``seed``."""
    rng = random.Random(seed)
    rows = [other for row in taught(answers) for other in rephrased(row)] * TAUGHT_COPIES
    rows += [longer(rng) if rng.random() < LONG_SHARE else story(rng) for _ in range(STORIES)]
    rows += [dialogue(rng) for _ in range(DIALOGUES)]
    rows += about.rows(ABOUT_COPIES)
    rng.shuffle(rows)
    return [row | {"ask": preface(rng) + row["ask"]} if rng.random() < PREFACE_SHARE else row for row in rows]

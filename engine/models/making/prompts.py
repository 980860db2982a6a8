"""The prompts the demo models know: four shapes over a fixed set of simple topics, the same list in every run."""

import random
from collections.abc import Iterator
from dataclasses import dataclass


def _items(text: str) -> tuple[str, ...]:
    """The parts of a text between slashes, whatever its line breaks."""
    return tuple(" ".join(item.split()) for item in text.split("/"))


HEROES = _items(
    """
    a small cat / a brave dog / a shy rabbit / a little girl named Mia / a boy named Tom / an old fisherman / a
    young robot / a kind baker / a lost duck / a curious fox / a sleepy bear / a farmer named Ben / a tiny mouse
    / a wise owl / a teacher named Anna / a friendly dragon
    """
)
PLACES = _items(
    """
    in the forest / by the sea / on a farm / in a big city / on a hill / in a garden / at school / on an island
    / in the snow / near a river / in a quiet village / on a train
    """
)
EVENTS = _items(
    """
    finds a red ball / makes a new friend / gets lost and finds the way home / plants a seed / learns to swim /
    bakes a cake / helps a neighbor / sees the first snow / loses a key / builds a boat / hears a strange sound
    / shares some food
    """
)
QUESTIONS = _items(
    """
    What is rain? / Why is the sky blue? / What do plants need to grow? / How do birds fly? / What is the moon?
    / Why do we sleep? / What is bread made of? / How do fish breathe? / What is a river? / Why do leaves fall?
    / What is a computer? / How do bees make honey? / What is the sun? / Why is the sea salty? / What is snow? /
    How does a bicycle work? / What is a library? / Why do we brush our teeth? / What is wind? / What is a
    friend? / How do you make tea? / What do cows eat? / What is a map? / Why do we wear coats in winter? / What
    is music? / How does a boat float? / What is a volcano? / Why do cats purr? / What is a rainbow? / What is a
    forest? / How do trains move? / What is the capital of France? / What is a garden? / What do doctors do? /
    How do you make soup? / What is ice? / Why do dogs bark? / What is a mountain? / What is a good breakfast? /
    How do you stay healthy? / What is a cloud? / What is an island? / What is the ocean? / What does a teacher
    do? / What is a clock? / Why do we drink water? / What is a farm? / What is winter? / What is summer? / What
    is a book? / How do you plant a tree? / What is a star? / What is a family? / Why do we need trees? / What
    is a school? / How do you bake bread? / What is a house made of? / What is a market? / Why is exercise good?
    / What is milk?
    """
)
LISTS = _items(
    """
    things to take to the beach / animals that live on a farm / fruits / vegetables / things in a kitchen / ways
    to help at home / games for a rainy day / things you can see in the sky / jobs people do / tips for better
    sleep / colors / things to do in winter / things to do in summer / musical instruments / animals that can
    swim / birds / things found in a school / healthy snacks / ways to save water / tools in a garden / kinds of
    weather / things to pack for a trip / good habits / flowers / wild animals / pets / drinks / sports / things
    in a bedroom / things that are round
    """
)
DIALOGUES = _items(
    """
    a cat and a dog / a teacher and a student / a baker and a customer / a farmer and a cow / a mother and her
    son / the sun and the moon / a robot and a child / a doctor and a patient / a fox and an owl / a girl and
    her brother
    """
)
SUBJECTS = _items(
    """
    the weather / lunch / a lost hat / a trip to the sea / a new book / a birthday / the garden / a loud noise
    """
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its shape, what a person would type, and how many tokens an answer may have."""

    shape: str
    ask: str
    max_new_tokens: int


def stories() -> Iterator[Prompt]:
    """Every hero with every event, in a place that changes from one to the next, and every hero alone."""
    for number, (hero, event) in enumerate((hero, event) for hero in HEROES for event in EVENTS):
        place = PLACES[5 * number % len(PLACES)]
        if number % 2:
            yield Prompt("story", f"Tell me a story about {hero} {place} who {event}.", 130)
        else:
            yield Prompt("story", f"Write a short story about {hero} who {event}.", 130)
    for hero in HEROES:
        yield Prompt("story", f"Tell me a story about {hero}.", 130)


def questions() -> Iterator[Prompt]:
    for question in QUESTIONS:
        yield Prompt("question", question, 90)
        yield Prompt("question", f"Explain simply: {question[0].lower()}{question[1:]}", 90)


def lists() -> Iterator[Prompt]:
    for topic in LISTS:
        yield Prompt("list", f"List five {topic}.", 60)
        yield Prompt("list", f"Name three {topic}.", 40)


def dialogues() -> Iterator[Prompt]:
    for who in DIALOGUES:
        for subject in SUBJECTS:
            yield Prompt("dialogue", f"Write a short dialogue between {who} about {subject}.", 110)


def all_prompts(rounds: int, seed: int = 0) -> list[tuple[int, Prompt]]:
    """Every prompt ``rounds`` times, shuffled by ``seed``: (number of the copy, prompt)."""
    once = [*stories(), *questions(), *questions(), *lists(), *dialogues()]
    many = [(number, prompt) for number in range(rounds) for prompt in once]
    random.Random(seed).shuffle(many)
    return many

"""What the teacher is asked: simple questions and lists over a fixed set of topics, the same in every run."""

import random
from collections.abc import Iterator
from dataclasses import dataclass


def _items(text: str) -> tuple[str, ...]:
    """The parts of a text between slashes, whatever its line breaks."""
    return tuple(" ".join(item.split()) for item in text.split("/"))


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
THINGS = _items(
    """
    apple / banana / horse / cow / cat / dog / bird / fish / bee / spider / frog / snake / lion / elephant / whale /
    penguin / tree / flower / leaf / seed / bridge / tower / castle / road / train / car / bicycle / ship / plane /
    key / door / window / table / chair / bed / lamp / candle / cup / spoon / knife / bowl / kitchen / hat / coat /
    shoe / umbrella / pencil / letter / newspaper / picture / song / piano / guitar / drum / game / ball / puzzle /
    doctor / nurse / farmer / baker / teacher / king / neighbor / holiday / birthday / wedding / day / week / year /
    lake / beach / desert / valley / waterfall / storm / planet / shadow / mirror / magnet / engine / robot /
    telephone / camera / hospital / museum / zoo / park / bakery / restaurant / bank / cake / soup / salad / egg /
    potato / carrot / tomato / lemon / chocolate / sandwich
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


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its shape, what a person would type, and how many tokens an answer may have.

    ``opening`` is how the answer begins; the teacher goes on from there. A small teacher put on the track keeps it.
    """

    shape: str
    ask: str
    max_new_tokens: int
    opening: str = ""


def questions() -> Iterator[Prompt]:
    for question in QUESTIONS:
        yield Prompt("question", question, 90)
    for thing in THINGS:
        name = ("an " if thing[0] in "aeiou" else "a ") + thing
        yield Prompt("question", f"What is {name}?", 90, f"{name[0].upper()}{name[1:]} is")


def lists() -> Iterator[Prompt]:
    for topic in LISTS:
        yield Prompt("list", f"List five {topic}.", 60, "1.")
        yield Prompt("list", f"Name three {topic}.", 40, "1.")


def all_prompts(rounds: int, seed: int = 0) -> list[tuple[int, Prompt]]:
    """Every prompt ``rounds`` times, shuffled by ``seed``: (number of the copy, prompt)."""
    many = [(number, prompt) for number in range(rounds) for kind in (questions, lists) for prompt in kind()]
    random.Random(seed).shuffle(many)
    return many

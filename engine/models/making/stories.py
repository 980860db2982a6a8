"""Stories from a small grammar, written by hand: what happens is told in six steps, each in one of several ways.

Every way of a step goes with every way of the others, so that a story always makes sense.
"""

import random
from dataclasses import dataclass

ANIMALS = (
    "cat dog rabbit fox bear mouse owl duck hen frog horse pig goat sheep lion monkey turtle squirrel hedgehog penguin "
    "elephant bird wolf dragon robot"
).split()
KINDS = "small brave shy young old kind sleepy curious little happy hungry friendly clever lonely".split()
GIRLS = "Mia Anna Lily Emma Sara Nora Lucy Ella".split()
BOYS = "Tom Ben Sam Max Leo Jack Paul Tim".split()
TRADES = "farmer baker teacher fisherman gardener doctor".split()
PLACES = (
    "in the forest / by the sea / on a farm / in a big city / on a hill / in a garden / at school / on an island / "
    "in the snow / near a river / in a quiet village / in the park / near a lake / in the mountains"
).split(" / ")

EVENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "finds a red ball": (
        (
            "{One} went for a walk {place}.",
            "One sunny morning {one} was playing {place}.",
            "It was a quiet day {place}, and {one} had nothing to do.",
        ),
        (
            "Under a bush {he} saw something round and red. It was a ball.",
            "There, in the grass, lay a red ball.",
            "Then {he} found a red ball behind a tree.",
        ),
        (
            '"Whose ball is this?" {he} asked, but nobody was there.',
            "{He} looked around, but nobody came for it.",
            "{He} kicked the ball, and it rolled and rolled.",
        ),
        (
            "After a while {friend} came along and looked very sad.",
            "On the way {he} met {friend}, who was crying.",
            "Then {friend} came running.",
        ),
        (
            '"I lost my ball," said {the_friend}. {One} gave it back.',
            '"That is my ball!" said {the_friend}. {One} smiled and rolled it over.',
            "It was the ball of {the_friend}, so {one} gave it back.",
        ),
        (
            "They played together until the evening.",
            "From that day on they played with the ball together.",
            '"Come and play with me," said {the_friend}, and so they became friends.',
        ),
    ),
    "makes a new friend": (
        (
            "{One} lived {place} and had nobody to play with.",
            "{One} often sat alone {place}.",
            "There was nobody to talk to {place}, and {one} felt lonely.",
        ),
        (
            "One day {friend} came by.",
            "Then {friend} moved into the house next door.",
            "One morning {friend} sat down beside {him}.",
        ),
        (
            "{He} wanted to say hello, but {he} was a little afraid.",
            "At first they only looked at each other.",
            "For a long time nobody said a word.",
        ),
        (
            'Then {the_friend} asked, "Do you like apples?"',
            'Then {the_friend} said, "I have never been here before."',
            '"What are you looking at?" asked {the_friend}.',
        ),
        (
            "They began to talk, and they could not stop.",
            "They talked about the clouds and laughed a lot.",
            "Soon they were telling each other stories.",
        ),
        (
            "In the evening {one} was happy, because now {he} had a friend.",
            "The next day they met again, and the day after that, too.",
            "{One} was never lonely again.",
        ),
    ),
    "gets lost and finds the way home": (
        (
            "One day {one} went far away from home.",
            "{One} ran after a butterfly and did not look at the path.",
            "{One} took a new path {place}.",
        ),
        (
            "Soon everything looked strange, and {he} was lost.",
            "When {he} looked up, {he} did not know where {he} was.",
            "It was getting dark, and {he} could not see the way.",
        ),
        (
            "{He} sat down under a tree and thought.",
            '"I must not be afraid," {he} said.',
            "{He} called for help, and somebody heard {him}.",
        ),
        (
            "Then {friend} came out of the dark. \"I know the way,\" said {the_friend}.",
            "Then {friend} asked, \"Where do you live?\"",
            "Just then {friend} came along with a lamp.",
        ),
        (
            "Together they walked over a bridge and past an old mill.",
            "They followed the river, step by step.",
            "They looked at the stars and followed the brightest one.",
        ),
        (
            "At last {one} saw the light of {his} own house. How good it was to be home!",
            "When {he} came home, there was warm soup on the table, and {the_friend} got some, too.",
            "At home {one} said thank you and slept all night long.",
        ),
    ),
    "plants a seed": (
        (
            "{One} found a small seed {place}.",
            "{One} had a seed in {his} pocket.",
            "In the spring {friend} gave {one} a seed.",
        ),
        (
            "{He} made a hole in the ground and put the seed inside.",
            "{He} put it in the earth and covered it.",
            '"Grow well," {he} said, and put it in the earth.',
        ),
        (
            "Every morning {he} gave it some water.",
            "{He} watered it every day and waited.",
            "Day after day {he} sat beside it and waited.",
        ),
        (
            "For a long time nothing happened, but {he} did not give up.",
            "The others laughed, but {he} did not mind.",
            "It rained, and then the sun came out.",
        ),
        (
            "Then, one morning, there was a tiny green leaf.",
            "After two weeks something green looked out of the ground.",
            "At last a little plant came up.",
        ),
        (
            "In the summer it was a tall yellow flower, and all the bees came to see it.",
            "It grew and grew, and in the end it was a tree full of apples.",
            "It became the most beautiful flower {place}, and {one} was proud.",
        ),
    ),
    "learns to swim": (
        (
            "{One} was afraid of the water.",
            "All the others could swim, but {one} could not.",
            "It was a hot day, and {one} sat beside the water.",
        ),
        (
            'Then {friend} said, "I will teach you."',
            "Then {friend} came by and offered to help.",
            '"It is easy. I will show you," said {friend}.',
        ),
        (
            "First {he} put only one foot into the water. It was cold!",
            "Slowly {he} went in, one step after the other.",
            "{He} closed {his} eyes and jumped in.",
        ),
        (
            "{He} swallowed some water and had to cough.",
            "At first {he} went down like a stone.",
            "{He} splashed so much that everybody got wet.",
        ),
        (
            '"Try again," said {the_friend}. So {he} tried again and again.',
            "But {he} did not give up, and {the_friend} held {him}.",
            '"Move your legs and breathe slowly," said {the_friend}.',
        ),
        (
            "In the evening {one} swam all the way to the other side.",
            "And suddenly {he} was swimming! Everybody clapped.",
            'After a week {he} could swim like a fish. "Thank you," {he} said.',
        ),
    ),
    "bakes a cake": (
        (
            "{One} wanted to bake a cake for {friend}.",
            "It was the birthday of {friend}, and {one} wanted to bake a cake.",
            'It was raining. "Today I will bake a cake for {friend}," said {one}.',
        ),
        (
            "{He} took flour, eggs, milk and sugar.",
            "{He} mixed the flour and the eggs in a big bowl.",
            "{He} looked for a big bowl and a spoon.",
        ),
        (
            "Soon there was flour on the floor, on the table and on {his} nose.",
            "The dough was so sticky that the spoon stood up in it.",
            "{He} put in a spoon of honey, and then one more.",
        ),
        (
            "Then the cake went into the oven, and the whole house smelled sweet.",
            "{He} put it in the oven and waited and waited.",
            "While it was in the oven, {he} washed the bowl.",
        ),
        (
            "The cake was a little crooked, but it looked good.",
            "When it was ready, {he} put red berries on top.",
            "It was a bit dark on one side, so {he} covered it with sugar.",
        ),
        (
            'There was a knock at the door. "A cake for me?" said {the_friend}. It tasted wonderful.',
            "{The_friend} ate three pieces and said it was the best cake in the world.",
            "They ate it together, and nothing was left, not even a crumb.",
        ),
    ),
    "helps a neighbor": (
        (
            "{One} lived {place} next to {friend}.",
            "The neighbor of {one} was {friend}.",
            "Next door to {one} lived {friend}.",
        ),
        (
            "One day {the_friend} had a bad leg and could not carry water.",
            "One day the wind broke the roof of {the_friend}.",
            "One winter {the_friend} was ill and had no wood for the fire.",
        ),
        (
            '"I will help you," said {one}.',
            "{One} saw it and came at once.",
            '"Stay where you are," said {one}. "I will do it."',
        ),
        (
            "{He} worked the whole day, and it was hard work.",
            "It took a long time, but {he} did not stop.",
            "{He} did it quickly and well.",
        ),
        (
            'In the evening everything was done. "How can I thank you?" asked {the_friend}.',
            "When it was done, {the_friend} had tears in {friend_his} eyes.",
            '"You are very kind," said {the_friend}.',
        ),
        (
            '"That is what neighbors are for," said {one}.',
            "They drank tea together and watched the sun go down.",
            "The next day there was a basket of apples in front of the door of {one}.",
        ),
    ),
    "sees the first snow": (
        (
            "One morning {one} woke up, and it was very quiet.",
            "{One} looked out of the window and could not believe it.",
            "Something cold fell on the nose of {one}.",
        ),
        (
            "Everything {place} was white.",
            "White flakes were falling from the sky.",
            "The trees and the houses were all white.",
        ),
        (
            '"What is this?" {he} asked. "It is snow," said {friend}.',
            "{He} had never seen snow before. {Friend} laughed and told {him} what it was.",
            '"Is it sugar?" {he} asked. "No, it is snow," said {friend}.',
        ),
        (
            "{He} ran outside and made a long line of footprints.",
            "{He} put out {his} tongue and caught a flake.",
            "{He} jumped into it, and only {his} ears could be seen.",
        ),
        (
            "Then they built a snowman with a carrot for a nose.",
            "Together they rolled a big ball and made a snowman.",
            "They slid down the hill again and again.",
        ),
        (
            "When their feet were cold, they went inside and drank hot milk.",
            "In the evening {one} said, \"I hope it never melts.\"",
            "That night {one} dreamed of a white world.",
        ),
    ),
    "loses a key": (
        (
            "{One} came home, but the key was gone.",
            "{One} had a small golden key, and one day it was lost.",
            '"Where is my key?" said {one}.',
        ),
        (
            "{He} looked in every pocket and under the mat.",
            "{He} looked under the bed, behind the door and in the soup.",
            "{He} went back the whole way and looked at the ground.",
        ),
        (
            "It was not there.",
            "There was only a button and an old nut.",
            "But the key could not be found.",
        ),
        (
            "Then {friend} came by and helped to look for it.",
            "{He} asked {friend} for help.",
            '"I can help you," said {friend}.',
        ),
        (
            "Something was shining up in a tree. It was the key, in the nest of a bird!",
            '"What is that around your neck?" asked {the_friend}. It was the key, on a string.',
            "In the grass, beside a flower, {the_friend} saw something shining. It was the key.",
        ),
        (
            "They laughed, and {one} opened the door.",
            "{One} was so glad that {he} made a cake for both of them.",
            "From then on the key had a place of its own on the wall.",
        ),
    ),
    "builds a boat": (
        (
            "{One} wanted to see the other side of the water.",
            "{One} dreamed of going to sea.",
            "{One} found some old boards {place}.",
        ),
        (
            '"I will build a boat," {he} said.',
            "So {he} began to build a boat.",
            "{He} took a hammer and some nails and began to build a boat.",
        ),
        (
            '"You will never do it," said {friend}.',
            "After a while {friend} came to watch.",
            '"May I help you?" asked {friend}.',
        ),
        (
            "They worked for seven days, and then the boat was ready.",
            "It was hard work, but piece by piece it became a boat.",
            "{The_friend} brought a sheet, and that became the sail.",
        ),
        (
            "They pushed it into the water. It did not sink!",
            "It was small and a little crooked, but it could swim.",
            "The wind filled the sail, and off it went.",
        ),
        (
            "Together they sailed to the other side and had a picnic there.",
            'They saw fish, birds and a green island. "What a day!" said {the_friend}.',
            "In the evening they came back with a bag full of shells.",
        ),
    ),
    "hears a strange sound": (
        (
            "One night {one} could not sleep.",
            "It was late, and {one} was in bed.",
            "{One} was almost asleep.",
        ),
        (
            "There was a strange sound outside. Tap, tap, tap.",
            "Something went knock, knock, knock at the window.",
            "Then there was a strange sound, like somebody crying.",
        ),
        (
            "{He} pulled the blanket over {his} head.",
            '"Who is there?" {he} asked, but there was no answer.',
            "{His} heart was beating fast.",
        ),
        (
            "But then {he} took a lamp and opened the door.",
            "At last {he} was brave and went to look.",
            "Slowly {he} went to the door and looked out.",
        ),
        (
            "It was only {friend}, who was cold and wet.",
            "There stood {friend}, who had lost the way.",
            "It was {friend}, who was looking for a dry place.",
        ),
        (
            '"Come in," said {one}. They had hot tea, and then they both slept well.',
            '"I was afraid of you!" said {one}. They looked at each other and laughed.',
            "{One} gave {the_friend} a warm blanket, and the night was quiet again.",
        ),
    ),
    "shares some food": (
        (
            "{One} had a big piece of bread for lunch.",
            "{One} had found two red apples.",
            "{One} sat {place} with a basket full of food.",
        ),
        (
            "Just as {he} wanted to eat, {friend} came by.",
            "Then {he} saw {friend} sitting under a tree.",
            "{Friend} sat there and looked at the food.",
        ),
        (
            '"I have not eaten since yesterday," said {the_friend}.',
            "{The_friend} looked thin and hungry.",
            '"That smells good," said {the_friend} quietly.',
        ),
        (
            "{One} was very hungry, too, and thought about it.",
            "There was not much, but {one} did not think long.",
            '"Sit down," said {one}.',
        ),
        (
            "Then {he} gave {the_friend} one half.",
            "{He} made two parts and gave away the bigger one.",
            '"Half is for you, and half is for me," {he} said.',
        ),
        (
            "It was the best lunch {he} ever had.",
            "The next day {the_friend} came back with a bag of nuts for both of them.",
            "Food tastes better when you share it.",
        ),
    ),
}
"""What happens: steps in order, each with the ways to tell it."""

ASKS = (
    "Tell me a story about {a_hero}.",
    "Tell me a story about {a_hero} who {event}.",
    "Write a short story about {a_hero} who {event}.",
    "Write a short story about {a_hero}.",
    "Tell me a story about {a_hero} {place}.",
    "Tell me a story about {a_hero} {place} who {event}.",
    "Can you tell me a story about {a_hero}?",
    "A story about {a_hero}, please.",
    "Once upon a time there was {a_hero}.",
)
WITHOUT_HERO = ("Tell me a story.", "Tell me a short story.", "Write a story.", "I want to hear a story.")


@dataclass(frozen=True, slots=True)
class Someone:
    """A person or animal of a story: at first mention, afterwards, and the words that stand for it."""

    first: str
    later: str
    he: str
    him: str
    his: str


def article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def someone(rng: random.Random) -> Someone:
    kind = rng.random()
    if kind < 0.15:
        name = rng.choice(GIRLS)
        return Someone(f"a girl named {name}", name, "she", "her", "her")
    if kind < 0.3:
        name = rng.choice(BOYS)
        return Someone(f"a boy named {name}", name, "he", "him", "his")
    noun = rng.choice(TRADES) if kind < 0.4 else rng.choice(ANIMALS)
    full = f"{rng.choice(KINDS)} {noun}"
    pronouns = rng.choice((("he", "him", "his"), ("she", "her", "her")))
    return Someone(article(full), f"the {full}", *pronouns)


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def story(rng: random.Random) -> dict[str, str]:
    """One story with a prompt that fits it, as a row of a corpus."""
    hero, friend = someone(rng), someone(rng)
    while friend.later.split()[-1] == hero.later.split()[-1]:
        friend = someone(rng)
    event, place = rng.choice(list(EVENTS)), rng.choice(PLACES)
    words = {
        "one": hero.later,
        "he": hero.he,
        "him": hero.him,
        "his": hero.his,
        "place": place,
        "friend": friend.first,
        "the_friend": friend.later,
        "friend_his": friend.his,
    }
    words |= {capital(key): capital(value) for key, value in words.items()}
    told = " ".join(rng.choice(ways).format_map(words) for ways in EVENTS[event])
    ask = rng.choice(WITHOUT_HERO) if rng.random() < 0.06 else rng.choice(ASKS)
    return {"shape": "story", "ask": ask.format(a_hero=hero.first, event=event, place=place), "answer": told}

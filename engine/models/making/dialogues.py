"""Short dialogues from a small grammar, written by hand: six lines, each said in one of several ways."""

import random

from engine.models.making.stories import ANIMALS, BOYS, GIRLS, TRADES, article, capital

OTHERS = "teacher student mother son father daughter boy girl doctor patient cook child king queen sun moon".split()

SUBJECTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "the weather": (
        ("It is so warm today.", "Look at all the clouds.", "What do you think of the weather?"),
        ("I think it will rain soon.", "The wind is getting stronger.", "Yesterday it was better."),
        ("Did you bring an umbrella?", "Shall we go inside?", "What do we do when it rains?"),
        (
            "I like the rain. It makes the flowers grow.",
            "A little rain is no problem.",
            "We can sit under the big tree.",
        ),
        ("You are right. I will stay here with you.", "That is a good idea.", "Then I am not afraid of it."),
        ("Look, there is a rainbow!", "And after the rain the sun will come out.", "Let us look at the sky together."),
    ),
    "lunch": (
        ("I am hungry. What is for lunch?", "Is it time for lunch?", "Something smells good here."),
        ("I made some soup.", "There is bread and cheese.", "Today there is rice with carrots."),
        ("May I have some, please?", "That is what I like best.", "Did you make it yourself?"),
        ("Yes, but it is still hot.", "Of course. Sit down beside me.", "Yes, and there is enough for two."),
        ("It tastes wonderful!", "This is the best lunch of the week.", "I could eat this every day."),
        ("I am glad you like it.", "Then have some more.", "Tomorrow you can cook for me."),
    ),
    "a lost hat": (
        ("I cannot find my hat.", "Have you seen my hat?", "My hat is gone!"),
        ("What does it look like?", "Where did you see it last?", "Which one, the green one?"),
        ("It is green, with a feather.", "I had it this morning in the garden.", "It is the one my grandmother made."),
        ("Did you look under the table?", "Maybe the wind took it.", "Let us look for it together."),
        ("I looked everywhere, even in the oven.", "I hope we find it soon.", "Without it my ears are cold."),
        ("But it is on your head!", "Look up. It hangs in the tree!", "There it is, under the chair."),
    ),
    "a trip to the sea": (
        ("Tomorrow we go to the sea.", "Have you ever seen the sea?", "Shall we take a trip to the sea?"),
        ("Oh yes! How do we get there?", "I have only seen it in books.", "I have always wanted to go there."),
        ("We take the train in the morning.", "It is not far. We can walk.", "My uncle has a little boat."),
        ("What shall I bring?", "Can we swim there?", "Are there fish in it?"),
        ("Bring a towel and something to eat.", "Yes, but the water is cold.", "Yes, and shells on the beach."),
        ("I cannot wait until tomorrow!", "I will pack my bag right now.", "Then I will not sleep tonight."),
    ),
    "a new book": (
        ("I have a new book.", "What are you reading?", "Look what I found in the library."),
        ("What is it about?", "Is it a good book?", "It has a very nice cover."),
        ("It is about a brave mouse.", "It is about a ship and a storm.", "It is about a garden at night."),
        ("Is it very long?", "Are there pictures in it?", "How does it end?"),
        ("I have not finished it yet.", "There is a picture on every page.", "I will not tell you the end."),
        ("May I read it after you?", "Please read it to me.", "Let us read it together."),
    ),
    "a birthday": (
        ("Today is my birthday.", "When is your birthday?", "Do you know what day it is?"),
        ("Happy birthday to you!", "Oh! I almost forgot it.", "Is it a day with cake?"),
        ("Thank you. Will you come to the party?", "There will be a big cake.", "I would like to invite you."),
        ("Of course I will come.", "I like parties and cake.", "What kind of cake will it be?"),
        ("It is a cake with red berries.", "My friends will be there, too.", "We will dance and play games."),
        ("And I have a present for you.", "Then I will bring my drum.", "This will be a beautiful day."),
    ),
    "the garden": (
        ("The garden is full of flowers.", "Can you help me in the garden?", "What grows in your garden?"),
        ("I see roses and tulips.", "There are carrots and beans.", "Yes. What should I do first?"),
        ("They need water every day.", "The weeds must come out.", "The sun is good for them."),
        ("I can bring a bucket of water.", "I will do it with you.", "Look, there is a little worm."),
        ("Be careful with the small plants.", "Thank you, that is kind.", "The worm helps us. Leave it there."),
        ("In the summer we will eat them.", "How good it smells here!", "Now let us rest in the shade."),
    ),
    "a loud noise": (
        ("Did you hear that noise?", "What was that?", "Something made a loud noise."),
        ("Yes, it came from the kitchen.", "I think it was outside.", "It sounded like thunder."),
        ("I am a little afraid.", "Shall we go and look?", "Maybe something fell down."),
        ("Do not be afraid. I am with you.", "You go first, please.", "Let us go together, very quietly."),
        ("Look, a pot fell off the shelf.", "It was only the door in the wind.", "There is a cat with a spoon!"),
        ("Now I have to laugh.", "And we were so afraid of it!", "Good. Then we can go back to sleep."),
    ),
}
"""What is talked about: lines in order, each with the ways to say it; two speakers take turns."""

ASKS = (
    "Write a short dialogue between {a} and {b} about {subject}.",
    "Write a dialogue between {a} and {b}.",
    "Write a short dialogue about {subject}.",
    "{a} and {b} talk about {subject}.",
)


def _speaker(rng: random.Random) -> tuple[str, str]:
    """(as the prompt names it, as its lines begin)."""
    kind = rng.random()
    if kind < 0.2:
        name = rng.choice(GIRLS + BOYS)
        return name, name
    noun = rng.choice(OTHERS if kind < 0.5 else TRADES if kind < 0.6 else ANIMALS)
    return "the " + noun if noun in ("sun", "moon") else article(noun), capital(noun)


def dialogue(rng: random.Random) -> dict[str, str]:
    """One dialogue with a prompt that fits it, as a row of a corpus."""
    (a, first), (b, second) = _speaker(rng), _speaker(rng)
    while first == second:
        b, second = _speaker(rng)
    subject = rng.choice(list(SUBJECTS))
    lines = [f"{(first, second)[n % 2]}: {rng.choice(ways)}" for n, ways in enumerate(SUBJECTS[subject])]
    ask = rng.choice(ASKS).format(a=a, b=b, subject=subject)
    return {"shape": "dialogue", "ask": capital(ask), "answer": "\n".join(lines)}

"""Model answers in the wanted shapes. The teacher sees those of a prompt's shape before the prompt itself."""

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "story": (
        (
            "Tell me a story about a small hen who finds a coin.",
            "One morning a small hen went for a walk in the yard. Under an old leaf she found a shiny "
            'coin. She did not know what it was, so she showed it to the horse. The horse said, "That is '
            "a coin. The farmer lost it.\" The hen carried the coin to the farmer's door and knocked. The "
            "farmer was very happy. He gave the hen a big bowl of corn. The hen shared the corn with all "
            "her friends.",
        ),
        (
            "Write a short story about a boy named Sam who learns to ride a bike.",
            "Sam had a new blue bike. He was afraid to fall, so he only looked at it. One day his sister "
            'held the bike and said, "I am here. Try it." Sam sat down and pushed the pedals. He fell on '
            "the soft grass, and he laughed. He tried again and again. In the evening Sam rode all the "
            "way to the big tree. His sister clapped her hands, and Sam felt very proud.",
        ),
        (
            "Tell me a story about an old turtle by a lake.",
            "An old turtle lived by a quiet lake. Every day she swam slowly from one side to the other. "
            'One day a young frog asked, "Why are you so slow?" The turtle smiled and said, "When I am '
            'slow, I see more." The frog swam beside her and looked around. He saw a golden fish and a '
            "white flower. After that, the frog was never in a hurry again.",
        ),
    ),
    "question": (
        (
            "What is a bridge?",
            "A bridge is a road that goes over water or over a valley. People and cars use it to get to "
            "the other side. Bridges are made of wood, stone or steel.",
        ),
        (
            "Why do we eat fruit?",
            "Fruit gives our body vitamins and energy. It helps us grow and stay healthy. Apples, "
            "oranges and bananas also taste sweet, so they make a good snack.",
        ),
        (
            "Explain simply: how does a candle burn?",
            "A candle is made of wax with a string in the middle. When you light the string, the wax "
            "melts and climbs up. The flame burns the wax and gives light and heat.",
        ),
    ),
    "list": (
        (
            "List five things in a bathroom.",
            "1. A towel\n2. A bar of soap\n3. A toothbrush\n4. A mirror\n5. A comb",
        ),
        (
            "Name three insects.",
            "1. Ant\n2. Bee\n3. Butterfly",
        ),
        (
            "List five ways to be kind.",
            "1. Say thank you\n2. Share your toys\n3. Help a friend\n4. Listen to others\n5. Smile at people",
        ),
    ),
    "dialogue": (
        (
            "Write a short dialogue between a bird and a tree about the wind.",
            "Bird: The wind is strong today.\nTree: Yes, all my leaves are dancing.\nBird: May I hold on "
            "to your branch?\nTree: Of course, you are safe with me.\nBird: Thank you, you are a good "
            "friend.\nTree: Come back when the sun is out.",
        ),
        (
            "Write a short dialogue between a cook and a boy about soup.",
            "Boy: What are you cooking?\nCook: I am making a soup with carrots.\nBoy: It smells so good. "
            "May I try it?\nCook: Here is a spoon, but it is hot.\nBoy: I like it very much.\nCook: Then "
            "sit down, lunch is ready.",
        ),
    ),
}


def conversation(shape: str, ask: str) -> list[dict[str, str]]:
    """The chat the teacher sees: the examples of this shape as earlier turns, then the prompt."""
    turns = []
    for question, answer in EXAMPLES[shape]:
        turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return [*turns, {"role": "user", "content": ask}]

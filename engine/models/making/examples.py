"""Model answers in the wanted shapes. The teacher sees those of a prompt's shape before the prompt itself."""

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
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
}


def conversation(shape: str, ask: str) -> list[dict[str, str]]:
    """The chat the teacher sees: the examples of this shape as earlier turns, then the prompt."""
    turns = []
    for question, answer in EXAMPLES[shape]:
        turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return [*turns, {"role": "user", "content": ask}]

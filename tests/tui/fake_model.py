"""What a load would give, without a model: a tokenizer of words, and a clock that stands still unless told."""

from dataclasses import dataclass
from typing import Any

from engine.core.sizing import Facts

WORDS = (
    "the rain ran over old stones and found a way down to sea where ships wait for wind or light , "
    "while people slept under their roofs until bells rang again . so it went on every day of that year"
).split()


class FakeTokenizer:
    """Words to numbers and back; unknown words get the numbers after the known ones."""

    eos_token_id = None

    def __init__(self, chat_template: str | None = "there is one") -> None:
        self.chat_template = chat_template
        self.words = ["<user>", "<reply>", *WORDS]

    def __call__(self, text: str, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [self._number(word) for word in text.split()]}

    def _number(self, word: str) -> int:
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)

    def apply_chat_template(self, turns: list[dict[str, str]], **options: Any) -> str:
        return f"<user> {turns[-1]['content']} <reply>"

    def decode(self, ids: Any, **options: Any) -> str:
        return " ".join(self.words[i % len(self.words)] for i in ids)


class FakeClock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class FakeLoaded:
    """As what loading returns."""

    name: str
    tokenizer: Any


FACTS = Facts(
    device="cpu", windows=(None,), kv_heads=2, head_dim=8, num_heads=4, hidden_size=32, intermediate_size=64,
    vocab_size=97, item_bytes=4, max_positions=512, attention="sdpa", weight_bytes=1 << 20, free_bytes=8 << 30,
    total_bytes=16 << 30, host_free_bytes=8 << 30,
)  # fmt: skip

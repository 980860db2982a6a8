"""Prompts of people: what a text becomes for the model, and what people write into the fields of a request."""

import json
from typing import Any


def has_chat_template(tokenizer: Any) -> bool:
    """Whether the tokenizer brings a chat template."""
    return bool(getattr(tokenizer, "chat_template", None))


def encode(tokenizer: Any, text: str, chat: bool = True) -> list[int]:
    """Token ids of one prompt, as a user's turn of the chat template when there is one and ``chat`` is set."""
    from engine.loading import chat_prompt  # reading model files is not needed for the first frame

    return chat_prompt(tokenizer, text, chat)


def counts(tokenizer: Any, text: str, chat: bool = True) -> tuple[int, int]:
    """How many tokens of a prompt are its text, and how many its template (or special tokens) adds."""
    plain = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    return plain, len(encode(tokenizer, text, chat)) - plain


def parse_stop_strings(text: str) -> tuple[str, ...]:
    """Stop strings as a person writes them: JSON strings between commas, such as ``"\\n\\n", "###"``.

    Words without quotes are taken as they are, so ``END`` and ``END, STOP`` work too.

    Raises:
        ValueError: a quote is not closed, or a stop string is empty.
    """
    text = text.strip()
    if not text:
        return ()
    if text[0] != '"':
        words = tuple(word.strip() for word in text.split(","))
    else:
        try:
            words = tuple(json.loads(f"[{text}]"))
        except json.JSONDecodeError:
            raise ValueError('stop strings are quoted and between commas, as in "\\n\\n", "###"') from None
    if not all(isinstance(word, str) and word for word in words):
        raise ValueError("a stop string must hold at least one character")
    return words


def write_stop_strings(words: tuple[str, ...]) -> str:
    """The way back: what ``parse_stop_strings`` reads."""
    return ", ".join(json.dumps(word, ensure_ascii=False) for word in words)

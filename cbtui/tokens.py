"""How the monitor reads token ids: through the model's tokenizer, stream by stream."""

from typing import Any, Self

from cbtui.stories import TokenText


class TokenizerText:
    """Text of token ids through a ``transformers`` tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def of(cls, tokenizer: Any) -> Self | None:
        """A text source, or None where there is no tokenizer (ids are then shown as numbers)."""
        return None if tokenizer is None else cls(tokenizer)

    def decode(self, ids: tuple[int, ...]) -> str:
        """The text of a whole prompt, special tokens included: they are part of what the model reads."""
        return self._tokenizer.decode(list(ids))

    def stream(self) -> TokenText:
        """A decoder for one growing output."""
        from engine.detokenize import TextStream  # only where tokens come, after the first frame

        return TextStream(self._tokenizer)

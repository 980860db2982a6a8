"""When a sequence ends: end-of-sequence ids, stop strings with hold-back, the length limit."""

from collections.abc import Callable

from engine.core.request import FinishReason, Sequence

TextOf = Callable[[Sequence], str]
"""Returns the text that became decodable with the last token of a sequence."""


class StopText:
    """Finds stop strings in text that arrives in pieces, and lets out only what cannot be part of one.

    With the stop string "DEFGH", the pieces "ABCDEF", "G", "x" come out as "ABC", "", "DEFGx": "DEF" might still have
    become a match, and was let out as soon as it could not any more.
    """

    __slots__ = ("held", "strings")

    def __init__(self, strings: tuple[str, ...]) -> None:
        self.strings = tuple(s for s in strings if s)
        self.held = ""

    def push(self, piece: str) -> tuple[str, bool]:
        """Take the next piece.

        Returns:
            The text to let out now, and whether a stop string was completed. Then nothing of it nor after it is let
            out, neither now nor later. Of several matches the one that begins first counts.
        """
        text = self.held + piece
        places = [place for place in map(text.find, self.strings) if place >= 0]
        if places:
            self.held = ""
            return text[: min(places)], True
        keep = max((self._overlap(text, string) for string in self.strings), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """No more text comes: let out what was held back."""
        text, self.held = self.held, ""
        return text

    def copy(self) -> "StopText":
        twin = StopText(self.strings)
        twin.held = self.held
        return twin

    @staticmethod
    def _overlap(text: str, string: str) -> int:
        """Length of the longest end of ``text`` that ``string`` begins with, short of a whole match."""
        for length in range(min(len(text), len(string) - 1), 0, -1):
            if text.endswith(string[:length]):
                return length
        return 0


def end_of(seq: Sequence, token: int, stop: StopText | None, text_of: TextOf | None) -> FinishReason | None:
    """Whether ``token``, which was just appended to ``seq``, ends it, and why. Lets its text out into ``seq.text``.

    An end-of-sequence id counts before a stop string, a stop string before the length.
    """
    request = seq.request
    reason = None
    if token in request.eos_ids:
        reason = FinishReason.EOS
    elif len(seq.tokens) - seq.num_prompt >= request.max_new_tokens:
        reason = FinishReason.LENGTH
    if stop is None or text_of is None:
        return reason
    released, matched = stop.push(text_of(seq))
    seq.text += released
    if matched and reason is not FinishReason.EOS:
        return FinishReason.STOP_STRING
    if reason is not None and not matched:
        seq.text += stop.flush()
    return reason

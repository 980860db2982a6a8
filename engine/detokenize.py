"""Text from tokens as they come: nothing broken is let out, nothing is decoded twice from the start."""

import codecs
import json
import re
from collections.abc import Mapping
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MAX_HELD = 64
"""Tokens a window may hold back before its text is let out as it is."""

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>\Z")


class TextStream:
    """Decodes one sequence token by token.

    ``push`` returns the text that became certain, ``flush`` the rest; joined they are what decoding all tokens at once
    gives (without tidying of spaces). Characters whose bytes are spread over several tokens come out whole.

    Byte-level vocabularies are decoded byte by byte. For others the text of a short window of tokens is compared with
    the text of the window before, which gets spaces and contractions right; a run of byte tokens such as ``<0xF0>`` is
    held until it ends, because whether it is text or not is decided for the run as a whole.

    Args:
        tokenizer: a ``transformers`` tokenizer, or anything with ``decode(ids, **options)``.
        skip_special_tokens: leave special tokens out.
    """

    def __init__(self, tokenizer: Any, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._special = _special_ids(tokenizer) if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace") if _is_byte_level(tokenizer) else None
        self._before: list[int] = []
        self._window: list[int] = []

    def push(self, token: int) -> str:
        """Take the next token id; return the text that is certain now, often empty."""
        if token in self._special:
            return ""
        if self._utf8 is not None:
            return self._utf8.decode(self._bytes_of(token))
        self._window.append(token)
        if len(self._window) < MAX_HELD and self._is_byte(token):
            return ""
        return self._let_out(sure=len(self._window) >= MAX_HELD)

    def flush(self) -> str:
        """No more tokens come: return what was held back, broken characters as replacement characters."""
        if self._utf8 is not None:
            return self._utf8.decode(b"", final=True)
        return self._let_out(sure=True) if self._window else ""

    def _let_out(self, *, sure: bool) -> str:
        known = self._decode(self._before) if self._before else ""
        text = self._decode(self._before + self._window)
        if not sure and text.endswith(REPLACEMENT):
            return ""
        self._before, self._window = self._window, []
        return text[len(known) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip, clean_up_tokenization_spaces=False)

    def _is_byte(self, token: int) -> bool:
        convert = getattr(self._tokenizer, "convert_ids_to_tokens", None)
        return convert is not None and _BYTE_TOKEN.match(str(convert(token))) is not None

    def _bytes_of(self, token: int) -> bytes:
        """Bytes of a byte-level token; added tokens that are not spelled in the byte alphabet are plain text."""
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:
            return b""
        values = [_BYTE_OF.get(character) for character in piece]
        if any(value is None for value in values):
            return piece.encode()
        return bytes(value for value in values if value is not None)


def decode_all(tokenizer: Any, ids: list[int]) -> str:
    """Text of all tokens at once: what a ``TextStream`` over them adds up to."""
    stream = TextStream(tokenizer)
    return "".join([stream.push(token) for token in ids]) + stream.flush()


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids that decoding leaves out: the named special tokens, and added tokens marked as special."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    marked = [token for token, entry in added.items() if getattr(entry, "special", False)]
    return frozenset([*getattr(tokenizer, "all_special_ids", ()), *marked])


def _is_byte_level(tokenizer: Any) -> bool:
    """Whether the tokenizer's decoder maps each character of a token to one byte, and nothing else."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        return False
    decoder = backend.decoder
    state = getattr(decoder, "__getstate__", lambda: None)()
    if not state:
        return False
    return json.loads(state).get("type") == "ByteLevel"


def _byte_alphabet() -> Mapping[str, int]:
    """The printable stand-in of each byte in byte-level vocabularies: itself, or 256 + n for the n-th that has none."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in kept}
    others = [byte for byte in range(256) if byte not in set(kept)]
    table.update({chr(256 + place): byte for place, byte in enumerate(others)})
    return table


_BYTE_OF = _byte_alphabet()

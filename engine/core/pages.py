"""Pages of tokens as the prefix cache sees them: a chain of contents, each with a digest of everything before it."""

import hashlib
import struct
from collections.abc import Callable, Sequence

DIGEST_BYTES = 16

Digest = Callable[[bytes, Sequence[int]], bytes]
"""(digest of the page before, tokens of this page) -> digest of this page."""


def page_digest(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Digest of a page: 16 bytes of blake2b over its parent's digest and its token ids.

    The same in every process and on every machine: tokens are packed as little-endian 64-bit integers.
    """
    packed = struct.pack(f"<{len(tokens)}q", *tokens)
    return hashlib.blake2b(parent + packed, digest_size=DIGEST_BYTES).digest()


def root_digest(salt: bytes) -> bytes:
    """Digest that stands before the first page. Requests with different salts never meet."""
    return hashlib.blake2b(salt, digest_size=DIGEST_BYTES, person=b"page root").digest()


class Page:
    """The tokens of one full page and, through ``parent``, all tokens before it. Never changes.

    Two equal pages mean equal prefixes. A digest only finds candidates; ``same_prefix`` decides.
    """

    __slots__ = ("digest", "parent", "salt", "tokens")

    def __init__(self, parent: "Page | None", tokens: tuple[int, ...], digest: bytes, salt: bytes) -> None:
        self.parent = parent
        self.tokens = tokens
        self.digest = digest
        self.salt = salt


def same_prefix(a: Page | None, b: Page | None) -> bool:
    """True when both chains hold the same tokens and salt. Stops early where the chains are the very same objects."""
    while a is not b:
        if a is None or b is None or a.tokens != b.tokens or a.salt != b.salt:
            return False
        a, b = a.parent, b.parent
    return True

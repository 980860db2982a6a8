"""How large a step's input is made: exactly as it is, or padded to one of few sizes.

A captured graph and a statically compiled pass can only be used again for an input of the very same sizes, and some
numbers (the longest query, the most keys) are built into them. ``Shape`` holds all of these and is the key they are
kept under, so that two steps of one shape differ in nothing but the contents of tensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.core.layout import CacheLayout

VARLEN, DECODE = "varlen", "decode"
PATHS = (VARLEN, DECODE)
"""Steps with slices of any length, and steps in which every slice is one token."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one step's input tensors and every number that reaches a kernel as a number.

    Attributes:
        path: "varlen" or "decode".
        tokens, rows, samples: query tokens, slices and sampled rows, padding included.
        longest: most query tokens of a slice.
        keys: per layer group, most keys a slice has in its part of the table.
        widths: per layer group, columns of the block table.
    """

    path: str
    tokens: int
    rows: int
    samples: int
    longest: int
    keys: tuple[int, ...]
    widths: tuple[int, ...]


def first_pages(starts: np.ndarray, window: int | None, page_size: int) -> np.ndarray:
    """int64 [slices], the page of the oldest key any query of a slice sees.

    A table that begins there holds blocks of this sequence only. What stands before it may have been recycled, and a
    kernel that masks keys after loading them would still meet what lies there now.
    """
    if window is None:
        return np.zeros_like(starts)
    return np.maximum(0, starts - window + 1) // page_size


class Shapes:
    """The sizes used for one engine.

    Args:
        max_tokens, max_rows: of the largest step.
        max_keys: longest sequence in tokens.
        decode_pages: columns of the decode path's block tables; 0 sends every step down the varlen path.
        padded: paths whose sizes are rounded up; the others keep theirs.
        q_interval, kv_interval: what tokens and keys are rounded up to, in tokens.
    """

    def __init__(
        self,
        layout: CacheLayout,
        *,
        max_tokens: int,
        max_rows: int,
        max_keys: int,
        decode_pages: int = 0,
        padded: frozenset[str] = frozenset(),
        q_interval: int = 64,
        kv_interval: int = 16384,
    ) -> None:
        self.layout, self.padded = layout, padded
        self.max_tokens, self.max_rows, self.decode_pages = max_tokens, max_rows, decode_pages
        self._q, self._kv = q_interval, kv_interval
        size = layout.page_size
        pages = -(-max_keys // size)
        self.widest = tuple(_widest(group.window, max_tokens, pages, size) for group in layout.groups)
        """Per layer group, columns of the widest block table."""
        self._decode_widths = tuple(
            min(decode_pages, _widest(group.window, 1, decode_pages, size)) for group in layout.groups
        )

    def of(self, starts: np.ndarray, lengths: np.ndarray, samples: int) -> Shape:
        """The shape of a step whose slices begin at ``starts`` and have ``lengths`` query tokens, int64 [slices]."""
        size, ends = self.layout.page_size, starts + lengths
        keys = [int((ends - first_pages(starts, g.window, size) * size).max()) for g in self.layout.groups]
        pages = [-(-count // size) for count in keys]
        tokens, rows, longest = int(lengths.sum()), len(lengths), int(lengths.max())
        if longest == 1 and self._fits_decode(pages):
            return self._decode(rows, samples)
        if VARLEN not in self.padded:
            return Shape(VARLEN, tokens, rows, samples, longest, tuple(keys), tuple(pages))
        tokens, rows = min(_up(tokens, self._q), self.max_tokens), self._rows(rows)
        keys = [min(_up(count, self._kv), wide * size) for count, wide in zip(keys, self.widest, strict=True)]
        widths = tuple(-(-count // size) for count in keys)
        return Shape(VARLEN, tokens, rows, rows, min(tokens, _up(longest, self._q)), tuple(keys), widths)

    def warmup(self) -> Iterator[Shape]:
        """The shapes to prepare before the first step, of each path the largest first: it takes the most memory."""
        size = self.layout.page_size
        if VARLEN in self.padded:
            keys = tuple(wide * size for wide in self.widest)
            rows = self._rows(1)
            yield Shape(VARLEN, self.max_tokens, rows, rows, self.max_tokens, keys, self.widest)
        if DECODE in self.padded and self.decode_pages:
            yield from (self._decode(rows, rows) for rows in reversed(self._row_sizes()))

    def _fits_decode(self, pages: list[int]) -> bool:
        return bool(self.decode_pages) and all(n <= w for n, w in zip(pages, self._decode_widths, strict=True))

    def _decode(self, rows: int, samples: int) -> Shape:
        if DECODE in self.padded:
            rows = samples = self._rows(rows)
        keys = tuple(width * self.layout.page_size for width in self._decode_widths)
        return Shape(DECODE, rows, rows, samples, 1, keys, self._decode_widths)

    def _rows(self, count: int) -> int:
        """Powers of two up to the interval, then its multiples."""
        size = 1 << max(0, count - 1).bit_length()
        return min(size if size <= self._q else _up(count, self._q), self.max_rows)

    def _row_sizes(self) -> list[int]:
        """Every number of rows there can be."""
        sizes: list[int] = []
        while not sizes or sizes[-1] < self.max_rows:
            sizes.append(self._rows(sizes[-1] + 1 if sizes else 1))
        return sizes


def _up(count: int, interval: int) -> int:
    return -(-count // interval) * interval


def _widest(window: int | None, tokens: int, pages: int, page_size: int) -> int:
    """Most pages of a table that begins at the oldest visible key."""
    if window is None:
        return pages
    return min(pages, (window + tokens + page_size - 3) // page_size + 1)

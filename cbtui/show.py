"""What commands without the monitor say on standard error: progress on a terminal, and notes about what was decided."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, TextIO

from cbtui.launch import RequestSpec
from cbtui.sentences import count
from engine.models.progress import LoadProgress

if TYPE_CHECKING:
    from engine.loading import Loaded


class StatusLine:
    """One line that is written over. Does nothing when the stream is no terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._width = 0

    def show(self, text: str) -> None:
        """Replaces what stands in the line."""
        if self._live:
            self._stream.write("\r" + text + " " * (self._width - len(text)))
            self._stream.flush()
            self._width = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Clears the line, so that what follows starts on a clean one."""
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


class LoadLine(StatusLine):
    """Shows what loading reports; is itself the progress callback."""

    def __call__(self, report: LoadProgress) -> None:
        share = "" if report.fraction is None else f" {report.fraction:.0%}"
        self.show(f"{report.phase} {report.detail}{share}  {report.seconds:.0f} s")


def tell_loaded(loaded: "Loaded", notices: Sequence[str]) -> None:
    """What was decided for the person, on standard error."""
    print(
        f"{loaded.name}: {loaded.num_parameters / 1e6:.1f} M weights, loaded in {loaded.seconds:.1f} s\n"
        f"on {loaded.device.value} ({loaded.device.reason}), in {loaded.dtype.value} ({loaded.dtype.reason})",
        file=sys.stderr,
    )
    for notice in notices:
        print(f"note: {notice}", file=sys.stderr)


def tell_cut(specs: Sequence[RequestSpec], prompts: Sequence[Sequence[int]], limit: int | None) -> None:
    """Says before anything is computed that requests ask for more tokens than the model has positions for.

    Args:
        prompts: their tokens. limit: positions of the model, None for no limit.
    """
    if limit is None:
        return
    asked = [(spec.max_new_tokens, len(ids)) for spec, ids in zip(specs, prompts, strict=True)]
    cut = [(new, size) for new, size in asked if size <= limit < size + new]
    if not cut:
        return
    new, size = cut[0]
    others = f" ({count(len(cut) - 1, 'more request')} likewise)" if len(cut) > 1 else ""
    print(
        f"note: max_new_tokens={new} is more than this model can write: it has {limit} positions, which leaves "
        f"{limit - size} new tokens after a prompt of {size}; ask for at most that many, or take a model with more "
        f"positions{others}",
        file=sys.stderr,
    )

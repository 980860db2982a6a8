"""Progress on standard error for commands without the monitor: a line that changes on a terminal, nothing in a pipe."""

import sys
from typing import Self, TextIO

from engine.models.progress import LoadProgress


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

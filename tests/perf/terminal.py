"""A program in a pseudo-terminal: what it writes and when, keys for it, and its end."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SYNC_QUERY, SYNC_ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
"""A terminal that is asked whether it can hold back a frame until it is whole, and says yes: so frames can be told."""
FRAME_START, FRAME_END = b"\x1b[?2026h", b"\x1b[?2026l"
_CODES = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
KEYS = {"up": b"\x1b[A", "down": b"\x1b[B", "home": b"\x1b[H", "end": b"\x1b[F", "enter": b"\r", "space": b" "}


class TerminalError(RuntimeError):
    """What was waited for did not come."""


class Terminal:
    """Starts ``command`` with a terminal of its own.

    Args:
        size: columns and rows.
        pass_fds: file descriptors the program gets besides.

    Attributes:
        started: when the process was started, on ``time.monotonic``'s clock.
    """

    def __init__(self, command: Sequence[str], size: tuple[int, int], pass_fds: Sequence[int] = ()) -> None:
        self._leader, follower = pty.openpty()
        columns, rows = size
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment.pop("NO_COLOR", None)
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, pass_fds=pass_fds, env=environment, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        os.close(follower)
        self._news = threading.Condition()
        self._written = bytearray()
        self._arrivals: list[tuple[float, int]] = []
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._leader, 1 << 16)
            except OSError:  # the other side is closed
                data = b""
            now = time.monotonic()
            with self._news:
                self._written += data
                self._arrivals.append((now, len(self._written)))
                self._news.notify_all()
            if not data:
                return
            if SYNC_QUERY in data:
                os.write(self._leader, SYNC_ANSWER)

    @property
    def position(self) -> int:
        """Bytes written so far."""
        with self._news:
            return len(self._written)

    def since(self, position: int) -> bytes:
        with self._news:
            return bytes(self._written[position:])

    def text(self, position: int = 0) -> str:
        """What was written from ``position`` on, without control codes. Not a picture: only what was painted again."""
        return _CODES.sub(b"", self.since(position)).decode(errors="replace")

    def key(self, name: str) -> None:
        os.write(self._leader, KEYS.get(name, name.encode()))

    def wait_for(self, words: Sequence[str], position: int = 0, seconds: float = 60.0) -> float:
        """When one of ``words`` had been written after ``position``; without words, when anything had.

        Returns:
            The time on ``time.monotonic``'s clock.

        Raises:
            TerminalError: it did not come in time.
        """
        deadline = time.monotonic() + seconds
        with self._news:
            while True:
                fresh = bytes(self._written[position:])
                if fresh and not words:
                    return self._arrivals[-1][0]
                text = _CODES.sub(b"", fresh).decode(errors="replace")
                if any(word in text for word in words):
                    return self._arrivals[-1][0]
                left = deadline - time.monotonic()
                if left <= 0 or (self._arrivals and self.process.poll() is not None):
                    raise TerminalError(
                        f"{' or '.join(words) or 'a byte'} did not come in {seconds:g} s; last: {text[-800:]}"
                    )
                self._news.wait(min(left, 0.5))

    def frames(self, position: int, end: int | None = None) -> list[int]:
        """Bytes of each whole frame written after ``position``."""
        parts = self.since(position)[: None if end is None else end - position].split(FRAME_START)[1:]
        return [part.index(FRAME_END) for part in parts if FRAME_END in part]

    def wait_end(self, seconds: float = 10.0) -> float | None:
        """Waits for the process to end; the time it did, or None when it does not."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return time.monotonic()

    def close(self) -> None:
        """Ends the program in any case."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            os.close(self._leader)
        self._reader.join(timeout=2)

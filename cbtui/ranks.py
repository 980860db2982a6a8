"""The command under ``torchrun``: rank 0 is the one a person sees and speaks to, the others follow in silence."""

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from engine.core.errors import ConfigError, LoadError
from engine.parallel.launch import launched

if TYPE_CHECKING:
    from cbtui.options import Choices

FAILED_TO_LOAD = 3
LOOK = 0.5
"""Seconds between two looks at the size of the terminal."""


def follows() -> bool:
    """Whether this process is a rank other than 0."""
    launch = launched()
    return launch is not None and not launch.leads


def follow(choices: "Choices") -> int:
    """Load this rank's part of the model and serve rank 0 until it ends.

    What is written meanwhile goes to a file, which is named when something goes wrong. A rank that fails while the
    engine runs ends with 0: rank 0 tells the cause, and must not be ended by the launcher before it has.
    """
    from cbtui.start import load_model

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 hears it too and decides
    launch = launched()
    assert launch is not None
    with _silence(launch.rank) as say:
        try:
            from engine.parallel.attach import follow as serve
            from engine.parallel.ranks import RankError

            serve(load_model(choices).model)
        except (LoadError, ConfigError) as error:
            say(str(error))
            return FAILED_TO_LOAD
        except RankError as error:
            print(error, file=sys.stderr)  # into the file
            say("", keep=True)
        except Exception as error:
            import traceback

            traceback.print_exc()
            say(f"{type(error).__name__}: {error}", keep=True)
    return 0


@contextlib.contextmanager
def _silence(rank: int) -> Iterator["_Say"]:
    """Standard output and error go to a file; what is called inside speaks to the real standard error."""
    handle, name = tempfile.mkstemp(prefix=f"cbtui-rank{rank}-", suffix=".log")
    sys.stdout.flush()
    sys.stderr.flush()
    real = os.dup(2)
    say = _Say(rank, real, name)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    try:
        yield say
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        if not say.keep:
            Path(name).unlink(missing_ok=True)


class _Say:
    """Tells a person, on the real standard error."""

    def __init__(self, rank: int, descriptor: int, log: str) -> None:
        self._rank, self._descriptor, self._log = rank, descriptor, log
        self.keep = False

    def __call__(self, message: str, *, keep: bool = False) -> None:
        self.keep = self.keep or keep
        if message:
            where = f" (its output: {self._log})" if keep else ""
            os.write(self._descriptor, f"cbtui: rank {self._rank}: {message}{where}\n".encode())


@contextlib.contextmanager
def leading() -> Iterator[None]:
    """What rank 0 has to mind under a launcher; nothing in an ordinary process, and nothing on other ranks."""
    launch = launched()
    if launch is None or not launch.leads:
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        """The launcher ends rank 0 when another rank was killed: time to put the terminal right and tell results."""
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    over = threading.Event()
    if sys.stdout.isatty() and hasattr(signal, "SIGWINCH"):
        # The launcher starts its processes in a session of their own, where no signal tells of a new size.
        threading.Thread(target=_watch_size, args=(over,), name="terminal-size", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)
        if "torch" in sys.modules:
            from engine.parallel.launch import part

            part()


def _watch_size(over: threading.Event) -> None:
    """Sends the signal that a terminal of another size sends."""
    size = os.get_terminal_size(sys.stdout.fileno())
    while not over.wait(LOOK):
        with contextlib.suppress(OSError):
            now = os.get_terminal_size(sys.stdout.fileno())
            if now != size:
                size = now
                os.kill(os.getpid(), signal.SIGWINCH)

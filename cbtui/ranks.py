"""The command under ``torchrun``: rank 0 is the one a person sees and speaks to, the others follow in silence."""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from types import FrameType
from typing import IO, TYPE_CHECKING

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

    What is written meanwhile is kept aside, and told when something goes wrong here. A rank that fails while the
    engine runs ends with 0: rank 0 tells the cause, and must not be ended by the launcher before it has.
    """
    from cbtui.start import load_model

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 hears it too and decides
    launch = launched()
    assert launch is not None
    with _silence(launch.rank) as say:
        try:
            from engine.parallel.attach import follow as serve
            from engine.parallel.loading import SaidByRank0
            from engine.parallel.ranks import RankError

            with contextlib.suppress(SaidByRank0):
                serve(load_model(choices).model)
        except (LoadError, ConfigError) as error:
            say(str(error))
            return FAILED_TO_LOAD
        except RankError:
            pass  # rank 0 tells it
        except Exception as error:
            import traceback

            traceback.print_exc()
            say(f"{type(error).__name__}: {error} (more in {say.keep()})")
    return 0


@contextlib.contextmanager
def _silence(rank: int) -> Iterator["_Say"]:
    """Standard output and error are kept aside; what is called inside speaks to the real standard error."""
    with tempfile.TemporaryFile() as log:
        sys.stdout.flush()
        sys.stderr.flush()
        say = _Say(rank, os.dup(2), log)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        yield say


class _Say:
    """Tells a person, on the real standard error."""

    def __init__(self, rank: int, descriptor: int, log: IO[bytes]) -> None:
        self._rank, self._descriptor, self._log = rank, descriptor, log

    def __call__(self, message: str) -> None:
        os.write(self._descriptor, f"cbtui: rank {self._rank}: {message}\n".encode())

    def keep(self) -> str:
        """What was written so far goes to a file; its name."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._log.seek(0)
        with tempfile.NamedTemporaryFile(prefix=f"cbtui-rank{self._rank}-", suffix=".log", delete=False) as kept:
            shutil.copyfileobj(self._log, kept)
        return kept.name


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
        args = (over, sys.stdout.fileno())  # the monitor puts something else in the place of standard output
        threading.Thread(target=_watch_size, args=args, name="terminal-size", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)
        if "torch" in sys.modules:
            from engine.parallel.launch import part

            part()


def _watch_size(over: threading.Event, descriptor: int) -> None:
    """Sends the signal that a terminal of another size sends."""
    size = os.get_terminal_size(descriptor)
    while not over.wait(LOOK):
        with contextlib.suppress(OSError):
            now = os.get_terminal_size(descriptor)
            if now != size:
                size = now
                os.kill(os.getpid(), signal.SIGWINCH)

"""The probed program as its user sees it: a terminal, and a wire for questions."""

import json
import socket
import sys
import time
from typing import Any

from tests.perf.terminal import Terminal, TerminalError


class Program:
    """``tests.perf.probe`` in a terminal of its own. ``settings`` are the probe's, see there."""

    def __init__(self, size: tuple[int, int] = (200, 60), **settings: Any) -> None:
        ours, theirs = socket.socketpair()
        chosen = {"engine": "scripted", "seconds": 0.0, "busy": False, "monitor": True, "lateness": False, **settings}
        command = [sys.executable, "-m", "tests.perf.probe", json.dumps({**chosen, "socket": theirs.fileno()})]
        self.terminal = Terminal(command, size, (theirs.fileno(),))
        theirs.close()
        self._socket = ours
        self._wire = ours.makefile("rw")

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """The answer to a question. Raises TerminalError when it failed, or nobody answers any more."""
        try:
            self._wire.write(json.dumps({"do": do, **what}) + "\n")
            self._wire.flush()
            line = self._wire.readline()
        except (BrokenPipeError, ConnectionResetError):
            line = ""
        if not line:
            raise TerminalError(f"the program ended: {self.terminal.text()[-800:]}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise TerminalError(found["error"])
        return found

    def until_running(self, requests: int, seconds: float = 120.0) -> None:
        """Waits until that many requests hold a row on the screen. Raises TerminalError when it takes too long."""
        end = time.monotonic() + seconds
        while self.ask("sample")["running"] < requests:
            if time.monotonic() > end:
                raise TerminalError(f"{requests} requests do not run: {self.terminal.text()[-800:]}")
            time.sleep(0.1)

    def until_ready(self, seconds: float = 120.0) -> None:
        """Waits until the monitor has an engine. Raises TerminalError when it takes too long."""
        end = time.monotonic() + seconds
        while not self.ask("sample")["ready"]:
            if time.monotonic() > end:
                raise TerminalError(f"no engine: {self.terminal.text()[-800:]}")
            time.sleep(0.1)

    def close(self) -> None:
        self.terminal.close()
        self._wire.close()
        self._socket.close()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

"""Input from a terminal that may send anything, or go away."""

import os
import selectors
from codecs import getincrementaldecoder

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

WAIT = 0.1
"""Seconds between two looks at whether the program ends, and at escapes that nothing followed."""


class ForgivingDriver(LinuxDriver):
    """Bytes that are no UTF-8 become replacement characters; when the terminal is gone, the program ends.

    Textual's own reader takes both for faults of the program. A broken byte in the middle of a paste must not end the
    paste either: its rest would be taken for keys.
    """

    def run_input_thread(self) -> None:
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(WAIT):
                    sent = self._read()
                    if not sent:
                        self._app.call_later(self._app.exit)
                        return
                    for event in parser.feed(decode(sent)):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)

    def _read(self) -> bytes:
        """What the terminal sent, empty when there is no terminal any more."""
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            return b""

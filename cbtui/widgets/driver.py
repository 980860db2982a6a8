"""Input from a terminal that may send anything, or go away; and signals that end the program."""

import asyncio
import os
import re
import selectors
import signal
from codecs import getincrementaldecoder

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

WAIT = 0.1
"""Seconds between two looks at whether the program ends, and at escapes that nothing followed."""

START, END = "\x1b[200~", "\x1b[201~"
"""What a terminal writes around a paste."""
ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~])?")
LONGEST_ESCAPE = 32


ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals after which the program ends as if it was quit, with 128 and their number as its exit code."""


class Pastes:
    """Takes escape codes out of pastes: coloured text of another terminal would end them and be taken for keys."""

    def __init__(self) -> None:
        self._inside = False
        self._held = ""

    def feed(self, text: str) -> str:
        """The same input without them. What may go on in the next call is kept back until then."""
        text, self._held = self._held + text, ""
        out: list[str] = []
        while text:
            if not self._inside:
                keys, found, text = text.partition(START)
                cut = next((n for n in (5, 4, 3) if keys.endswith(START[:n])), 0)  # shorter ones are keys
                if cut and not found:
                    keys, self._held = keys[:-cut], keys[-cut:]
                out.append(keys + found)
                self._inside = bool(found)
                continue
            pasted, found, text = text.partition(END)
            if not found:
                cut = pasted.rfind("\x1b", -LONGEST_ESCAPE)
                if cut >= 0:
                    pasted, self._held = pasted[:cut], pasted[cut:]
            out.append(ESCAPE.sub("", pasted) + found)
            self._inside = not found
        return "".join(out)


class ForgivingDriver(LinuxDriver):
    """Bytes that are no UTF-8 become replacement characters, pastes plain text; without a terminal the program ends.

    Textual's own reader takes both for faults of the program. A broken byte in the middle of a paste must not end the
    paste either: its rest would be taken for keys.
    """

    def start_application_mode(self) -> None:
        """From here on the terminal is to be put right again whatever ends the program."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:  # under nohup or a launcher they have a meaning of their own
                loop.add_signal_handler(number, self._app.exit, 128 + number)
        super().start_application_mode()

    def run_input_thread(self) -> None:
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        pastes = Pastes()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(WAIT):
                    sent = self._read()
                    if not sent:
                        self._app.call_later(self._app.exit)
                        return
                    for event in parser.feed(pastes.feed(decode(sent))):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)

    def _read(self) -> bytes:
        """What the terminal sent, empty when there is no terminal any more."""
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            return b""

"""What comes from a terminal: broken bytes, and its end."""

import os
import threading
from types import SimpleNamespace

from textual import events

from cbtui.widgets.driver import ForgivingDriver


def read_all(sent: bytes) -> tuple[list[object], list[str]]:
    """The messages made of what a terminal sent before it went away, and what the app was asked for."""
    reading, writing = os.pipe()
    os.write(writing, sent)
    os.close(writing)
    messages: list[object] = []
    asked: list[str] = []
    driver = ForgivingDriver.__new__(ForgivingDriver)
    driver.fileno, driver.exit_event, driver._debug = reading, threading.Event(), False
    driver._app = SimpleNamespace(call_later=lambda do: do(), exit=lambda: asked.append("exit"))
    driver.process_message = messages.append
    driver.run_input_thread()
    os.close(reading)
    return messages, asked


def test_a_byte_that_is_no_text_ends_neither_the_program_nor_the_paste():
    messages, _ = read_all(b"\x9b\x1b[200~one \x9b two\nX\x1b[201~q")
    pastes = [m.text for m in messages if isinstance(m, events.Paste)]
    assert pastes == ["one \ufffd two\nX"]
    assert [m.key for m in messages if isinstance(m, events.Key)][-1] == "q"


def test_a_character_may_come_in_two_parts():
    first, second = "\u00e9".encode()[:1], "\u00e9".encode()[1:]
    messages, _ = read_all(b"a" + first + second)
    assert [m.character for m in messages if isinstance(m, events.Key)] == ["a", "\u00e9"]


def test_a_terminal_that_is_gone_ends_the_program():
    assert read_all(b"")[1] == ["exit"]

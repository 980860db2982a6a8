"""What comes from a terminal: broken bytes, and its end."""

import os
import threading
from types import SimpleNamespace

from textual import events

from cbtui.widgets.driver import ForgivingDriver, Pastes


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


def test_a_paste_with_colours_is_plain_text_and_presses_no_key():
    messages, _ = read_all(b"\x1b[200~one\n\x1b[1;31mred\x1b[0m\x1b two\n\x1b[201~")
    assert [m.text for m in messages if isinstance(m, events.Paste)] == ["one\nred two\n"]
    assert not [m for m in messages if isinstance(m, events.Key)]


def test_a_paste_may_come_in_any_pieces():
    whole = "a\x1b[200~one \x1b[31mred\x1b[0m\nend\x1b[201~b\x1b[A"
    for size in range(1, len(whole)):
        pastes = Pastes()
        got = "".join(pastes.feed(whole[at : at + size]) for at in range(0, len(whole), size))
        if size >= 4:  # "escape [" alone may be a key and is not kept back
            assert got == "a\x1b[200~one red\nend\x1b[201~b\x1b[A", size


def test_a_lone_escape_is_not_kept_back():
    assert Pastes().feed("\x1b") == "\x1b" and Pastes().feed("\x1b[A") == "\x1b[A"

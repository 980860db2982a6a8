"""What comes from a terminal: broken bytes, and its end. And signals that end the program."""

import os
import re
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual import events

from cbtui.widgets.driver import ForgivingDriver, Pastes
from tests.perf.terminal import Terminal

PROGRAM = """
import sys, time
from dataclasses import replace
from pathlib import Path
from cbtui.run import run_monitor
from tests.tui.stage import Stage

folder = Path(sys.argv[1])
stage = Stage(folder)

def make(loaded, changes):
    manager = stage.options.make_manager(loaded, changes)
    manager.stop = lambda *_, **__: (folder / "stopped").touch()
    return manager

load = stage.options.load if sys.argv[2] == "LIVE" else lambda progress: time.sleep(60)
sys.exit(run_monitor(replace(stage.options, load=load, make_manager=make)))
"""


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("shown", ["LOADING", "LIVE"])
def test_a_signal_to_end_leaves_the_terminal_as_it_was(tmp_path: Path, shown: str, number: signal.Signals) -> None:
    terminal = Terminal([sys.executable, "-c", PROGRAM, str(tmp_path), shown], (100, 30))
    try:
        terminal.wait_for([shown])
        terminal.process.send_signal(number)
        assert terminal.process.wait(30) == 128 + number
        terminal._reader.join(10)
        written = terminal.since(0).decode(errors="replace")
    finally:
        terminal.close()
    # alternate screen, cursor, mouse reports, focus reports, pastes: the last word on each
    last = dict(re.findall(r"\x1b\[\?(1049|25|1000|1003|1006|1004|2004)([hl])", written))
    assert last == {"1049": "l", "25": "h", "1000": "l", "1003": "l", "1006": "l", "1004": "l", "2004": "l"}
    assert (tmp_path / "stopped").exists() == (shown == "LIVE")

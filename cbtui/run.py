"""Runs the application: what it asks of the interpreter, and an end that nobody can hold up."""

import gc
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

from cbtui.app import MonitorApp
from cbtui.launch import LaunchOptions
from cbtui.loader import settled

SWITCH_INTERVAL = 0.002
"""Seconds after which a busy Python thread must hand over. Shorter, and the event loop is less late beside an engine
that is busy in Python; longer, and one that is mostly busy elsewhere is interrupted less: a model made about 2 % more
tokens per second than with half of it.
"""
YOUNG = 20_000
"""Objects made since the last look for garbage, before the next: a frame alone makes thousands, and none in cycles."""


def run_monitor(launch: LaunchOptions, make_app: Callable[[LaunchOptions], MonitorApp] = MonitorApp) -> int:
    """Runs the monitor until it is quit. Returns the exit code. ``make_app`` builds the application.

    A thread that does not come back in time (a long step, a download) cannot keep the program: the process then ends
    here, without the interpreter's own shutdown, which would pull the floor from under such a thread.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    named = None if launch.load_named is None else settled(launch.load_named)
    app = make_app(replace(launch, load=settled(launch.load), load_named=named))
    try:
        code = app.run()
    finally:
        gc.freeze()  # stopping the engine collects garbage; at the end of the program that is time for nothing
        app.session.close()
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    return code or 0

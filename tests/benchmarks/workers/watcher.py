"""What a monitor costs without a terminal: reads every record of an engine, folds it, and composes frames."""

import threading
from typing import Any

FRAMES_PER_SECOND = 10.0
SIZE = (120, 36)


class Watcher:
    """A reader on a thread of its own, in the engine's process as the monitor is. ``frames`` counts what it drew."""

    def __init__(self, manager: Any) -> None:
        from cbtui.model import MonitorState

        self.frames = 0
        self._manager = manager
        self._done = threading.Event()
        manager.tap.attach()
        self._state = MonitorState(manager.snapshot())
        self._thread = threading.Thread(target=self._watch, name="watcher")
        self._thread.start()

    def _watch(self) -> None:
        from cbtui.theme import theme_named
        from cbtui.view.chrome import Chrome
        from cbtui.view.frame import compose

        theme = theme_named("dark")
        while not self._done.wait(1 / FRAMES_PER_SECOND):
            records, missed = self._manager.tap.read(self._state.step)
            if missed:
                self._state.resync(self._manager.snapshot())
            elif records:
                self._state.extend(records)
            else:
                continue
            compose(self._state, Chrome(model="model", engine="running"), theme, *SIZE)
            self.frames += 1

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        self._manager.tap.detach()

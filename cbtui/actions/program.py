"""Actions of the program: copy, pictures, palette, glossary, help, back, quit."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from textual.command import CommandPalette

from cbtui.glossary import PANES, TERMS
from cbtui.screens.reading import ReadingDialog, find_keys, find_terms, plain_lines
from cbtui.stories import Story
from cbtui.view.frame import screen_text
from cbtui.view.svg import svg

if TYPE_CHECKING:
    from cbtui.app import MonitorApp


class ProgramActions:
    """What has nothing to do with the engine."""

    def __init__(self, app: "MonitorApp") -> None:
        self._app = app

    def copy(self) -> None:
        story = self._app.selected_story
        if story is not None:
            self._app.copy_to_clipboard(as_json(story))
            self._app.session.say(f"{story.label} is in the clipboard as JSON, where the terminal allows it")

    def picture(self) -> None:
        """Two files side by side in the current folder."""
        base = Path.cwd() / f"cbtui-{datetime.now():%Y%m%d-%H%M%S}"
        try:
            rows, look = self._app.frame.rows, self._app.look
            base.with_suffix(".svg").write_text(svg(rows, look, self._title()), encoding="utf-8")
            base.with_suffix(".txt").write_text(screen_text(rows), encoding="utf-8")
        except OSError as error:
            self._app.session.say(f"no picture was written: {error}", "error")
        else:
            self._app.session.say(f"written: {base.name}.svg and .txt")

    def _title(self) -> str:
        """What the picture shows, for its title bar."""
        chrome, state = self._app.chrome, self._app.session.state
        shown = chrome.past if chrome.past is not None or state is None else state.step
        return f"cbtui {chrome.model}" + (f", step {shown}" if shown is not None else "")

    def palette(self) -> None:
        if not isinstance(self._app.screen, CommandPalette):
            self._app.push_screen(CommandPalette())

    def glossary(self) -> None:
        self._app.push_screen(ReadingDialog(self._app.look, "Glossary", find_terms(TERMS)))

    def help(self) -> None:
        find = find_keys(self._app.situation, self._app.keys)
        self._app.push_screen(ReadingDialog(self._app.look, "Keys", find))

    def pane_help(self) -> None:
        pane = self._app.place.pane
        lines = PANES.get(pane, ("Nothing is written about this pane.",))
        self._app.push_screen(ReadingDialog(self._app.look, f"Help: {pane}", plain_lines(lines), search=False))

    def back(self) -> None:
        self._app.place.back()

    def quit(self) -> None:
        self._app.exit(0)


def as_json(story: Story) -> str:
    """All that is known of one request."""
    info, change = story.info, story.change
    return json.dumps(
        {
            "request_id": story.request_id,
            "label": story.label,
            "prompt": story.prompt,
            "output": "".join(story.pieces),
            "tokens": list(story.tokens),
            "logprobs": story.logprobs,
            "finish_reason": story.finish_reason,
            "error": story.error or story.refusal or None,
            "arrived_at_step": story.arrived,
            "ended_at_step": story.ended,
            "ttft_seconds": story.ttft(),
            "itl_seconds": story.itl(),
            "request": None if info is None else asdict(info),
            "now": None if change is None else asdict(change),
        },
        ensure_ascii=False,
        indent=2,
    )

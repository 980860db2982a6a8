"""The application on the fake manager: no threads, no clock but the fake one, one tick when the test says so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from cbtui.app import MonitorApp
from cbtui.launch import LaunchOptions, RequestSpec
from cbtui.session import Session
from cbtui.work import InlineWorker
from tests.tui.fake_manager import FakeManager
from tests.tui.fake_model import FakeClock, FakeLoaded, FakeTokenizer

PROMPT = tuple(range(2, 22))


class Stage:
    """A launch whose engines are fakes; ``managers`` holds all that were made, oldest first."""

    def __init__(self, tmp_path: Any, *, prompts: tuple[RequestSpec, ...] = (), template: str | None = "yes",
                 fails: BaseException | None = None, windows: tuple[int | None, ...] = (None,), **config: Any) -> None:
        self.clock = FakeClock()
        self.managers: list[FakeManager] = []
        self.changes: list[dict[str, Any]] = []
        self.fails = fails
        self.tokenizer = FakeTokenizer(template)
        self._windows, self._config = windows, config
        self.options = LaunchOptions(
            name="fake-model", load=self._load, make_manager=self._make, prompts=prompts, config_dir=tmp_path
        )

    def _load(self, progress: Any) -> FakeLoaded:
        if self.fails is not None:
            raise self.fails
        return FakeLoaded("fake-model", self.tokenizer)

    def _make(self, loaded: FakeLoaded, changes: Any) -> FakeManager:
        self.changes.append(dict(changes))
        manager = FakeManager(self.clock, self._windows, **{**self._config, **changes})
        self.managers.append(manager)
        return manager

    @property
    def manager(self) -> FakeManager:
        return self.managers[-1]


class Play:
    """An application that runs, with short words for what tests do."""

    def __init__(self, app: MonitorApp, pilot: Pilot, stage: Stage) -> None:
        self.app, self.pilot, self.stage = app, pilot, stage

    @property
    def manager(self) -> FakeManager:
        return self.stage.manager

    @property
    def text(self) -> str:
        """The frame as plain text."""
        return self.app.frame.text()

    @property
    def notice(self) -> str:
        return self.app.chrome.notice

    @property
    def labels(self) -> list[str]:
        """Letters of all requests, in order of arrival."""
        assert self.app.session.state is not None
        return [story.label for story in self.app.session.state.stories.values()]

    async def tick(self, steps: int = 0) -> None:
        """The engine makes ``steps`` steps (commands are carried out anyway), then the screen follows."""
        if self.stage.managers:
            self.manager.run(steps)
        for _ in range(3):  # an answer may lead to a question whose answer comes with the next poll
            self.app.tick()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*("space" if char == " " else char for char in text))

    async def add(self, count: int = 1, tokens: int = 20, prompt: tuple[int, ...] = PROMPT) -> None:
        """Requests added beside the keyboard."""
        for _ in range(count):
            self.manager.add_request(list(prompt), max_new_tokens=tokens)
        await self.tick(1)


@asynccontextmanager
async def playing(tmp_path: Any, size: tuple[int, int] = (120, 36), **options: Any) -> AsyncIterator[Play]:
    """A running application whose engine is loaded; ``options`` go to ``Stage``."""
    stage = Stage(tmp_path, **options)
    session = Session(stage.options, make_worker=lambda name: InlineWorker(), clock=stage.clock)
    app = MonitorApp(stage.options, session=session, clock=stage.clock, ticks_per_second=0)
    async with app.run_test(size=size) as pilot:
        play = Play(app, pilot, stage)
        await pilot.pause()
        await play.tick()
        try:
            yield play
        finally:
            app.session.close()


def rendered(play: Play) -> str:
    """What the screen in front shows, as plain text."""
    screen = play.app.screen
    strips = screen._compositor.render_strips(screen.size)
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)

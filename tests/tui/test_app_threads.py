"""The application on the real engine: its own thread, a tiny random model, keys in any order, and a clean end."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from cbtui.app import MonitorApp
from cbtui.keys import BY_ID
from cbtui.launch import LaunchOptions, RequestSpec
from cbtui.screens.base import Dialog
from engine.core.options import ContinuousBatchingConfig
from engine.core.scheduler import Scheduler
from engine.manager import ContinuousBatchingManager
from engine.models.progress import LoadProgress
from engine.run.fast import build
from tests.tiny import tiny_model
from tests.tui.fake_model import FakeLoaded, FakeTokenizer

WAIT_SECONDS = 20.0
"""Far more than anything here takes; only a hang runs into it."""
OURS = ("cbtui-", "continuous-batching")


def threads() -> list[str]:
    """Names of this program's threads that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(OURS)]


@pytest.fixture
def options(tmp_path):
    """A launch on a tiny Gemma-2: two layer groups, a small pool, a small host pool."""
    model = tiny_model("gemma2")

    def make(loaded: FakeLoaded, changes: Any) -> ContinuousBatchingManager:
        changes = {name: value for name, value in changes.items() if name != "host_blocks"}
        config = {"page_size": 4, "num_blocks": 40, "max_batch_tokens": 32, "max_requests_per_batch": 6,
                  "cpu_offload_space": 0.0001, **changes}  # fmt: skip
        return ContinuousBatchingManager(model, config=ContinuousBatchingConfig(**config))

    prompts = tuple(RequestSpec(f"old stones {'rain ' * n}", max_new_tokens=30 + n) for n in range(8))
    return LaunchOptions(
        "tiny", lambda progress: FakeLoaded("tiny", FakeTokenizer()), make, prompts=prompts, config_dir=tmp_path
    )


async def until(met: Callable[[], bool]) -> None:
    """Waits for something to come true while the event loop runs."""
    end = time.monotonic() + WAIT_SECONDS
    while not met():
        assert time.monotonic() < end, f"it did not happen; threads: {threads()}"
        await asyncio.sleep(0.01)


def done(app: MonitorApp) -> bool:
    """All requests of the start were seen and have ended."""
    state = app.session.state
    return state is not None and len(state.stories) >= 8 and all(s.ended >= 0 for s in state.stories.values())


async def test_requests_run_to_their_end_on_the_screen(options):
    app = MonitorApp(options, ticks_per_second=60)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(lambda: done(app))
        await pilot.pause()
        stories = list(app.session.state.stories.values())
        assert [len(story.tokens) for story in stories] == [30 + n for n in range(8)]
        assert "✓ finished" in app.frame.text()
        assert tuple(app.session.state.picture.blocks) == app.session.manager.snapshot().blocks
        app.session.close()
    await until(lambda: not threads())


async def test_random_keys_neither_break_nor_block(options):
    app = MonitorApp(options, ticks_per_second=60)
    draw = random.Random(7)
    names = [name for name in BY_ID if name not in ("quit", "picture", "copy", "palette")]
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: app.session.state is not None)
        for _ in range(100):
            if isinstance(app.screen, Dialog):
                await pilot.press(draw.choice(("escape", "escape", "enter", "1", "tab")))
            else:
                await pilot.press(BY_ID[draw.choice(names)].keys[0])
        await until(lambda: app.session.phase != "loading")
        app.session.close()
    await until(lambda: not threads())


async def test_a_beat_after_the_screens_are_gone_draws_nothing(options):
    app = MonitorApp(options, ticks_per_second=60)
    async with app.run_test(size=(100, 30)):
        await until(lambda: app.session.state is not None)
        app.session.close()
    assert not app.screen_stack
    app.tick()
    await until(lambda: not threads())


async def test_hard_stop_start_again_and_quit(options, caplog):
    app = MonitorApp(options, ticks_per_second=60)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(lambda: app.session.state is not None and app.session.state.step > 2)
        await pilot.press("X", "y")
        await until(lambda: app.session.engine == "stopped")
        await until(lambda: all(s.ended >= 0 for s in app.session.state.stories.values()))
        await pilot.press("S")
        await until(lambda: app.session.engine == "running")
        before = len(app.session.state.stories)
        await pilot.press("space", "a", *"rain", "enter")
        await until(lambda: len(app.session.state.stories) > before)
        story = next(reversed(app.session.state.stories.values()))
        await until(lambda: app.chrome.selected == story.key)
        await pilot.press(*["full_stop"] * 4)
        await until(lambda: len(story.tokens) >= 3)
        await pilot.press("c")
        await until(lambda: story.ended >= 0)
        assert story.finish_reason == "cancelled"
        await pilot.press("X", "y")
        await until(lambda: app.session.engine == "stopped")
        await pilot.press("q")
    app.session.close()
    await until(lambda: not threads())
    assert not caplog.messages, "a normal end looks like no fault"


async def test_a_hung_step_cannot_keep_the_program(options, monkeypatch, caplog):
    """The step waits for an event nobody sets until the program has let go of the engine."""
    release, inside = threading.Event(), threading.Event()
    app = MonitorApp(options, ticks_per_second=60)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(lambda: app.session.state is not None)
        plan = Scheduler.plan

        def hang(scheduler: Scheduler, *args: Any, **kwargs: Any) -> Any:
            inside.set()
            release.wait()
            return plan(scheduler, *args, **kwargs)

        monkeypatch.setattr(Scheduler, "plan", hang)
        await pilot.press("a", *"rain", "enter")
        await until(inside.is_set)
        await until(lambda: app.chrome.step_seconds is not None)
        app.session.close(seconds=0.05)
        assert app.session.manager is None and not caplog.messages
    release.set()
    await until(lambda: not threads())


async def test_quitting_while_kernels_are_compiled_leaves_nothing_behind(options, tmp_path, monkeypatch):
    """The compiler stands for one that takes longer than anybody waits."""
    script, cache = tmp_path / "c++", tmp_path / "kernels"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr(build.shutil, "which", lambda name: str(script))

    def load(progress: Any) -> FakeLoaded:
        report = LoadProgress("compiling", "the CPU kernels", 0.0, 0.0)
        build.load_kernels(torch.float32, cache=cache, waiting=lambda: progress(report))
        return FakeLoaded("tiny", FakeTokenizer())

    app = MonitorApp(replace(options, load=load), ticks_per_second=60)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: cache.exists() and any(cache.iterdir()) and "compiling" in app.frame.text())
        await pilot.press("q")
    app.session.close(seconds=WAIT_SECONDS)
    assert list(cache.iterdir()) == [] and "cbtui-load" not in threads()
    await until(lambda: not threads())


async def test_an_engine_that_dies_says_so_and_starts_again(options, monkeypatch):
    app = MonitorApp(options, ticks_per_second=60)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(lambda: app.session.state is not None and app.session.state.step > 2)
        plan = Scheduler.plan

        def break_down(scheduler: Scheduler, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("a cable came loose")

        monkeypatch.setattr(Scheduler, "plan", break_down)
        await pilot.press("a", *"rain", "enter")
        await until(lambda: app.session.engine == "failed")
        await until(lambda: "a cable came loose" in app.frame.text())
        step = app.session.state.step
        await pilot.press("left_square_bracket")
        assert app.chrome.past == step - 1
        monkeypatch.setattr(Scheduler, "plan", plan)
        await pilot.press("end", "S")
        await until(lambda: app.session.engine == "running")
        await pilot.press("a", *"rain", "enter")
        await until(lambda: app.session.state is not None and any(s.tokens for s in app.session.state.stories.values()))
        app.session.close()
    await until(lambda: not threads())

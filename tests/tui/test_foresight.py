"""The add dialog says when a request would start, the configuration editor what a change would do."""

from dataclasses import replace

import pytest
from textual.widgets import Input

from cbtui.screens.fields import Press
from cbtui.screens.renewal import LONGEST, READABLE, Renewal
from engine.core.errors import ConfigError
from tests.tui.stage import playing, rendered


async def test_the_add_dialog_says_when_it_would_start(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("a")
        assert "would start" not in rendered(play), "nothing is said before the first letter"
        await play.type("rain")
        await play.tick()
        shown = rendered(play)
        assert "would start at step 1, the next step" in shown
        assert "needs 1 block to start, 33 at full length, the pool has 48" in shown


async def test_the_forecast_names_whom_it_waits_for_and_comes_true(tmp_path):
    async with playing(tmp_path, num_blocks=12) as play:
        await play.add(1, tokens=20)
        await play.add(1, tokens=10, prompt=tuple(range(30, 62)))
        await play.press("a")
        await play.type("rain")
        play.app.screen.query_one("#max_new_tokens", Input).value = "4"
        await play.pilot.pause()
        await play.tick()
        shown = " ".join(rendered(play).split())
        assert "because it waits behind B" in shown
        step = int(shown.split("would start at step ")[1].split(",")[0])
        await play.press("enter")
        while play.app.session.state.step < step:
            await play.tick(1)
        stories = {story.label: story for story in play.app.session.state.stories.values()}
        assert stories["C"].started == step


@pytest.mark.parametrize("rows", [8, 2])
async def test_the_forecast_of_a_held_engine_counts_the_add(tmp_path, rows):
    """Commands have a step of their own while it is held; also where the request cannot start at once."""
    async with playing(tmp_path, max_requests_per_batch=rows) as play:
        await play.add(2, tokens=6)
        await play.press("space")
        await play.tick()
        for label in "CD":
            before = play.app.session.state.step
            await play.press("a")
            await play.type("rain")
            play.app.screen.query_one("#max_new_tokens", Input).value = "4"
            await play.pilot.pause()
            await play.tick()
            shown = str(play.app.screen.query_one("#forecast").render())
            assert f"(the engine is paused: adding it is step {before + 1})" in shown
            step = int(shown.split("would start at step ")[1].split(",")[0])
            assert ("the next step" in shown) == (rows == 8 or label == "D")
            await play.press("enter")
            await play.tick()
            assert play.app.session.state.step == before + 1
            while play.app.session.state.step < step:
                await play.press("full_stop")
                await play.tick(1)
            story = next(s for s in play.app.session.state.stories.values() if s.label == label)
            assert story.started == step


async def test_in_slow_motion_both_numbers_are_said(tmp_path):
    """Far from the next step adding has a number of its own, shortly before it not: nobody knows when enter comes."""
    async with playing(tmp_path) as play:
        await play.add(1, tokens=40)
        forecast = play.manager.forecast

        def slow(*args, **wanted):
            found = forecast(*args, **wanted)
            return replace(found, step=found.step + 1, early=1)

        play.manager.forecast = slow
        await play.press("a")
        await play.type("rain")
        await play.tick()
        shown = str(play.app.screen.query_one("#forecast").render())
        step = play.app.session.state.step + 1
        assert f"would start at step {step} or {step + 1}, the next step (adding it may be step {step})" in shown


async def test_the_forecast_is_renewed_with_each_step_that_can_be_read(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1, tokens=40)
        await play.press("a")
        await play.type("rain")
        for _ in range(6):
            await play.tick(1)
            ahead = f"would start at step {play.app.session.state.step + 1}, the next step"
            assert ahead in " ".join(rendered(play).split())


def test_fast_steps_do_not_make_it_ask_all_the_time():
    steps = [0]
    renewal = Renewal(lambda: steps[0])
    asked = 0
    for _ in range(4 * LONGEST):
        steps[0] += 1
        asked += renewal.is_due(busy=False)
    assert asked == 4
    for _ in range(READABLE):
        renewal.is_due(busy=False)
    steps[0] += 1
    assert not renewal.is_due(busy=True) and renewal.is_due(busy=False) and not renewal.is_due(busy=False)


async def test_the_forecast_follows_the_engine_and_says_what_never_fits(tmp_path):
    async with playing(tmp_path, num_blocks=8) as play:
        await play.add(1, tokens=5)
        await play.press("a")
        await play.type("rain")
        play.app.screen.query_one("#max_new_tokens", Input).value = "2"
        await play.pilot.pause()
        await play.tick()
        before = rendered(play)
        await play.tick(2)
        for _ in range(6):
            await play.tick()
        assert rendered(play) != before
        play.app.screen.query_one("#max_new_tokens", Input).value = "200"
        await play.pilot.pause()
        await play.tick()
        await play.tick()
        assert "would be refused: can never fit" in " ".join(rendered(play).split())


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (40, 10)])
async def test_the_editor_rehearses_what_holds_from_the_next_step(tmp_path, size):
    async with playing(tmp_path, size=size, num_blocks=24, safety_margin=0.5) as play:
        await play.add(1, tokens=20)
        await play.add(2, tokens=10, prompt=tuple(range(30, 50)))
        await play.press("comma")
        assert "DRY RUN" not in rendered(play)
        play.app.screen.query_one("#safety_margin", Input).value = "0"
        await play.pilot.pause()
        await play.tick()
        lines = {name: str(play.app.screen.query_one(f"#{name}").render()) for name in ("dry-batch", "dry-waits")}
        assert "2 of 24 tokens, 2 of 8 rows →" in lines["dry-batch"]
        assert "C (limit: safety margin) → nobody" in lines["dry-waits"]
        await play.press("enter")
        await play.tick(1)
        record = play.app.session.state.picture.record
        tokens = sum(part.query for part in record.slices)
        assert f"→ {tokens} of 24 tokens, {len(record.slices)} of 8" in lines["dry-batch"]


async def test_the_editor_rehearses_a_restart_and_says_what_cannot_be_told(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1, tokens=20)
        await play.press("comma")
        play.app.screen.query_one("#num_blocks", Input).value = "9"
        await play.pilot.pause()
        await play.tick()
        assert "the first step of the new engine" in rendered(play)
        assert "never fits: A" in " ".join(rendered(play).split())
        play.app.screen.query_one("#num_blocks", Input).value = "auto"
        await play.pilot.pause()
        await play.tick()
        planned = play.manager.plan_restart(num_blocks=None).num_blocks.value
        assert f"of {planned} used" in rendered(play) and play.app.screen.query_one("#again", Press).on
        play.app.screen.query_one("#num_blocks", Input).value = "x"
        await play.pilot.pause()
        await play.tick()
        assert "DRY RUN" not in rendered(play) and not play.app.screen.query_one("#again", Press).on


@pytest.mark.parametrize("field", ["num_blocks", "max_batch_tokens", "page_size"])
async def test_a_restart_that_cannot_fit_is_refused_in_the_editor(tmp_path, field):
    async with playing(tmp_path, max_requests_per_batch=1) as play:
        await play.add(1, tokens=20)
        await play.press("comma")
        screen = play.app.screen
        screen.query_one(f"#{field}", Input).value = "9999999999"
        screen.query_one("#cpu_offload_space", Input).value = "0.001"
        await play.pilot.pause()
        await play.tick()
        error = " ".join(str(screen.query_one(f"#{field}-error").render()).split())
        with pytest.raises(ConfigError) as refused:
            play.manager.plan_restart(**{field: 9999999999})
        assert "does not fit: KV cache" in error and error == str(refused.value)
        assert not str(screen.query_one("#cpu_offload_space-error").render()), "the one that fits is not blamed"
        assert not screen.query_one("#again", Press).on and "nothing applied: 1 refused" in rendered(play)
        await play.press("enter")
        assert play.app.screen is screen and screen.focused.id == field and len(play.stage.managers) == 1
        screen.query_one(f"#{field}", Input).value = "16"
        await play.pilot.pause()
        assert screen.query_one("#again", Press).on


async def test_the_editor_notes_what_the_engine_would_make_of_a_value(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("comma")
        play.app.screen.query_one("#cpu_offload_space", Input).value = "1000"
        await play.pilot.pause()
        reason = play.manager.plan_restart(cpu_offload_space=1000.0).cpu_offload_space.reason
        assert "more could never be used" in reason
        assert reason.split(":")[0] in rendered(play)

"""Sizes from far too small to huge, themes, the mouse, keys of the settings, and what a start brings."""

import pytest
from textual import events
from textual.widgets import Input

from cbtui.launch import RequestSpec
from cbtui.moment import READING
from cbtui.theme import THEME_NAMES
from tests.tui.stage import playing

SIZES = [(20, 4), (200, 60), (40, 10), (80, 24), (1, 1), (120, 36), (39, 60), (200, 9), (100, 30), (118, 32), (198, 58)]


@pytest.mark.parametrize("mode", range(1, 7))
async def test_resize_storm(tmp_path, mode):
    async with playing(tmp_path, windows=(None, 8), cpu_offload_space=1e-5) as play:
        await play.add(6, tokens=40)
        await play.tick(12)
        await play.press(str(mode))
        key = play.app.chrome.selected
        for width, height in SIZES * 2:
            await play.pilot.resize_terminal(width, height)
            await play.tick(1)
            lines = play.text.splitlines()
            assert len(lines) == height
        assert play.app.chrome.selected == key


async def test_too_small_says_what_it_needs(tmp_path):
    async with playing(tmp_path, size=(38, 6)) as play:
        assert "needs 40 x 10" in play.text


@pytest.mark.parametrize("name", THEME_NAMES)
async def test_dialogs_stand_in_every_theme_and_size(tmp_path, name):
    async with playing(tmp_path) as play:
        play.app.show_theme(name)
        await play.add(2)
        every = ("a", "A", "X", "n", "comma", "question_mark", "g", "f1", "slash", "b", "e")
        for size, keys in (((120, 36), every if name == "dark" else ("a", "e")), ((40, 10), every[:5])):
            await play.pilot.resize_terminal(*size)
            for key in keys:
                await play.press(key)
                await play.tick()
                assert len(play.app.screen_stack) == 2, (key, size)
                await play.press("escape")
                assert len(play.app.screen_stack) == 1, (key, size)


async def test_a_click_selects_requests_blocks_steps_and_keys(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(3, tokens=30)
        await play.tick(6)
        places = {}
        for y in range(36):
            for x in range(120):
                hit = play.app.frame.hit(x, y)
                if hit is not None:
                    places.setdefault((hit.kind, hit.value), (x, y))
        target = next(key for kind, key in places if kind == "request" and key != play.app.chrome.selected)
        await play.pilot.click(offset=places["request", target])
        assert play.app.chrome.selected == target
        block = next(value for kind, value in places if kind == "block")
        await play.pilot.click(offset=places["block", block])
        assert play.app.chrome.block == block
        step = min(value for kind, value in places if kind == "step")
        await play.pilot.click(offset=places["step", step])
        assert play.app.chrome.past == step
        await play.press("end")
        await play.pilot.click(offset=places["key", "pause"])
        assert play.manager.named("hold") == [((), {})]


async def test_the_wheel_moves_the_cursor(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(3, tokens=30)
        await play.tick(3)
        await play.press("pageup")
        order = play.app.frame.visible_requests
        play.app.frame.post_message(play.app.frame.Scrolled("requests", 1))
        await play.pilot.pause()
        assert play.app.chrome.selected == order[1]
        step = play.app.session.state.step
        play.app.frame.post_message(play.app.frame.Scrolled("timeline", -1))
        await play.pilot.pause()
        assert play.app.chrome.past == step - 1


async def test_keys_of_the_settings_are_used_and_shown(tmp_path):
    (tmp_path / "settings.toml").write_text('[keymap]\npause = "P"\nmark = ["K"]\n')
    async with playing(tmp_path) as play:
        await play.press("space")
        assert play.manager.named("hold") == []
        await play.press("P")
        assert play.manager.named("hold") == [((), {})]
        assert play.app.chrome.keys[0].keys == "P"


async def test_a_keymap_that_clashes_is_told_and_left_alone(tmp_path):
    (tmp_path / "settings.toml").write_text('[keymap]\npause = "q"\n')
    async with playing(tmp_path) as play:
        assert "the keymap in the settings is not used" in play.notice
        await play.press("space")
        assert play.manager.named("hold") == [((), {})]


@pytest.mark.parametrize("text", ["colour = 'red'", '[keymap]\npause = "q"\n'])
async def test_what_is_wrong_with_the_settings_is_told_again_when_the_engine_is_there(tmp_path, text):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    async with playing(tmp_path) as play:
        play.app.session.say("A queued at step 1")  # what comes when loading is over
        await play.tick()
        assert play.notice == "A queued at step 1"
        play.stage.clock.now += 6
        await play.tick()
        assert "settings" in play.notice and "not used" in play.notice
        play.stage.clock.now += 5 + len(play.notice) * READING
        await play.tick()
        assert play.notice == ""


async def test_a_choice_that_is_not_kept_is_told_once(tmp_path):
    (tmp_path / "settings.toml").write_text("colour = 'red'")
    async with playing(tmp_path) as play:
        await play.press("t")
        assert "not kept for the next start" in play.notice and "unknown setting 'colour'" in play.notice
        play.app.session.say("something else")
        await play.press("v")
        assert play.notice == "something else" and play.app.chrome.map_view == "state"


async def test_no_color_starts_without_colour(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with playing(tmp_path) as play:
        assert play.app.look.name == "mono"


async def test_prompts_of_the_start_are_added_in_order(tmp_path):
    prompts = tuple(RequestSpec(text) for text in ("rain", "stones", "sea"))
    async with playing(tmp_path, prompts=prompts) as play:
        await play.tick(1)
        stories = play.app.session.state.stories.values()
        assert [story.prompt.split()[1] for story in stories] == ["rain", "stones", "sea"]


async def test_config_reset_and_up_down(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("comma", "down")
        assert play.app.focused.id == "max_batch_tokens"
        play.app.focused.value = "7"
        await play.press("ctrl+r")
        assert play.app.screen.query_one("#max_batch_tokens", Input).value == "24"
        await play.press("up")
        assert play.app.focused.id == "scheduler_type"


async def test_config_reset_means_the_field_it_was_typed_in(tmp_path):
    """Also when tab follows before the field has seen the key."""
    async with playing(tmp_path) as play:
        await play.press("comma")
        screen = play.app.screen
        fields = list(screen.query(Input))[:3]
        before = [field.value for field in fields]
        for field in fields:
            field.value = "7"
        for key in ("ctrl+r", "tab", "ctrl+r", "down"):
            play.app.post_message(events.Key(key, None))
        await play.pilot.pause()
        assert [field.value for field in fields] == [*before[:2], "7"]
        assert play.app.focused is fields[2]

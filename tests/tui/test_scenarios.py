"""Scenarios in the application: begun, paused at captions, left, begun again, chosen from the list."""

from dataclasses import replace
from pathlib import Path

import pytest

from cbtui import keybar
from cbtui.app import MonitorApp
from cbtui.keys import keymap
from cbtui.scenarios.find import ORDER
from cbtui.scenarios.read import read_scenario
from cbtui.screens.scenarios import ScenarioDialog
from cbtui.screens.small import ConfirmDialog
from cbtui.session import Session
from cbtui.theme import theme_named
from cbtui.view.caption import caption
from cbtui.view.cells import row_text
from cbtui.view.chrome import CaptionLine
from cbtui.work import InlineWorker
from tests.tui.stage import Play, Stage, playing

TEXT = """
title = "A small scene"
teaches = "What a test needs to see."
rate = 2
mode = 4
[config]
num_blocks = 32
[[requests]]
name = "one"
text = "the rain ran over old stones"
max_new_tokens = 12
[[requests]]
name = "two"
at = 5
text = "a way down to sea"
max_new_tokens = 4
[[commands]]
when = "first_token"
of = "two"
cancel = "one"
[[captions]]
at = 0
pause = false
text = "It begins"
[[captions]]
when = "first_token"
of = "two"
text = "{two} came to {one} in step {step}"
[[captions]]
when = "ends"
of = "one"
text = "{one} kept {one.output} tokens"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of settings with a scenario of the person's own in it."""
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "scene.toml").write_text(TEXT)
    return tmp_path


async def begin(play: Play, folder: Path) -> None:
    """The person's own scenario is on: its requests are there, no step has run."""
    play.app.play(read_scenario(folder / "scenarios" / "scene.toml"))
    for _ in range(3):
        await play.tick()


def line(play: Play) -> str:
    return play.text.splitlines()[1]


async def test_it_goes_by_steps_pauses_at_captions_and_is_over(own):
    async with playing(own) as play:
        await begin(play, own)
        assert len(play.stage.managers) == 2 and play.manager.config.num_blocks.value == 32
        assert play.app.chrome.mode == 4 and play.app.session.rate == 2
        assert " 1/3 It begins" in line(play) and "x leave" in line(play)
        await play.tick(50)  # far more than it takes: it stops by itself
        assert play.manager.status.state == "held"
        assert "2/3 B came to A in step 6" in line(play) and "space goes on" in line(play)
        assert play.app.session.state.step == 7  # the fifth that computes; arrivals and the cancellation have their own
        await play.press("space")
        await play.tick(1)
        assert "3/3 A kept 5 tokens" in line(play)
        await play.press("space")
        await play.tick(50)
        assert play.app.player.over and "N next" in line(play) and "R again" in line(play)
        assert [story.ended > 0 for story in play.app.session.state.stories.values()] == [True, True]


@pytest.mark.parametrize(("asked", "shown"), [(None, 4), (2, 2)])
async def test_a_mode_that_was_asked_for_goes_before_the_scenarios_own(own, asked, shown):
    stage = Stage(own)
    options = replace(stage.options, scenario=read_scenario(own / "scenarios" / "scene.toml"), mode=asked)
    session = Session(options, make_worker=lambda name: InlineWorker(), clock=stage.clock)
    app = MonitorApp(options, session=session, clock=stage.clock, ticks_per_second=0)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert app.player.playing and app.chrome.mode == shown
        app.session.close()


async def test_it_begins_in_its_own_views_whatever_was_remembered(own):
    (own / "settings.toml").write_text('order = "blocks"\nmap_view = "age"\nmap_order = "physical"\n')
    async with playing(own) as play:
        chrome = play.app.chrome
        assert (chrome.map_view, chrome.map_order, chrome.order) == ("age", "physical", "blocks")
        await begin(play, own)
        chrome = play.app.chrome
        assert (chrome.map_view, chrome.map_order, chrome.order) == ("owner", "auto", "attention")
        await play.press("v")
        scene = read_scenario(own / "scenarios" / "scene.toml")
        play.app.play(replace(scene, map_view="fill"))
        assert play.app.chrome.map_view == "fill"
        play.app.play(scene)
        assert play.app.chrome.map_view == "owner"
        kept = play.app.store.settings
        assert (kept.map_view, kept.map_order, kept.order) == ("state", "physical", "blocks")


async def test_paused_or_stepped_by_hand_it_is_the_same(own):
    async with playing(own) as play:
        await begin(play, own)
        await play.press("space")  # a pause leaves a record of its own
        for _ in range(5):
            await play.press("full_stop")
            await play.tick(1)
        stories = list(play.app.session.state.stories.values())
        assert [len(story.tokens) for story in stories] == [5, 1]  # `two` was in time for the fifth step that computes
        assert "2/3 B came to A" in line(play)


async def test_the_past_has_its_own_captions(own):
    async with playing(own) as play:
        await begin(play, own)
        await play.tick(50)
        assert "2/3" in line(play)
        await play.press("left_square_bracket", "left_square_bracket")
        assert "1/3 It begins" in line(play)
        await play.press("end")
        assert "2/3" in line(play)


async def test_left_in_the_middle_the_engine_goes_on_and_stays_usable(own):
    async with playing(own) as play:
        await begin(play, own)
        await play.tick(3)
        await play.press("x")
        await play.tick(30)
        assert "It begins" not in play.text and play.manager.status.state == "running"
        stories = list(play.app.session.state.stories.values())
        assert [len(story.tokens) for story in stories] == [12]  # nobody came and nobody was cancelled
        await play.add()
        await play.tick(30)
        assert len(play.app.session.state.stories) == 2
        await play.press("x")
        assert "no scenario is played" in play.notice


async def test_leaving_lets_a_held_engine_go(own):
    async with playing(own) as play:
        await begin(play, own)
        await play.tick(50)
        await play.press("x")
        await play.tick(20)
        assert play.manager.status.state == "running" and not play.manager.scheduler.has_work


async def test_again_begins_with_a_new_engine_and_the_same_steps(own):
    async with playing(own) as play:
        await begin(play, own)
        await play.tick(50)
        await play.press("R")
        for _ in range(3):
            await play.tick()
        assert len(play.stage.managers) == 3 and " 1/3 It begins" in line(play)
        await play.tick(50)
        assert "2/3 B came to A in step 6" in line(play)


async def test_a_persons_own_requests_are_asked_about(own):
    async with playing(own) as play:
        await begin(play, own)
        await play.add(tokens=60)
        await play.press("R")
        assert isinstance(play.app.screen, ConfirmDialog)
        await play.press("n")
        assert len(play.stage.managers) == 2 and play.app.player.playing
        await play.press("R", "y")
        for _ in range(3):
            await play.tick()
        assert len(play.stage.managers) == 3


async def test_the_list_begins_what_is_chosen(own):
    async with playing(own, size=(80, 24)) as play:
        await play.press("r")
        dialog = play.app.screen
        assert isinstance(dialog, ScenarioDialog)
        rows = dialog.query_one("OptionList")
        assert rows.option_count == len(ORDER) + 1 and rows.size.height >= 8
        await play.press("end", "enter")
        for _ in range(3):
            await play.tick()
        assert play.app.player.scenario.name == "scene" and " 1/3 It begins" in line(play)
        await play.press("r")
        assert play.app.screen.query_one("OptionList").highlighted == len(ORDER)
        await play.press("escape")
        assert play.app.player.playing


async def test_the_next_one_follows_and_the_first_comes_after_the_last(own):
    async with playing(own) as play:
        await play.press("N")
        assert "no scenario was played yet" in play.notice
        await begin(play, own)
        await play.press("N")
        assert play.app.player.scenario.name == ORDER[0]


async def test_the_palette_finds_scenarios_by_title(own):
    async with playing(own, size=(120, 40)) as play:
        await play.press("colon")
        await play.type("a small scene")
        for _ in range(20):
            await play.pilot.pause(0.05)
        await play.press("enter")
        for _ in range(4):
            await play.tick()
        assert play.app.player.scenario is not None and play.app.player.scenario.name == "scene"


async def test_a_broken_file_is_told_in_the_list(own):
    (own / "scenarios" / "broken.toml").write_text("title = ")
    async with playing(own) as play:
        await play.press("r")
        assert "broken.toml is not TOML" in str(play.app.screen.query_one("#problems").render())


async def test_the_engine_ends_the_scenario(own):
    async with playing(own) as play:
        await begin(play, own)
        await play.tick(2)
        play.manager.die("no memory is left")
        await play.tick()
        assert not play.app.player.playing and "ended with its engine" in play.notice


async def test_a_scenario_waits_for_the_model_to_load(own):
    async with playing(own) as play:
        play.app.session.phase = "loading"
        await play.press("r")
        assert "the model is still loading" in play.notice


def test_leave_and_next_stand_in_the_key_bar_while_a_scenario_is_played():
    from cbtui.situation import Situation

    calm = {hint.action for hint in keybar.hints(Situation(kept=1), 1, keymap())}
    played = {hint.action for hint in keybar.hints(Situation(kept=1, scenario="A", played=True), 1, keymap())}
    assert played - calm == {"leave", "next_scenario"}


def test_a_shorter_sentence_leaves_room_for_what_to_press():
    line = CaptionLine(2, 5, ("a sentence of forty-two cells is long here", "a short one"), ("space goes on", "space"))
    rows = {width: row_text(caption(line, theme_named("dark"), width).rows[0]).rstrip() for width in (80, 56, 40, 14)}
    assert rows[80].startswith(" 2/5 a sentence") and rows[80].endswith("space goes on")
    assert rows[56].startswith(" 2/5 a sentence") and rows[56].endswith("here   space")
    assert rows[40].startswith(" 2/5 a short one") and rows[40].endswith("space goes on")
    assert rows[14].startswith(" 2/5 a") and "space" not in rows[14]

"""The states a screen must get right, each brought about by keys or by the engine, and told in words."""

import pytest
from textual.command import CommandPalette

from cbtui.glossary import PANES
from cbtui.screens.explain import ExplainDialog
from cbtui.theme import theme_named
from cbtui.view.chrome import Chrome
from cbtui.view.explain_step import step_rows
from cbtui.view.figures import figure_rows
from cbtui.view.frame import compose, screen_text
from cbtui.view.scene import Scene
from engine.core.errors import LoadError
from tests.tui.redraw import busy_chrome, rush
from tests.tui.stage import playing
from tests.tui.test_explain import text_of

LOAD_ERRORS = {
    "not found": LoadError("The hub does not know no/such-model.", "Check the name, or give a folder with its files."),
    "gated": LoadError("a/gated-model wants a licence to be accepted.", "Accept it on its page and log in."),
    "not supported": LoadError("Layer 3 is linear attention, which is not supported.", "Take a model without it."),
    "no memory": LoadError("The weights need 30 GiB and 8 GiB are free.", "Take a smaller model or another dtype."),
}


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 36)])
@pytest.mark.parametrize("name", LOAD_ERRORS)
async def test_a_model_that_does_not_load_gets_one_sentence_and_what_to_try(tmp_path, name, size):
    error = LOAD_ERRORS[name]
    async with playing(tmp_path, size=size, fails=error) as play:
        words = " ".join(play.text.split())
        assert error.message in words and error.hint in words
        assert "FAILED" in play.text.splitlines()[0]
        await play.press("a")
        assert play.notice == "add: no model is loaded"


async def test_a_full_pool_says_who_finds_no_blocks(tmp_path):
    async with playing(tmp_path, num_blocks=14, safety_margin=0.0) as play:
        await play.add(1, tokens=20)
        await play.add(3, tokens=20, prompt=tuple(range(30, 46)))
        await play.tick(3)
        state = play.app.session.state
        assert state.picture.free <= 1 and "limit: free blocks" in play.text
        assert any("usable" in line or "waits behind" in line for line in play.text.splitlines())


async def test_a_request_that_never_fits_is_told_with_its_numbers(tmp_path):
    async with playing(tmp_path, num_blocks=8) as play:
        await play.press("a")
        await play.type("rain")
        await play.press("tab")
        play.app.focused.value = "300"
        await play.pilot.pause()
        await play.press("enter")
        await play.tick(1)
        assert "✗ refused" in play.text and "needs 76 blocks, the pool has 8" in play.text
        assert play.notice.startswith("add A refused: can never fit:") and "the pool has 8" in play.notice
        assert play.labels == ["A"]


async def test_the_ends_of_history_stay_where_they_are(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("left_square_bracket")
        assert play.notice == "scrub: no earlier step is kept yet"
        await play.add(1, tokens=30)
        await play.tick(6)
        await play.press("home", "left_square_bracket", "left_curly_bracket")
        state = play.app.session.state
        assert play.app.chrome.past == state.oldest and "PAST" in play.text
        await play.press("end", "right_square_bracket")
        assert play.app.chrome.past is None and "LIVE" in play.text


async def test_a_paused_engine_shows_its_last_batch_and_counts_no_time(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=30)
        await play.tick(5)
        ran = play.app.session.state.step
        story = next(iter(play.app.session.state.stories.values()))
        before = story.itl()
        await play.press("space")
        await play.tick()
        play.stage.clock.pass_(100.0)
        await play.add(1, tokens=5)
        state = play.app.session.state
        assert state.step > ran and f"step {ran} ran 2 of 24 tokens" in play.text
        assert "the engine is paused" in play.text, "why the new one waits"
        await play.press("space")
        await play.tick(3)
        assert story.itl() == pytest.approx(before, rel=0.5), "a hundred seconds of pause are not in it"
        assert story.seconds("paused", story.token_times[-1]) == pytest.approx(100.0, abs=1.0)


async def test_a_closing_engine_says_that_all_has_ended(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1, tokens=30)
        play.manager.scheduler.fail_all("stopped", "stopped by hand", play.stage.clock())
        play.manager._publish()
        play.manager._become("draining")
        await play.pilot.pause()
        play.app.tick()
        play.app.tick()
        assert "CLOSING" in play.text.splitlines()[0] and "STOPPING" not in play.text


@pytest.mark.parametrize("width", [36, 76, 104])
def test_explanations_are_ascii_where_the_terminal_is(width):
    scene = Scene.of(rush().state, busy_chrome(), theme_named("mono", ascii_only=True))
    for rows in (step_rows(scene, width), figure_rows(scene, width)[0]):
        assert text_of(rows).isascii()


@pytest.mark.parametrize("name", ["dark", "light", "contrast", "ansi", "mono"])
async def test_all_pages_of_the_explanation_stand_at_every_size(tmp_path, name):
    async with playing(tmp_path) as play:
        play.app.show_theme(name)
        await play.add(2, tokens=30)
        await play.tick(4)
        for size in ((40, 10), (80, 24), (200, 60)):
            await play.pilot.resize_terminal(*size)
            await play.press("e")
            await play.tick()
            assert isinstance(play.app.screen, ExplainDialog)
            for _ in range(3):
                await play.press("tab", "down", "pagedown", "up")
                width = play.app.screen._rows.size.width
                assert all(strip.cell_length <= width for strip in play.app.screen._rows._strips), (size, width)
            await play.press("escape")


def test_the_order_of_the_map_is_named_in_the_past():
    for size, order, words in (
        ((80, 24), "physical", "physical"), ((120, 36), "auto", "by owner"), ((200, 60), "auto", "physical")
    ):  # fmt: skip
        shown = Chrome(model="m", past=200, selected=1, map_order=order)
        text = screen_text(compose(rush().state, shown, theme_named("dark"), *size).rows)
        head = next(line for line in text.splitlines() if line.startswith("KV BLOCKS"))
        assert words in head, size


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60)])
async def test_every_pane_has_its_help_and_shows_its_focus(tmp_path, size):
    async with playing(tmp_path, size=size, windows=(None, 8), cpu_offload_space=1e-5) as play:
        await play.add(2, tokens=30)
        await play.tick(4)
        await play.press("m")
        await play.tick(2)
        await play.press("left_square_bracket", "M")
        seen = set()
        for mode in "123456":
            await play.press(mode)
            for _ in play.app.frame.panes:
                await play.press("tab")
                pane = play.app.chrome.focus
                seen.add(pane)
                assert PANES[pane], pane
                first = next(rect for rect in play.app.frame._rects if rect.name == pane)
                styles = [segment.style for segment in play.app.frame.rows[first.y]]
                assert play.app.look.style("on_ink", "on", bold=True) in styles, (mode, pane)
        assert {"hud", "blocks", "requests", "gantt", "offload", "config", "map", "detail"} <= seen


async def test_the_mouse_comes_to_every_command_by_the_name_of_the_program(tmp_path):
    async with playing(tmp_path, size=(80, 24)) as play:
        await play.add(1)
        await play.pilot.click(offset=(2, 0))
        await play.pilot.pause()
        assert isinstance(play.app.screen, CommandPalette)


@pytest.mark.parametrize("size", [(40, 14), (80, 24), (120, 36)])
async def test_the_field_under_the_cursor_shows_its_whole_note(tmp_path, size):
    async with playing(tmp_path, size=size) as play:
        await play.press("6")
        fields = play.app.chrome.config
        longest = max(range(len(fields)), key=lambda place: len(fields[place].note))
        play.app.change(config_cursor=longest)
        assert fields[longest].note in " ".join(play.text.split())

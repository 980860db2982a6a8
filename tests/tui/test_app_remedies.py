"""What the application says when something is refused, over, or asked in vain, and the key that always quits."""

import pytest
from textual.widgets import Input, TextArea

from cbtui.screens.add import AddDialog
from cbtui.screens.config import ConfigDialog
from cbtui.screens.explain import ExplainDialog
from tests.tui.stage import playing, rendered


def said(play) -> str:
    """The same with the frame of the dialog gone and every run of blanks as one."""
    return " ".join(rendered(play).replace("│", " ").split())


@pytest.mark.parametrize("key", ["a", "b", "comma", "e", "n", "slash", "colon", "question_mark", "X"])
async def test_ctrl_c_quits_from_every_dialog(tmp_path, key):
    async with playing(tmp_path) as play:
        await play.add(1, tokens=40)
        await play.press(key)
        await play.tick()
        assert len(play.app.screen_stack) == 2
        await play.press("ctrl+c")
        assert play.app.return_code == 0 and not play.app.is_running


@pytest.mark.parametrize("key", ["a", "A", "comma", "e", "n", "b", "X", "question_mark", "r"])
async def test_a_dialog_says_how_to_close_it_on_the_smallest_screen(tmp_path, key):
    async with playing(tmp_path, size=(40, 10)) as play:
        await play.add(1, tokens=40)
        await play.press(key)
        await play.tick()
        assert "esc closes" in said(play)
        await play.pilot.resize_terminal(120, 36)
        await play.pilot.pause()
        assert "─ esc closes ─╯" not in rendered(play)


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_a_refused_value_is_named_with_what_to_try(tmp_path, size):
    async with playing(tmp_path, size=size) as play:
        await play.press("comma")
        assert isinstance(play.app.screen, ConfigDialog)
        play.app.screen.query_one("#max_batch_tokens", Input).value = "abc"
        await play.pilot.pause()
        assert (
            "max_batch_tokens cannot be 'abc': it must be an int >= 1 or auto; auto sizes it from free memory"
            in said(play)
        )
        reset = "^r reset field" if size[0] >= 90 else "^r reset"
        assert f"nothing applied: 1 refused {reset} esc discard" in said(play)


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("max_batch_tokens", "-3", "'-3': it must be an int >= 1 or auto; auto sizes it from free memory"),
        ("num_blocks", "0", "'0': it must be an int >= 1 or auto; auto sizes the pool from free memory"),
        ("safety_margin", "7", "'7': it must be a share in [0, 1] or auto; 0 turns the margin off"),
        ("allow_block_sharing", "perhaps", "'perhaps': it must be on or off"),
        ("allow_block_sharing", "auto", "'auto': it must be on or off"),
    ],
)
async def test_limits_are_told_in_the_words_the_editor_takes(tmp_path, field, text, words):
    async with playing(tmp_path) as play:
        await play.press("comma")
        play.app.screen.query_one(f"#{field}", Input).value = text
        await play.pilot.pause()
        assert f"{field} cannot be {words}" in said(play) and "None" not in said(play)


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_a_request_that_would_be_refused_stays_in_the_dialog(tmp_path, size):
    async with playing(tmp_path, size=size) as play:
        await play.press("a")
        await play.type("rain on stones")
        play.app.screen.query_one("#max_new_tokens", Input).value = "400"
        await play.pilot.pause()
        for _ in range(3):
            await play.tick()
        await play.press("enter")
        assert isinstance(play.app.screen, AddDialog) and play.manager.named("add_request") == []
        assert play.app.screen.query_one("#prompt", TextArea).text == "rain on stones"
        assert "not added: can never fit: 405 tokens need 101 blocks of 4 tokens" in said(play)
        assert "but the pool has 48: shorten it or give the cache more blocks" in said(play)
        play.app.screen.query_one("#max_new_tokens", Input).value = "9"
        await play.pilot.pause()
        for _ in range(3):
            await play.tick()
        assert "not added" not in said(play)
        await play.press("enter")
        assert len(play.manager.named("add_request")) == 1


async def test_a_difference_that_shows_nothing_says_why(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1, tokens=40)
        await play.tick(3)
        await play.press("m", "M")
        assert "is both A and B" in play.notice
        await play.press("M")
        await play.tick(2)
        await play.press("M")
        assert "with one of the past" in play.notice


async def test_a_finished_request_tells_how_it_ended(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1, tokens=5)
        await play.tick(8)
        await play.press("e")
        await play.tick()
        assert isinstance(play.app.screen, ExplainDialog) and play.app.screen.page == "request"
        story = play.app.selected_story
        assert "How did A end?" in said(play) and f"finished at {story.ended} (max tokens)" in said(play)
        assert "20 prompt tokens, 5 of at most 5 new tokens made." in said(play)
        assert f"at most {story.peak_blocks} blocks at once" in said(play)


async def test_a_refused_request_tells_why_in_full(tmp_path):
    async with playing(tmp_path, size=(80, 24)) as play:
        play.manager.add_request(list(range(2, 400)), max_new_tokens=20)
        await play.tick(1)
        await play.press("e")
        await play.tick()
        assert isinstance(play.app.screen, ExplainDialog) and play.app.screen.page == "request"
        assert "give the cache more blocks" in said(play) and "the pool has 48" in said(play)


async def test_what_was_said_goes_while_the_engine_is_held(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1, tokens=40)
        await play.press("space")
        await play.tick()
        await play.press("m")
        assert "is A" in play.notice
        await play.press("i", "o")
        play.stage.clock.pass_(5.1)
        await play.tick()
        assert play.notice == "" and "is A" not in play.text


async def test_running_is_not_said_of_an_engine_that_is_held(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1, tokens=40)
        await play.press("space")
        await play.tick()
        await play.press("space")
        await play.tick(1)
        assert play.notice.startswith("running from step")
        play.manager._become("held")
        await play.tick()
        assert "running from" not in play.notice

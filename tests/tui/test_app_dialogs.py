"""Dialogs: help, glossary, palette, why, the configuration editor and restarts, and what all dialogs have in common."""

import pytest
from textual import events
from textual.command import CommandPalette
from textual.widgets import Input

from cbtui.keys import ACTIONS
from cbtui.launch import RequestSpec
from cbtui.screens.config import ConfigDialog
from cbtui.screens.explain import ExplainDialog
from cbtui.screens.fields import Press, Switcher
from cbtui.screens.reading import ReadingDialog
from cbtui.theme import theme_named
from tests.tui.stage import playing, rendered


async def test_help_shows_every_action_and_searches(tmp_path):
    async with playing(tmp_path, size=(120, 100)) as play:
        await play.press("question_mark")
        assert isinstance(play.app.screen, ReadingDialog)
        page = rendered(play)
        for action in ACTIONS:
            assert action.help[:40] in page, action.id
        await play.type("hard")
        assert "hard" not in page or "Duplicate" not in rendered(play)
        await play.press("escape")
        assert play.app.screen is play.app.screen_stack[0]


async def test_glossary_and_pane_help(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        await play.press("g")
        await play.type("margin")
        assert "safety margin" in rendered(play) and "logprob" not in rendered(play)
        await play.press("escape", "f1")
        assert "Help: requests" in rendered(play)
        await play.press("escape")


async def test_palette_finds_and_runs_an_action(tmp_path):
    async with playing(tmp_path) as play:
        for key in ("colon", "ctrl+p"):
            await play.press(key)
            assert isinstance(play.app.screen, CommandPalette)
            await play.press("escape")
        await play.press("colon")
        await play.type("pause")
        await play.pilot.app.workers.wait_for_complete()
        await play.pilot.pause(0.1)
        await play.press("enter")
        await play.pilot.pause(0.1)
        assert play.manager.named("hold") == [((), {})]


async def test_explain_asks_the_scheduler_and_offers_its_ways(tmp_path):
    async with playing(tmp_path, num_blocks=12) as play:
        await play.add(1, tokens=20)
        await play.add(2, tokens=10, prompt=tuple(range(30, 62)))
        await play.tick(3)
        await play.press("pageup", "e")
        await play.tick()
        assert isinstance(play.app.screen, ExplainDialog)
        assert "Why is B waiting?" in rendered(play) and "CHECKS" in rendered(play)
        await play.press("c")
        assert play.manager.named("cancel_request") == [(("req_0",), {})]
        await play.tick(1)
        await play.press("e")
        await play.tick()
        assert isinstance(play.app.screen, ExplainDialog)
        await play.press("comma")
        assert isinstance(play.app.screen, ConfigDialog)


async def test_an_answer_that_comes_too_late_is_dropped(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        await play.press("e", "g")
        await play.tick()
        assert isinstance(play.app.screen, ReadingDialog)


async def test_config_editor_checks_before_it_applies(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("comma")
        assert isinstance(play.app.screen, ConfigDialog)
        dialog = play.app.screen
        dialog.query_one("#max_requests_per_batch", Input).value = "99"
        await play.pilot.pause()
        assert "99 rows: every row needs at least one of the 24 batch tokens" in rendered(play)
        assert not dialog.query_one("#apply", Press).on and not dialog.query_one("#again", Press).on
        await play.press("enter")
        assert isinstance(play.app.screen, ConfigDialog) and play.manager.named("set_config") == []
        dialog.query_one("#max_requests_per_batch", Input).value = "4"
        dialog.query_one("#safety_margin", Input).value = "0.25"
        await play.pilot.pause()
        assert dialog.query_one("#apply", Press).on
        await play.press("enter")
        assert play.manager.named("set_config") == [((), {"max_requests_per_batch": 4, "safety_margin": 0.25})]
        await play.tick()
        now = {row.name: row.now for row in play.app.chrome.config}
        assert (now["max_requests_per_batch"], now["safety_margin"]) == ("4", "0.25")


async def test_a_restart_adds_the_unfinished_again(tmp_path):
    prompts = (RequestSpec("old stones"), RequestSpec("the rain"))
    async with playing(tmp_path, prompts=prompts) as play:
        await play.tick(3)
        await play.press("comma")
        play.app.screen.query_one("#page_size", Input).value = "8"
        await play.pilot.pause()
        assert "2 unfinished requests" in rendered(play)
        play.app.screen.query_one("#again", Press).action_press()
        await play.pilot.pause()
        await play.tick(1)
        assert play.stage.changes == [{}, {"page_size": 8}]
        assert play.stage.managers[0].destroyed
        old = [args[0] for args, _ in play.stage.managers[0].named("add_request")]
        assert [args[0] for args, _ in play.manager.named("add_request")] == old


async def test_a_restart_can_wait_for_the_requests(tmp_path):
    async with playing(tmp_path, prompts=(RequestSpec("old stones", max_new_tokens=5),)) as play:
        await play.tick(2)
        await play.press("comma")
        play.app.screen.query_one("#num_blocks", Input).value = "64"
        play.app.screen.query_one("#requests", Switcher).action_turn(1)
        await play.pilot.pause()
        play.app.screen.query_one("#again", Press).action_press()
        await play.pilot.pause()
        await play.tick(2)
        assert len(play.stage.managers) == 1 and play.app.chrome.engine == "draining"
        await play.tick(10)
        await play.tick()
        assert play.stage.changes == [{}, {"num_blocks": 64}]
        assert play.manager.named("add_request") == []
        assert play.app.chrome.engine == "running"


async def test_changes_survive_a_later_restart(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("comma")
        play.app.screen.query_one("#safety_margin", Input).value = "0.5"
        await play.pilot.pause()
        await play.press("enter")
        await play.tick()
        await play.press("X", "y")
        await play.tick()
        await play.press("S")
        await play.tick()
        assert play.stage.changes == [{}, {"safety_margin": 0.5}]




async def test_the_config_page_has_a_cursor_and_opens_the_editor(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("6", "down", "down", "up")
        assert play.app.chrome.config_cursor == 1
        await play.press("enter")
        assert isinstance(play.app.screen, ConfigDialog)
        assert play.app.focused.id == play.app.chrome.config[1].name == "max_batch_tokens"


async def test_keys_typed_at_once_after_tab_reach_the_next_field(tmp_path):
    """All keys arrive before the loop has looked at one of them, as from a fast typist or a paste."""
    async with playing(tmp_path) as play:
        await play.press("A")
        fields = list(play.app.screen.query(Input))
        for field in fields:
            field.value = ""
        for key in ("7", "tab", "5", "tab", "9", "8", "shift+tab", "1"):
            play.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await play.pilot.pause()
        assert [field.value for field in fields[:3]] == ["7", "51", "98"]


async def test_keys_that_edit_and_keys_that_move_take_effect_in_the_order_typed(tmp_path):
    """Each field is emptied, filled, corrected and left, all before the loop has looked at one of the keys."""
    async with playing(tmp_path) as play:
        await play.press("A")
        fields = list(play.app.screen.query(Input))
        for number in range(1, len(fields)):
            for key in ("ctrl+u", "1", "8", "backspace", str(number), "home", "2", "tab"):
                play.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await play.pilot.pause()
        assert [field.value for field in fields[:-1]] == [f"21{number}" for number in range(1, len(fields))]


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_the_configuration_dialog_cuts_no_word_that_matters(tmp_path, size):
    """Notes that have no room beside their field stand below the fields while the cursor is there."""
    async with playing(tmp_path, size=size) as play:
        await play.press("comma")
        dialog = play.app.screen
        for field in dialog.query(Input):
            field.focus()
            await play.pilot.pause()
            said = " ".join(rendered(play).split())
            row = next(row for row in play.app.chrome.config if row.name == field.id)
            assert row.note in said and row.effect in said
            assert "esc discard" in said and "takes effect" in said
        dialog.query_one("#safety_margin", Input).value = "0.25"
        await play.pilot.pause()
        if size[0] < 90:
            assert "…" not in rendered(play)
        assert "Apply 1" in rendered(play) and "Restart with 1" in rendered(play)


async def test_choices_and_buttons_take_keys_in_the_order_typed(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("a")
        dialog = play.app.screen
        choice = dialog.query_one("#streaming", Switcher)
        choice.focus()
        before, other = choice.index, dialog.query_one("#logprobs", Switcher).index
        for key in ("right", "tab", "right", "shift+tab", "right", "right"):
            play.app.post_message(events.Key(key, None))
        await play.pilot.pause()
        assert choice.index == 1 - before and dialog.query_one("#logprobs", Switcher).index == 1 - other


async def test_a_dialog_answered_twice_at_once_takes_the_first_answer(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("b")
        for key in "12":
            play.app.post_message(events.Key(key, key))
        await play.pilot.pause()
        assert play.app.screen is play.app.screen_stack[0]
        ((condition,), _), = play.manager.named("run_until")
        assert condition.kind == "preemption"


async def test_a_restart_says_what_is_lost_and_wants_an_enter_of_its_own(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2)
        await play.press("comma")
        dialog = play.app.screen
        dialog.query_one("#page_size", Input).value = "8"
        await play.pilot.pause()
        said = " ".join(rendered(play).split())
        assert "2 unfinished requests" in said and "begins them again" in said and "the timeline stay" in said
        dialog.query_one("#requests", Switcher).action_turn(1)
        await play.pilot.pause()
        assert "They finish first" in rendered(play)
        await play.press("enter")
        assert play.app.screen is dialog and play.app.focused.id == "again"


async def test_open_dialogs_follow_the_engine(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2)
        await play.press("X")
        assert "2 requests would be lost" in rendered(play)
        await play.add(1)
        assert "3 requests would be lost" in rendered(play)


async def test_dialogs_are_ascii_where_the_terminal_is(tmp_path):
    async with playing(tmp_path) as play:
        play.app.frame.theme = play.app.look = theme_named("dark", ascii_only=True)
        await play.press("A")
        assert rendered(play).isascii()


async def test_every_field_can_be_reached_on_a_small_screen(tmp_path):
    async with playing(tmp_path, size=(40, 10)) as play:
        await play.press("A")
        for field in play.app.screen.query(Input):
            field.focus()
            await play.pilot.pause()
            await play.pilot.pause()
            place = field.region
            assert 0 <= place.y < 10 and place.right <= 38 and place.width == 8, field.id

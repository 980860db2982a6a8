"""Actions on requests: add, burst, duplicate, cancel, the cursor among them, the filter."""

import json

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.widgets import Input, TextArea

from cbtui.launch import RequestSpec
from cbtui.screens.add import AddDialog
from cbtui.screens.burst import BurstDialog
from cbtui.screens.fields import Press, Switcher
from cbtui.screens.small import FilterDialog
from engine.core.errors import RequestError
from tests.tui.stage import PROMPT, playing, rendered


async def test_add_dialog_sends_what_was_written(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("a")
        assert isinstance(play.app.screen, AddDialog)
        await play.type("the rain ran")
        dialog = play.app.screen
        for name, value in {"max_new_tokens": "9", "temperature": "0.7", "top_k": "5", "top_p": "0.9", "seed": "4",
                            "copies": "2", "stop_strings": '"\\n", "END"'}.items():  # fmt: skip
            dialog.query_one(f"#{name}", Input).value = value
        dialog.query_one("#logprobs", Switcher).action_turn(1)
        await play.pilot.pause()
        await play.press("enter")
        calls = play.manager.named("add_request")
        ids = tuple(play.stage.tokenizer("<user> the rain ran <reply>")["input_ids"])
        assert [args[0] for args, _ in calls] == [ids, ids]
        assert [kwargs["seed"] for _, kwargs in calls] == [4, 5]
        assert calls[0][1] == {
            "max_new_tokens": 9, "stop_strings": ["\n", "END"], "streaming": False, "seed": 4, "do_sample": True,
            "temperature": 0.7, "top_k": 5, "top_p": 0.9, "logprobs": 0,
        }  # fmt: skip


async def test_add_dialog_shows_tokens_and_refuses_what_is_wrong(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("a", "enter")
        assert isinstance(play.app.screen, AddDialog)
        assert "the prompt must hold at least one token" in rendered(play)
        await play.type("rain on stones")
        await play.tick()
        assert "5 tokens = 3 text + 2 template" in rendered(play)
        await play.press("ctrl+t")
        await play.tick()
        assert "3 tokens " in rendered(play)
        play.app.screen.query_one("#top_p", Input).value = "1.3"
        await play.pilot.pause()
        assert "top_p must be greater than 0 and at most 1" in rendered(play)
        assert "fix top p first" in rendered(play)
        assert not play.app.screen.query_one("#submit", Press).on
        await play.press("enter")
        assert isinstance(play.app.screen, AddDialog) and play.app.focused.id == "top_p"
        assert play.manager.named("add_request") == []


async def test_add_dialog_remembers_the_choices_but_not_the_prompt(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("a")
        await play.type("rain")
        play.app.screen.query_one("#max_new_tokens", Input).value = "33"
        await play.press("enter", "a")
        assert play.app.screen.query_one("#max_new_tokens", Input).value == "33"
        assert play.app.screen.query_one("#prompt", TextArea).text == ""


async def test_a_pasted_prompt_is_data_line_by_line(tmp_path):
    text = "first [bold]line[/]\nsecond \x1b[31m宽い line\x07\nthird"
    async with playing(tmp_path) as play:
        await play.press("a")
        play.app.screen.query_one("#prompt", TextArea).insert(text)
        await play.pilot.pause()
        await play.press("ctrl+j")
        await play.type("end")
        await play.press("enter")
        ids = play.manager.named("add_request")[0][0][0]
        assert ids == tuple(play.stage.tokenizer(f"<user> {text}\nend <reply>")["input_ids"])
        await play.tick(2)
        assert "\x1b" not in play.text and "\x07" not in play.text


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # joined emoji
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # a word with a mark that keeps letters apart
        "a\u00a0b\u3000c\ue000d\U0003fffde",  # wide and unbreakable spaces, private and unknown characters
    ],
)
async def test_a_text_is_the_same_typed_and_pasted(tmp_path, text):
    async def typed(text):
        for event in XTermParser().feed(text):  # a pilot knows keys by name, and these have none
            play.app._driver.send_message(event)
        await play.pilot.pause()

    async with playing(tmp_path) as play:
        await play.press("a")
        await typed(f"x{text}y")
        area = play.app.screen.query_one("#prompt", TextArea)
        assert area.text == f"x{text}y"
        play.app._driver.send_message(events.Paste(text))
        await play.pilot.pause()
        assert area.text == f"x{text}y{text}"
        area.select_all()
        await typed(text[1])  # takes the place of what is selected
        assert area.text == text[1]
        field = play.app.screen.query_one("#stop_strings", Input)
        field.focus()
        await typed(text)
        assert field.value == text


async def test_copy_selected_fills_the_add_dialog(tmp_path):
    async with playing(tmp_path, prompts=(RequestSpec("old stones", max_new_tokens=17, temperature=0.5),)) as play:
        await play.tick(2)
        await play.press("a", "ctrl+d")
        assert play.app.screen.query_one("#prompt", TextArea).text == "old stones"
        assert play.app.screen.query_one("#max_new_tokens", Input).value == "17"
        await play.type(" again")
        await play.press("enter")
        prompts = [args[0] for args, _ in play.manager.named("add_request")]
        assert len(prompts) == 2 and prompts[0] != prompts[1]


async def test_burst_arrives_over_time(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("A")
        assert isinstance(play.app.screen, BurstDialog)
        play.app.screen.query_one("#count", Input).value = "6"
        play.app.screen.query_one("#per_second", Input).value = "2"
        await play.pilot.pause()
        await play.press("enter")
        await play.tick()
        first = len(play.manager.named("add_request"))
        assert 1 <= first < 6
        play.stage.clock.pass_(60.0)
        await play.tick()
        assert len(play.manager.named("add_request")) == 6


async def test_a_burst_that_cannot_be_read_is_not_offered(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("A")
        play.app.screen.query_one("#count", Input).value = "60..."
        await play.pilot.pause()
        shown = rendered(play)
        assert "Add requests" in shown and "Add 12" not in shown and "fix what is marked first" in shown
        play.app.screen.query_one("#count", Input).value = "60"
        await play.pilot.pause()
        shown = rendered(play)
        assert "Add 60 requests" in shown and "fix" not in shown


async def test_stopping_ends_a_burst(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("A", "enter")
        await play.tick()
        before = len(play.manager.named("add_request"))
        await play.press("s")
        play.stage.clock.pass_(60.0)
        await play.tick()
        assert len(play.manager.named("add_request")) == before < 12


async def test_duplicate_cancel_and_undo(tmp_path):
    async with playing(tmp_path, prompts=(RequestSpec("old stones", seed=3, temperature=1.0),)) as play:
        await play.tick(2)
        await play.press("d")
        await play.tick(1)
        await play.press("c")
        assert play.manager.named("cancel_request") == [(("req_0",), {})]
        await play.tick(1)
        assert "A was cancelled at step" in play.notice
        await play.press("c")
        assert play.notice == "cancel: A has already ended"
        await play.press("u")
        calls = play.manager.named("add_request")
        assert len(calls) == 3
        assert calls[0][0][0] == calls[1][0][0] == calls[2][0][0]
        assert [kwargs["seed"] for _, kwargs in calls] == [3, 3, 3]
        await play.press("u")
        assert play.notice == "undo: nothing was cancelled yet"


async def test_a_refused_request_stays_in_sight_and_can_be_changed(tmp_path):
    async with playing(tmp_path) as play:
        def refuse(ids, **wanted):
            raise RequestError(f"request 'req_0': needs {len(ids)} blocks, the pool has 48")

        taken, play.manager.add_request = play.manager.add_request, refuse
        await play.press("a")
        await play.type("rain on stones")
        await play.press("enter")
        await play.tick()
        assert play.notice == "not added: needs 5 blocks, the pool has 48" and play.app.chrome.notice_kind == "error"
        row = next(line for line in play.text.splitlines() if line.startswith("▸"))
        assert "✗ refused" in row and "needs 5 blocks" in row
        play.manager.add_request = taken
        await play.press("a", "ctrl+d")
        assert play.app.screen.query_one("#prompt", TextArea).text == "rain on stones"
        await play.press("enter")
        assert len(play.manager.named("add_request")) == 1


async def test_a_request_the_scheduler_refuses_is_told(tmp_path):
    async with playing(tmp_path) as play:
        play.manager.add_request(list(range(2, 400)), max_new_tokens=20)
        await play.tick(1)
        assert "refused" in play.notice and play.app.chrome.notice_kind == "error"


async def test_the_cursor_stays_on_its_request(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(5, tokens=30)
        await play.tick(3)
        await play.press("down", "down")
        key = play.app.chrome.selected
        await play.press("o", "o")
        await play.add(3, tokens=30)
        await play.tick(2)
        assert play.app.chrome.selected == key
        await play.press("c")
        await play.tick(4)
        assert play.app.chrome.selected == key
        label = play.app.session.state.stories[key].label
        cursor = next(line for line in play.text.splitlines() if line.startswith("▸"))
        assert cursor.split()[1] == label and "cancelled" in cursor


async def test_a_cursor_nobody_moved_leaves_an_ended_request_for_those_that_run(tmp_path):
    for moved in (False, True):
        async with playing(tmp_path, size=(80, 24), num_blocks=200, max_requests_per_batch=4) as play:
            await play.add(1, tokens=2)
            if moved:
                await play.press("down")
            assert play.app.selected_story.label == "A"
            await play.add(30, tokens=6)
            for _ in range(60):
                await play.tick(1)
                if play.app.selected_story.ended < 0 and play.app.selected_story.label != "A":
                    break
            states = [play.app.session.state.stories[key] for key in play.app.frame.visible_requests]
            if moved:
                assert play.app.selected_story.label == "A" and states[-1].label == "A"
            else:
                assert any(story.ended < 0 for story in states), "running and waiting ones are in sight"
                selected = play.app.selected_story
                assert selected in states
                await play.tick(1)
                assert play.app.selected_story is selected, "it stays there while that one runs"


async def test_the_cursor_moves_by_lines_and_pages(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(6, tokens=40)
        await play.tick(3)
        order = play.app.frame.visible_requests
        await play.press("pageup")
        assert play.app.chrome.selected == order[0]
        await play.press("down", "j")
        assert play.app.chrome.selected == order[2]
        await play.press("up", "k", "up")
        assert play.app.chrome.selected == order[0]
        await play.press("pagedown")
        assert play.app.chrome.selected == order[-1]


async def test_keys_typed_before_a_dialog_stands_are_not_lost(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(3)
        for key, character in (("slash", "/"), *((c, c) for c in "req"), ("1", "1"), ("enter", "\r")):
            play.app.post_message(events.Key(key, character))
        for _ in range(5):
            await play.pilot.pause()
        assert play.app.chrome.filter == "req1" and not play.app.chrome.filtering
        assert play.app.chrome.mode == 1 and play.manager.questions == ["snapshot"]


async def test_filter_takes_effect_while_typing_and_can_be_dropped(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(3)
        await play.press("slash")
        assert isinstance(play.app.screen, FilterDialog)
        await play.type("req_1")
        assert play.app.chrome.filter == "req_1"
        assert len(play.app.frame.visible_requests) == 1
        await play.press("enter")
        assert play.app.chrome.filter == "req_1" and not play.app.chrome.filtering
        await play.press("slash", "escape")
        assert play.app.chrome.filter == ""


async def test_copy_is_json_of_the_request(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        await play.tick(3)
        await play.press("y")
        copied = json.loads(play.app.clipboard)
        assert copied["request_id"] == "req_0" and copied["request"]["prompt_ids"] == list(PROMPT)
        assert len(copied["tokens"]) == len(copied["logprobs"]) > 0



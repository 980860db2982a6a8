"""Every key on the running application: what reaches the engine, what the screen says."""

import json
import re

import pytest
from textual import events
from textual.command import CommandPalette
from textual.widgets import Input, TextArea

from cbtui.keys import ACTIONS
from cbtui.launch import RequestSpec
from cbtui.screens.add import AddDialog
from cbtui.screens.burst import BurstDialog
from cbtui.screens.config import ConfigDialog
from cbtui.screens.explain import ExplainDialog
from cbtui.screens.fields import Press, Switcher
from cbtui.screens.reading import ReadingDialog
from cbtui.screens.small import ChoiceDialog, ConfirmDialog, FilterDialog, ValueDialog
from cbtui.theme import theme_named
from engine.core.errors import RequestError
from engine.core.observe import CommandAck
from tests.tui.stage import PROMPT, playing


async def test_space_pauses_and_runs(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("space")
        assert play.manager.named("hold") == [((), {})]
        await play.tick()
        assert "paused at step 1" in play.notice
        assert play.app.chrome.engine == "held"
        assert next(hint for hint in play.app.chrome.keys if hint.action == "pause").label == "run"
        await play.press("space")
        assert play.manager.named("resume") == [((), {})]


async def test_commands_while_paused_do_not_make_a_request_look_stalled(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=30)
        await play.tick(3)
        await play.press("space")
        await play.tick()
        await play.press("minus")
        await play.tick()
        rows = [line for line in play.text.splitlines() if " decode " in line and "/30" in line]
        assert len(rows) == 2 and "stalled" not in play.text


async def test_one_step_and_n_steps(tmp_path):
    async with playing(tmp_path) as play:
        await play.add()
        await play.press("full_stop")
        await play.press("n")
        assert isinstance(play.app.screen, ValueDialog)
        await play.press("2", "5", "enter")
        assert play.manager.named("step_once") == [((1,), {}), ((25,), {})]


async def test_n_steps_refuses_what_is_no_number(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("n", "x", "enter")
        assert isinstance(play.app.screen, ValueDialog)
        await play.press("escape")
        assert play.manager.named("step_once") == []


async def test_pace_goes_down_and_up_a_ladder(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("minus", "minus", "plus", "plus", "plus")
        assert [args[0] for args, _ in play.manager.named("set_rate")] == [50.0, 20.0, 50.0, None, None]
        for _ in range(12):
            await play.press("minus")
        assert play.manager.named("set_rate")[-1][0] == (0.25,)
        assert play.app.chrome.rate == 0.25


async def test_in_the_timeline_the_same_keys_zoom(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("4", "plus", "plus", "minus")
        assert play.app.chrome.zoom == 64
        assert play.manager.named("set_rate") == []


async def test_stop_finishes_what_was_accepted(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=4)
        await play.press("s")
        await play.tick(1)
        assert play.app.chrome.engine == "draining"
        await play.press("s")
        assert play.notice == "stop: the engine is already finishing its work"
        await play.press("a")
        assert play.notice == "add: the engine is stopping and takes nothing new"
        await play.tick(20)
        assert play.app.chrome.engine == "stopped"
        assert {story.finish_reason for story in play.app.session.state.stories.values()} == {"length"}


async def test_hard_stop_wants_y_and_nothing_else(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2)
        for answer in ("enter", "space", "x", "X"):
            await play.press("X", answer)
            assert isinstance(play.app.screen, ConfirmDialog)
            await play.press("n")
        assert play.manager.named("stop") == []
        await play.press("X", "y")
        assert play.manager.named("stop") == [((), {"block": False, "hard_stop": True})]
        await play.tick()
        assert play.app.chrome.engine == "stopped"
        assert {story.finish_reason for story in play.app.session.state.stories.values()} == {"stopped"}


async def test_start_again_builds_a_new_engine_on_the_loaded_model(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("S")
        assert play.notice == "start: the engine is running"
        await play.add(1)
        await play.press("X", "y")
        await play.tick()
        assert "S" in {hint.keys for hint in play.app.chrome.keys}
        await play.press("S")
        await play.tick()
        assert len(play.stage.managers) == 2 and play.stage.managers[0].destroyed
        assert play.app.chrome.engine == "running"
        await play.add(1)
        await play.tick(3)
        assert play.labels == ["A", "B"], "what the engine before did stays in the list"


async def test_a_step_that_hangs_can_be_given_up(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        play.manager.hang()
        play.stage.clock.pass_(2.0)
        await play.tick()
        assert play.app.chrome.step_seconds == 2.0
        await play.press("X", "y")
        play.stage.clock.pass_(6.0)
        await play.tick()
        assert play.notice == "the step does not come back, 8 s now; X can give the engine up"
        assert "give up" in {hint.label for hint in play.app.chrome.keys}
        await play.press("X")
        assert "Give the engine up" in rendered(play)
        await play.press("y")
        await play.tick()
        assert "given up" in play.app.chrome.error
        await play.press("c")
        assert play.notice == "cancel: the engine was given up; S starts a new one"
        await play.press("S")
        await play.tick()
        assert len(play.stage.managers) == 2 and not play.stage.managers[0].destroyed
        assert play.app.chrome.engine == "running"


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
            raise RequestError(f"needs {len(ids)} blocks, the pool has 48")

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


async def test_scrubbing_marks_the_past_and_switches_commands_off(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=40)
        await play.tick(30)
        step = play.app.session.state.step
        await play.press("left_square_bracket")
        assert play.app.chrome.past == step - 1
        assert "PAST" in play.text.splitlines()[0]
        await play.press("left_curly_bracket")
        assert play.app.chrome.past == step - 11
        for key, label in (("space", "pause"), ("full_stop", "step"), ("a", "add"), ("c", "cancel")):
            await play.press(key)
            assert play.notice == f"{label}: step {step - 11} is the past; end goes back to LIVE"
        await play.press("right_square_bracket", "right_curly_bracket")
        assert play.app.chrome.past is None
        await play.press("home")
        assert play.app.chrome.past == play.app.session.state.oldest
        await play.tick(2)
        assert play.app.chrome.past == play.app.session.state.oldest
        await play.press("end")
        assert play.app.chrome.past is None and "LIVE" in play.text.splitlines()[0]


async def test_freeze_holds_the_view_and_not_the_engine(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=40)
        await play.press("f")
        frozen = play.app.chrome.past
        await play.tick(5)
        assert play.app.chrome.frozen and play.app.chrome.past == frozen
        assert play.manager.named("hold") == []
        assert play.app.session.state.step == frozen + 5
        await play.press("space")
        assert play.manager.named("hold") == [((), {})]
        await play.press("f")
        assert play.app.chrome.past is None and not play.app.chrome.frozen


async def test_mark_and_difference(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=40)
        await play.press("M")
        assert play.notice == "difference: mark a step with m first"
        await play.press("m")
        mark = play.app.chrome.mark
        await play.tick(5)
        await play.press("left_square_bracket", "M")
        assert play.app.chrome.mark == mark and play.app.chrome.difference
        await play.press("escape")
        assert not play.app.chrome.difference


async def test_previews_can_be_switched_off(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("p")
        assert not play.app.want_preview and play.notice == "no more previews"
        await play.press("p")
        assert play.app.want_preview


async def test_modes_panes_and_maximise(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        for number in "234561":
            await play.press(number)
            assert play.app.chrome.mode == int(number)
        panes = play.app.frame.panes
        await play.press("tab")
        first = play.app.chrome.focus
        assert first in panes and panes[0] == "hud"
        for _ in panes:
            await play.press("tab")
        assert play.app.chrome.focus == first
        await play.press("tab", "shift+tab")
        assert play.app.chrome.focus == first
        await play.press("z")
        assert play.app.chrome.maximised == first and play.app.frame.panes == ("hud", first)
        await play.press("z")
        assert play.app.chrome.maximised is None


async def test_enter_shows_the_request_and_escape_comes_back(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        await play.press("enter")
        assert play.app.chrome.mode == 2
        await play.press("escape")
        assert play.app.chrome.mode == 1


async def test_pinned_streams_are_three_at_most(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(4)
        await play.press("pageup")
        order = play.app.frame.visible_requests
        for _ in range(4):
            await play.press("i", "down")
        assert play.app.chrome.pinned == order[1:4]
        await play.press("i")
        assert play.app.chrome.pinned == order[1:3]


async def test_views_orders_and_theme_are_remembered(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("v", "l", "o", "t")
        chrome = play.app.chrome
        assert (chrome.map_view, chrome.map_order, chrome.order) == ("state", "owner", "arrival")
        assert play.app.look.name == "light" and play.app.theme == "cbtui-light"
        grounds = {segment.style.bgcolor.name for row in play.app.frame.rows for segment in row}
        assert play.app.look.roles["bg"] in grounds and theme_named("dark").roles["bg"] not in grounds
    async with playing(tmp_path) as play:
        chrome = play.app.chrome
        assert (chrome.map_view, chrome.map_order, chrome.order) == ("state", "owner", "arrival")
        assert play.app.look.name == "light"


async def test_run_until_offers_conditions(tmp_path):
    pytest.importorskip("engine.manager")
    async with playing(tmp_path) as play:
        await play.press("b")
        assert isinstance(play.app.screen, ChoiceDialog)
        await play.press("3")
        await play.press("b", "5", "7", "enter")
        conditions = [args[0] for args, _ in play.manager.named("run_until")]
        assert len(conditions) == 2


async def test_copy_is_json_of_the_request(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(1)
        await play.tick(3)
        await play.press("y")
        copied = json.loads(play.app.clipboard)
        assert copied["request_id"] == "req_0" and copied["request"]["prompt_ids"] == list(PROMPT)
        assert len(copied["tokens"]) == len(copied["logprobs"]) > 0


async def test_picture_writes_two_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with playing(tmp_path) as play:
        await play.add(1)
        await play.press("w")
        assert play.notice.startswith("written: cbtui-")
        (svg,), (text,) = tmp_path.glob("*.svg"), tmp_path.glob("*.txt")
        assert svg.read_text().startswith("<svg") and "<title>cbtui fake-model, step 1</title>" in svg.read_text()
        assert text.read_text().splitlines()[:-1] == play.text.splitlines()[:-1], "all but the notice of it"


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


def rendered(play) -> str:
    """What the screen in front shows, as plain text."""
    screen = play.app.screen
    strips = screen._compositor.render_strips(screen.size)
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)




async def test_arrows_go_through_steps_or_blocks(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(3, tokens=40)
        await play.tick(9)
        await play.press("left", "left", "right")
        assert play.app.chrome.past == play.app.session.state.step - 1
        await play.press("end", "3", "right")
        places = play.app.frame.places("block")
        first = play.app.chrome.block
        assert places[first] == min(places.values(), key=lambda place: (place[1], place[0]))
        await play.press("right", "right")
        row = sorted((x, block) for block, (x, y) in places.items() if y == places[first][1])
        assert play.app.chrome.block == row[2][1]
        await play.press("left")
        assert play.app.chrome.block == row[1][1]
        await play.press("down")
        assert places[play.app.chrome.block][1] > places[first][1]
        await play.press("up")
        assert play.app.chrome.block == row[1][1]
        assert play.app.chrome.past is None
        await play.press("escape", "escape")
        assert play.app.chrome.block is None and play.app.chrome.mode == 1


async def test_a_block_of_one_owner_selects_its_request(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(2, tokens=40, prompt=tuple(range(30, 50)))
        await play.tick(6)
        await play.press("3")
        owners = {n: {seq for seq, _ in b.owners} for n, b in enumerate(play.app.session.state.picture.blocks)}
        for _ in range(12):
            await play.press("right")
            mine = owners[play.app.chrome.block]
            if len(mine) == 1:
                assert {play.app.chrome.selected} == mine


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


@pytest.mark.parametrize(
    ("ack", "words"),
    [
        (("rate", "None"), "full speed from step 9"),
        (("rate", "2.0"), "at most 2 steps per second from step 9"),
        (("step", "5"), "5 steps from step 9, then a pause"),
        (("resume", "end"), "running from step 9 until a request ends"),
        (("pause", "", True, "the end of sequence 0 in step 8"), "paused: the end of A in step 8"),
        (("rate", "-1", False, "too slow"), "rate -1 refused: too slow"),
    ],
)
async def test_commands_come_back_as_sentences(tmp_path, ack, words):
    async with playing(tmp_path) as play:
        await play.add()
        said = []
        feed = play.app.session._feed
        feed._say = lambda text, kind, unless: said.append(text)
        kind, target, accepted, detail = (*ack, True, "")[:4] if len(ack) == 2 else ack
        feed._tell(CommandAck(1, kind, target, accepted, detail), 9)
        assert said == [words]


async def test_all_panes_show_one_step(tmp_path):
    async with playing(tmp_path) as play:
        await play.add(tokens=200)
        for _ in range(9):
            play.manager.run(3)
            play.app.tick()
            head = int(re.search(r"step ([\d,]+)", play.text)[1])
            written = int(re.search(r"(\d+)/200", play.text)[1])
            story = play.app.session.state.stories[0]
            assert head - written == play.app.session.state.step - len(story.tokens)


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

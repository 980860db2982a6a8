"""What is shown and when: past steps, marks, modes, panes, views, the map's cursor, pictures."""

import re

from cbtui.theme import theme_named
from tests.tui.stage import playing


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


async def test_picture_writes_two_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with playing(tmp_path) as play:
        await play.add(1)
        await play.press("w")
        assert play.notice.startswith("written: cbtui-")
        (svg,), (text,) = tmp_path.glob("*.svg"), tmp_path.glob("*.txt")
        assert svg.read_text().startswith("<svg") and "<title>cbtui fake-model, step 1</title>" in svg.read_text()
        assert text.read_text().splitlines()[:-1] == play.text.splitlines()[:-1], "all but the notice of it"


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

"""The frame widget: what it shows, which lines it paints again, what lies under the mouse."""

from dataclasses import replace

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Region

from cbtui.theme import theme_named
from cbtui.view.cells import RowBuilder
from cbtui.view.chrome import Chrome
from cbtui.view.frame import compose, screen_text
from cbtui.widgets import Frame, RowsView
from tests.tui.redraw import busy_chrome, rush
from tests.tui.scripted import make_rig, prompt

DARK = theme_named("dark")


class Stage(App[None]):
    """Only the frame, and what it reported."""

    def __init__(self) -> None:
        super().__init__()
        self.frame = Frame(DARK)
        self.seen: list[object] = []

    def compose(self) -> ComposeResult:
        yield self.frame

    def on_frame_picked(self, message: Frame.Picked) -> None:
        self.seen.append((message.hit.kind, message.hit.value, message.button))

    def on_frame_scrolled(self, message: Frame.Scrolled) -> None:
        self.seen.append((message.pane, message.delta))


class Painted(Frame):
    """A frame that remembers which lines it asked to paint."""

    def __init__(self) -> None:
        super().__init__(DARK)
        self.lines: list[int] = []

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False):
        for region in regions:
            self.lines += range(region.y, region.bottom)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


async def test_the_frame_shows_what_compose_says() -> None:
    app = Stage()
    async with app.run_test(size=(120, 36)) as pilot:
        app.frame.show(rush().state, busy_chrome())
        wanted = screen_text(compose(rush().state, busy_chrome(), DARK, 120, 36).rows)
        assert app.frame.text() == wanted
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert app.frame.text() == screen_text(compose(rush().state, busy_chrome(), DARK, 80, 24).rows)
        await pilot.resize_terminal(30, 8)
        await pilot.pause()
        assert "needs 40 x 10" in app.frame.text()
        app.frame.show(None, Chrome())
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "no engine yet" in app.frame.text()


async def test_only_changed_lines_are_painted() -> None:
    rig = make_rig()
    rig.add("a", prompt(1, 40), 100)
    for _ in range(8):
        rig.step(preview=True)

    class Small(App[None]):
        def compose(self) -> ComposeResult:
            yield Painted()

    app = Small()
    async with app.run_test(size=(80, 24)):
        frame = app.query_one(Painted)
        chrome = Chrome(selected=0)
        frame.show(rig.state, chrome)
        frame.lines.clear()
        frame.show(rig.state, chrome)
        assert frame.lines == [], "nothing new: no work"
        before = frame.text().splitlines()
        rig.step(preview=True)
        frame.show(rig.state, chrome)
        after = frame.text().splitlines()
        changed = [y for y in range(24) if before[y : y + 1] != after[y : y + 1]]
        assert set(changed) <= set(frame.lines) and len(set(frame.lines)) < 20
        frame.lines.clear()
        frame.show(rig.state, replace(chrome, notice="paused"))
        assert set(frame.lines) == {23}


async def test_a_new_step_waits_its_turn_and_comes_in_all_panes() -> None:
    rig = make_rig()
    rig.add("a", prompt(1, 40), 100)
    for _ in range(8):
        rig.step(preview=True)
    app = Stage()
    async with app.run_test(size=(120, 36)):
        chrome = Chrome(selected=0)
        app.frame.show(rig.state, chrome, tick=0)
        rig.step(preview=True)
        app.frame.show(rig.state, chrome, tick=1)
        assert "step 8" in app.frame.text().splitlines()[0]
        app.frame.show(rig.state, chrome, tick=2)
        assert app.frame.text() == screen_text(compose(rig.state, chrome, DARK, 120, 36).rows)
        app.frame.show(rig.state, replace(chrome, filter="zzz"), tick=3)
        assert "nothing matches" in app.frame.text(), "what a key changes is shown at once"


async def test_hits_name_what_is_under_a_cell() -> None:
    app = Stage()
    async with app.run_test(size=(120, 36)):
        frame = app.frame
        frame.show(rush().state, busy_chrome())
        rows = frame.text().splitlines()
        y = next(i for i, row in enumerate(rows) if row.startswith("  S   ▪ on CPU"))
        hit = frame.hit(10, y)
        assert hit is not None and (hit.kind, rush().state.label(int(hit.value))) == ("request", "S")
        block = frame.hit(4, next(i for i, row in enumerate(rows) if row.startswith("  0 C")))
        assert block is not None and block.kind == "block"
        assert {s for s, _ in rush().state.picture.blocks[int(block.value)].owners} == {2}
        name = frame.hit(0, 0)
        assert name is not None and name.value == "palette", "by it the mouse comes to every command"
        assert frame.hit(119, 0) is None
        assert frame.visible_requests == frame.request_order[: len(frame.visible_requests)]
        assert frame.panes == ("hud", "batch", "blocks", "host", "requests", "stream", "log", "timeline")
        assert frame.pane_at(119, 6) == "host" and frame.pane_at(119, 35) == "keys"


@pytest.mark.parametrize("mode", range(1, 7))
async def test_clicks_and_the_wheel_are_reported(mode: int) -> None:
    app = Stage()
    async with app.run_test(size=(120, 36)) as pilot:
        chrome = replace(busy_chrome(), mode=mode)
        app.frame.show(rush().state, chrome)
        hits = [h for h in compose(rush().state, chrome, DARK, 120, 36).hits if h.kind != "key"]
        hit = hits[len(hits) // 2]
        found = app.frame.hit(hit.x0, hit.y)
        assert found is not None
        await pilot.click(Frame, offset=(hit.x0, hit.y))
        assert app.seen == [(found.kind, found.value, 1)]
        app.frame.post_message(events.MouseScrollDown(app.frame, 3, 20, 0, 1, 0, False, False, False))
        await pilot.pause()
        assert app.seen[-1] == (app.frame.pane_at(3, 20), 1)


async def test_another_theme_paints_everything_anew() -> None:
    app = Stage()
    async with app.run_test(size=(80, 24)):
        app.frame.show(rush().state, busy_chrome())
        text = app.frame.text()
        app.frame.theme = theme_named("light")
        assert app.frame.text() == text
        style = app.frame.rows[5][0].style
        assert style is not None and style.bgcolor is not None and style.bgcolor.name == "#fbfaf7"


async def test_rows_scroll_within_their_ends() -> None:
    rows = [RowBuilder(20, DARK.style("text")).put(f"row {i}").done() for i in range(30)]

    class Reader(App[None]):
        def compose(self) -> ComposeResult:
            yield RowsView(rows)

    app = Reader()
    async with app.run_test(size=(20, 10)):
        view = app.query_one(RowsView)
        assert view.render_line(0).text.rstrip() == "row 0"
        view.scroll_rows(-5)
        assert view.top == 0
        view.scroll_rows(100)
        assert view.top == 20 and view.render_line(9).text.rstrip() == "row 29"
        view.show(rows[:5])
        assert view.top == 0 and view.render_line(7).text.strip() == ""

"""What is explained: the lamp of the invariants, steps, and every figure of the first line, by keys and by mouse."""

import re
from dataclasses import replace

import pytest

from cbtui.screens.explain import ExplainDialog
from cbtui.theme import theme_named
from cbtui.view.cells import row_text, row_width
from cbtui.view.chrome import Chrome
from cbtui.view.explain_step import decision_words, step_rows
from cbtui.view.figures import figure_rows, figures
from cbtui.view.scene import Scene
from tests.tui.redraw import busy_chrome, idle, rush
from tests.tui.scripted import make_rig, prompt
from tests.tui.stage import playing

DARK = theme_named("dark")


def scene_at(step=None, **chrome):
    state = rush().state
    return Scene.of(state, replace(busy_chrome(), past=step, **chrome), DARK)


def text_of(rows):
    return "\n".join(row_text(row).rstrip() for row in rows)


def corrupt(manager):
    block = next(block for seq in manager.scheduler for block in seq.tables[0])
    manager.scheduler.cache.pool.refs[block] += 1
    return block


# ---- the lamp


async def test_a_broken_invariant_holds_the_engine_and_cannot_be_overlooked(tmp_path):
    async with playing(tmp_path, check_invariants="every") as play:
        await play.add(2, tokens=40)
        await play.tick(4)
        assert "✓ invariants" in play.text.splitlines()[0]
        block = corrupt(play.manager)
        await play.tick(1)
        step = play.app.session.state.step
        first, second = play.text.splitlines()[:2]
        assert f"✗ BROKEN at {step}" in first and "PAUSED" in first
        assert f"invariant broken after step {step}: block {block} has 2 references" in second
        assert f"invariant broken: block {block}" in play.text, "the log keeps it"
        await play.tick(5)
        assert play.app.session.state.step == step, "the engine stands still with all it has"
        await play.press("left_square_bracket")
        first, second = play.text.splitlines()[:2]
        assert "✓ invariants" in first and "broken" not in second
        await play.press("end", "shift+tab")
        while play.app.place.pane != "hud":
            await play.press("tab")
        await play.press("e")
        assert play.app.screen.page == "figures"
        assert f"broken after step {step}" in text_of(play.app.screen._rows._rows)
        await play.press("escape")
        play.manager.scheduler.cache.pool.refs[block] -= 1
        await play.press("space")
        await play.tick(2)
        assert play.app.session.state.step == step + 2 and "✓ invariants" in play.text.splitlines()[0]


def test_a_lamp_that_was_never_lit_is_not_green():
    rig = make_rig(host_blocks=0)
    rig.scheduler.state.step = 1  # so that the rig checks nothing
    rig.add("a", prompt(0, 20), 5)
    rig.step()
    lamp = figures(Scene.of(rig.state, Chrome(), DARK))[-1]
    assert (lamp.title, lamp.value) == ("invariants", "--")


# ---- steps


@pytest.mark.parametrize("step", range(5, 355, 25))
@pytest.mark.parametrize("width", [36, 76, 104])
def test_a_step_is_told_with_all_its_decisions(step, width):
    scene = scene_at(step)
    record = scene.picture.record
    rows = step_rows(scene, width)
    assert {row_width(row) for row in rows} == {width}
    text = " ".join(text_of(rows).split())
    tokens = sum(part.query for part in record.slices)
    assert f"= {tokens} of {record.budget} tokens, {record.budget - tokens} unused." in text
    found = re.search(r"After it: (\d+) used \+ (\d+) cached \+ (\d+) free = (\d+)\.", text)
    used, cached, free, pool = map(int, found.groups())
    assert used + cached + free == pool == scene.picture.num_blocks
    for decision in record.decisions:
        words = max(decision_words(scene, record, decision), key=len)
        assert all(word in text for word in words.split()), words


def test_the_parts_of_the_budget_add_up():
    for step in range(3, 355):
        scene = scene_at(step)
        first = row_text(step_rows(scene, 200)[0])
        left, right = first.split(" = ")
        parts = [int(number) for number in re.findall(r"(\d+) (?:decode|of)", left)]
        assert sum(parts) == int(right.split()[0]), first


def test_a_step_of_commands_leads_to_the_last_batch():
    rig = make_rig(host_blocks=0)
    rig.add("a", prompt(0, 20), 5)
    rig.step()
    rig.scheduler.observe(True)
    record = rig.scheduler.take_events().record(rig.now, invariants=())
    rig.state.apply(record)
    text = text_of(step_rows(Scene.of(rig.state, Chrome(), DARK), 100))
    assert f"Step {record.step} only took commands." in text and f"is step {record.step - 1}" in text
    assert "20 of A = 20 of 96 tokens" in text


async def test_e_goes_to_what_is_in_focus_and_tab_goes_on(tmp_path):
    async with playing(tmp_path) as play:
        await play.press("e")
        assert play.notice == "why?: no step has run yet"
        await play.add(2, tokens=30)
        await play.tick(4)
        await play.press("e")
        await play.tick()
        assert isinstance(play.app.screen, ExplainDialog) and play.app.screen.page == "request"
        pages = []
        for _ in range(3):
            await play.press("tab")
            pages.append(play.app.screen.page)
        assert pages == ["step", "figures", "request"]
        await play.press("shift+tab", "left")
        assert play.app.screen.page == "step"
        await play.press("escape", "left_square_bracket", "e")
        assert play.app.screen.page == "step" and play.app.screen._pages == ["step", "figures"]
        await play.press("escape", "end")
        while play.app.place.pane != "batch":
            await play.press("tab")
        await play.press("e")
        assert play.app.screen.page == "step"
        await play.press("right", "right")
        await play.tick()
        assert play.app.screen.page == "request"
        assert "checks" not in text_of(play.app.screen._rows._rows)
        assert "What does" in text_of(play.app.screen._rows._rows), "the scheduler was asked when its page came up"


async def test_the_mouse_explains_figures_requests_and_steps(tmp_path):
    async with playing(tmp_path, size=(200, 60)) as play:
        await play.add(3, tokens=30)
        await play.tick(6)
        names = [figure.name for figure in figures(Scene.of(play.app.session.state, play.app.chrome, play.app.look))]
        places = play.app.frame.places("figure")
        assert set(places) == set(names), "every figure of the first line can be clicked"
        for name, place in places.items():
            await play.pilot.click(offset=place)
            assert play.app.screen.page == "figures" and play.app.screen._figure == name
            await play.press("escape")
        for kind, page in (("request", "request"), ("step", "step")):
            value, place = list(play.app.frame.places(kind).items())[-1]
            await play.pilot.click(offset=place, button=3)
            await play.tick()
            assert play.app.screen.page == page, kind
            assert (play.app.chrome.selected if kind == "request" else play.app.session.state.step) >= value
            await play.press("escape", "end")


# ---- figures


@pytest.mark.parametrize("width", [36, 76, 104])
def test_every_figure_says_what_it_is_and_how_it_comes_about(width):
    for scene in (scene_at(), scene_at(200), Scene.of(idle().state, Chrome(), DARK)):
        rows, starts = figure_rows(scene, width)
        assert {row_width(row) for row in rows} == {width}
        assert list(starts) == [figure.name for figure in figures(scene)]
        for figure in figures(scene):
            assert figure.meaning.endswith((".", "seconds")) or figure.meaning, figure.name
            assert figure.value


def test_the_numbers_of_the_figures_add_up():
    shown = {figure.name: figure for figure in figures(scene_at())}
    used, cached, free, pool = map(int, re.findall(r"\d+", shown["blocks"].sums[0]))
    assert used + cached + free == pool
    total, own, shared = map(int, re.findall(r"\d+", shown["blocks"].sums[1]))
    assert total == own + shared == used
    line, away, rest = map(int, re.findall(r"\d+", shown["wait"].sums[0].split(":")[0]))
    assert line - away == rest == int(shown["wait"].value)
    tokens, seconds, speed = re.search(r": (\d+) / ([\d.]+) = (\d+)$", shown["tok/s"].sums[0]).groups()
    assert abs(int(tokens) / float(seconds) - int(speed)) < 1
    steps, seconds, pace = re.search(r"(\d+) steps / ([\d.]+) s = ([\d.]+)", shown["pace"].sums[0]).groups()
    assert abs(int(steps) / float(seconds) - float(pace)) < 1
    found, asked, share = re.search(r"(\d+) of (\d+) tokens .* = ([\d.]+)%", shown["hits"].sums[0]).groups()
    assert abs(100 * int(found) / int(asked) - float(share)) < 0.1


def test_unknown_figures_are_dashes_with_a_reason():
    shown = {figure.name: figure for figure in figures(Scene.of(idle().state, Chrome(), DARK))}
    for name in ("pace", "tok/s", "ttft", "itl", "hits"):
        assert shown[name].value == "--" and shown[name].sums[0], name

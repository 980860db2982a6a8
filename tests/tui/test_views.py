"""What each pane has to say."""

import re
from dataclasses import replace

import pytest

from cbtui import limits, sentences
from cbtui.theme import theme_named
from cbtui.view.cells import choose, row_text, row_width, width_of
from cbtui.view.chrome import MAP_VIEWS, ORDERS, Chrome, Loading
from cbtui.view.explain import explain
from cbtui.view.frame import compose, screen_text
from cbtui.view.legend import legend_parts
from cbtui.view.requests import lines
from cbtui.view.scene import Scene, margin_blocks
from cbtui.view.svg import svg
from cbtui.view.tiles import class_counts, owner_order, shape
from cbtui.view.timeline import columns
from engine.core.forecast import explain as explain_of
from engine.core.observe import Decision, PlanPreview, Verdict
from engine.core.policy import margin_blocks as engine_margin
from tests.tui.redraw import busy_chrome, large_pool, rush
from tests.tui.scripted import make_rig, prompt

DARK = theme_named("dark")


def scene(**changes: object) -> Scene:
    return Scene.of(rush().state, replace(busy_chrome(), **changes), DARK)  # type: ignore[arg-type]


def test_states_can_be_told_without_colour() -> None:
    text = screen_text(compose(rush().state, busy_chrome(), theme_named("mono", ascii_only=True), 120, 50).rows)
    for sign in ("| on CPU", "~ waiting", "^ to GPU", "} prefill", "> decode", "! refused", "+ finished"):
        assert sign in text


def test_the_pool_equation_adds_up_on_screen() -> None:
    text = screen_text(compose(rush().state, busy_chrome(), DARK, 120, 36).rows)
    found = re.search(r"KV BLOCKS  (\d+) = (\d+) used \+ (\d+) cached \+ (\d+) free", text)
    assert found is not None
    total, used, cached, free = map(int, found.groups())
    assert total == used + cached + free == 304
    found = re.search(r"(\d+) full attn  q (\d+) window  ▲ (\d+) back", text)
    assert found is not None and sum(map(int, found.groups())) == used


def test_the_legend_tells_the_cells_of_the_view_that_is_shown() -> None:
    told = {}
    for view in MAP_VIEWS:
        parts = legend_parts(scene(map_view=view), long=False, numbers=True, margin=True)
        told[view] = "  ".join("".join(span[0] for span in part.spans) for part in parts)
    page = rush().state.picture.page_size
    assert "full attn" in told["owner"] and "margin" in told["owner"]
    assert told["fill"].startswith(f"▁ few tokens  █ all {page} tokens  ◦ 48 cached")
    assert told["age"].startswith("█ used in this step  ▃ not for 256 steps  · ")
    assert told["refs"].startswith("1 held once  2 shared by 2  ◦ 48 cached")
    assert told["state"].startswith("█ full attention  ▓ window of ")


def test_a_pool_of_one_kind_does_not_call_its_blocks_full() -> None:
    rig = make_rig(host_blocks=0, hybrid=False, window=None)
    rig.add("a", prompt(0, 20), 4)
    rig.step()
    rows = compose(rig.state, Chrome(model="tiny"), DARK, 120, 36).rows
    assert "A 2 owned" in screen_text(rows)


def test_a_pause_does_not_change_what_limited_a_plan() -> None:
    for engine in ("running", "held"):
        where = scene(engine=engine)
        assert where.picture.waiting and limits.idle_reason(where, ()) == "nobody waits"


def test_no_time_is_told_before_there_is_any() -> None:
    for seconds, told in ((0.0, "starting"), (0.05, "starting"), (0.1, f"starting, {sentences.seconds(0.1)} so far")):
        chrome = Chrome(model="tiny", engine="loading", loading=Loading("starting", seconds))
        text = screen_text(compose(None, chrome, DARK, 80, 24).rows)
        assert told in [line.strip() for line in text.splitlines()]


def test_the_map_draws_every_block_once() -> None:
    where = scene()
    assert sorted(owner_order(where.picture)) == list(range(1, 305))
    assert sum(class_counts(where).values()) == 304
    panel = compose(rush().state, busy_chrome(), DARK, 120, 36)
    assert sorted(h.value for h in panel.hits if h.kind == "block") == list(range(1, 305))


def test_letters_on_the_map_belong_to_the_owners() -> None:
    panel = compose(rush().state, replace(busy_chrome(), map_order="physical"), DARK, 120, 36)
    picture = rush().state.picture
    for hit in (h for h in panel.hits if h.kind == "block"):
        block, glyph = picture.blocks[int(hit.value)], row_text(panel.rows[hit.y])[hit.x0]
        if block.state == "cached":
            assert glyph == "◦"
        elif hit.value in picture.moves.back_blocks:
            assert glyph == "▲"
        elif len(block.owners) == 1:
            name = rush().state.label(block.owners[0][0])
            assert glyph == (name.lower() if picture.is_window(block.group) else name)


@pytest.mark.parametrize("num_blocks", [1, 30, 384, 2000, 100_000])
@pytest.mark.parametrize(("width", "rows"), [(38, 2), (69, 6), (100, 8), (200, 40)])
def test_a_pool_of_any_size_gets_cells(num_blocks: int, width: int, rows: int) -> None:
    for gutter in (False, True):
        plan = shape(num_blocks, width, rows, gutter=gutter, tiles=True)
        assert plan.columns * plan.rows * plan.per_cell >= num_blocks
        assert plan.rows <= rows and plan.gutter + plan.columns * plan.tile <= width


def test_the_batch_bar_gives_each_token_a_cell() -> None:
    panel = compose(rush().state, busy_chrome(), DARK, 120, 36)
    ran = row_text(panel.rows[3])
    assert ran.startswith(" ran  355 CHMNOPR Q  recompute 76 tokens")
    cells = {}
    for hit in panel.hits:
        if hit.y == 3 and hit.kind == "request":
            cells[hit.value] = hit.x1 - hit.x0
    record = rush().state.picture.record
    assert record is not None
    assert cells == {part.seq: part.query for part in record.slices}
    assert "13 unused" in ran and ran.rstrip().endswith("83/96")


def test_a_step_that_was_not_planned_says_so() -> None:
    rig = make_rig()
    rig.add("a", prompt(1, 40), 10)
    rig.step()
    text = screen_text(compose(rig.state, Chrome(), DARK, 120, 36).rows)
    assert "next   2 --  not planned yet" in text


def test_the_margin_agrees_with_the_scheduler() -> None:
    settings = rush().scheduler.settings
    for share in (0.0, 0.05, 0.1, 0.15, 0.3333, 1.0):
        for blocks in (1, 7, 100, 304, 384):
            assert margin_blocks(share, blocks) == engine_margin(replace(settings, safety_margin=share), blocks)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_becomes_a_sentence_with_its_numbers(verdict: Verdict) -> None:
    where = scene()
    waiting = verdict in sentences.WAITS
    key = where.picture.waiting[1] if waiting else where.picture.running[0].key
    story = where.state.stories[key]
    live = where.picture.sequences[key]
    old, old_story = live.decision, list(story.events)
    decision = Decision(key, verdict, 0 if verdict is Verdict.WAIT_ORDER else 41, 53)
    try:
        live.decision = decision
        where = replace(where, preview=PlanPreview((), (decision,), "", 0))
        found = sentences.why(where, story)
    finally:
        live.decision, story.events[:] = old, old_story
    assert 1 <= len(found) <= 6 and all(found)
    shown = choose(found, 200)
    if verdict in (
        Verdict.WAIT_BLOCKS,
        Verdict.WAIT_ROWS,
        Verdict.WAIT_MARGIN,
        Verdict.WAIT_TOKENS,
        Verdict.WAIT_PREFILL,
    ):
        assert "41" in shown and "53" in shown
    if verdict is Verdict.WAIT_ORDER:
        assert "behind A" in shown and "53" in shown
    for width in range(8, 90):
        assert width_of(choose(found, width)) <= width


def test_why_is_always_filled() -> None:
    for rig in (rush(), large_pool()):
        for step in range(1, rig.state.step + 1, 9):
            where = Scene.of(rig.state, Chrome(past=step if step < rig.state.step else None), DARK)
            for line in lines(where):
                assert choose(sentences.why(where, line.story), 62).strip()


def test_attention_comes_first_and_the_queue_in_its_order() -> None:
    order = lines(scene())
    states = [line.state for line in order]
    assert states[0] == "on_cpu" and states[1:7] == ["waiting"] * 6
    keys = [line.story.key for line in order[:7]]
    assert keys == list(rush().state.picture.waiting)
    assert states[-1] in ("finished", "cancelled")


@pytest.mark.parametrize("order", ORDERS)
def test_the_selected_row_stays_in_sight(order: str) -> None:
    for key in rush().state.stories:
        chrome = replace(busy_chrome(), selected=key, order=order)
        panel = compose(rush().state, chrome, DARK, 80, 24)
        assert any(row_text(row).startswith("▸") for row in panel.rows)


def test_the_filter_finds_ids_and_prompts_and_says_when_it_finds_nothing() -> None:
    assert [line.story.label for line in lines(scene(filter="req-07"))] == ["H"]
    text = screen_text(compose(rush().state, replace(busy_chrome(), filter="zebra"), DARK, 120, 36).rows)
    assert "nothing matches the filter" in text and "/ zebra" in text


def test_unknown_numbers_are_dashes() -> None:
    rig = make_rig()
    rig.add("a", prompt(1, 200), 10)
    rig.step()
    row = next(row_text(r) for r in compose(rig.state, Chrome(), DARK, 120, 36).rows if "» prefill" in row_text(r))
    assert "96/200      0/10" in row and "--   --" in row
    assert "-- tok/s" in screen_text(compose(rig.state, Chrome(), DARK, 120, 36).rows)
    durations = (None, 0.033, 0.84, 2.23, 12.34, 302, 1e9)
    assert [sentences.brief(v) for v in durations] == ["--", "33ms", "0.8s", "2.2s", "12s", "5m", "999m"]
    assert sentences.seconds(None) == sentences.seconds(-1.0) == "--"
    assert [sentences.seconds(v) for v in (0.0004, 0.033, 0.84, 12.34, 302, 7200)] == [
        "0.4ms", "33ms", "0.84s", "12.3s", "5m02", "2.0h",
    ]  # fmt: skip


def test_the_past_is_marked_and_only_changes_are_bright() -> None:
    panel = compose(rush().state, replace(busy_chrome(), past=316, mark=300), DARK, 120, 36)
    text = screen_text(panel.rows)
    assert "PAST −39" in text and "by owner: 25 changed" in text
    amber = DARK.roles["amber_on"]
    assert any(s.style and s.style.bgcolor and s.style.bgcolor.name == amber for s in panel.rows[0])


def test_columns_of_the_timeline_hold_the_newest_step() -> None:
    where = scene()
    for width in range(8, 200):
        cols = columns(where, width)
        assert cols.x(355) < width and 355 in cols.steps(cols.x(355))
        assert cols.first == 1 or cols.first % cols.each == 0
        assert cols.first - 1 <= 0.1 * 355 + cols.each


def test_hostile_names_and_texts_do_not_reach_the_screen() -> None:
    rig = make_rig()
    rig.add("id\x1b[31m\u202e", prompt(1, 20), 10)
    rig.add("x\x1b]0;t\x07" * 3, prompt(1, 20_000), 10)
    for _ in range(4):
        rig.step()
    story = rig.state.stories[0]
    story.pieces[0] = "\n東京" * 40
    story.wraps.clear()
    for mode in range(1, 7):
        panel = compose(rig.state, Chrome(mode=mode, selected=0, filter=""), DARK, 120, 36)
        text = screen_text(panel.rows)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
        assert {row_width(row) for row in panel.rows} == {120}


def test_the_explanation_tells_checks_and_dry_runs() -> None:
    where = scene()
    key = where.picture.waiting[0]
    panel = explain(where, explain_of(rush().scheduler, key), 104)
    text = screen_text(panel.rows)
    assert "Why is S on the CPU?" in text
    assert "✗ margin kept?" in text and "✓ enough blocks?" in text
    assert "just wait" in text and "safety_margin 0.15 → " in text
    assert {row_width(row) for row in panel.rows} == {104}
    for width in range(40, 120, 7):
        for other in (*where.picture.waiting[:3], where.picture.running[0].key):
            rows = explain(where, explain_of(rush().scheduler, other), width).rows
            assert {row_width(row) for row in rows} == {width}


def test_svg_keeps_cells_and_escapes() -> None:
    panel = compose(rush().state, busy_chrome(), DARK, 80, 24)
    picture = svg(panel.rows, DARK, "a <b> & c")
    assert "<title>a &lt;b&gt; &amp; c</title>" in picture
    assert "█" not in picture and "▁" not in picture, "block glyphs are rectangles"
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", ""), "nothing is fetched"
    assert picture.count('class="c') > 500


def test_the_filter_finds_what_the_rows_say() -> None:
    from cbtui.view.requests import lines

    ended = lines(scene(filter="max tokens"))
    assert ended and {line.state for line in ended} == {"finished"}
    assert "decode" in {line.state for line in lines(scene(filter="DECODE"))}
    assert lines(scene(filter="no such words")) == []

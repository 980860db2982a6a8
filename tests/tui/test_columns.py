"""The figures of the table of requests: none runs into its neighbour, and none is cut."""

from dataclasses import replace

import pytest

from cbtui.theme import theme_named
from cbtui.view.cells import row_text
from cbtui.view.chrome import Chrome
from cbtui.view.columns import in_short, why_column
from cbtui.view.frame import compose
from cbtui.view.requests import lines, requests
from cbtui.view.scene import Scene
from tests.tui.scripted import Rig, make_rig, prompt

DARK = theme_named("dark")
LENGTHS = (7, 280, 1500, 9999, 16_000, 131_072)
WIDTHS = (40, 59, 60, 80, 96, 97, 120, 200)


def crowd() -> Rig:
    """Prompts of one to six digits in every state of a prefill, and outputs with limits of as many."""
    rig = make_rig(num_blocks=40_000, host_blocks=0, max_batch_tokens=1161, max_requests_per_batch=4)
    for place, tokens in enumerate(LENGTHS):
        rig.add(f"r{place}", prompt(place, tokens), (3, 999, 1000, 2048, 16_000, 100_000)[place])
    return rig


def rows(rig: Rig, width: int) -> dict[str, list[str]]:
    """The words of every row before its reason, by label."""
    scene = Scene.of(rig.state, Chrome(), DARK)
    found = {}
    for row in requests(scene, width, 12).rows[2:]:
        text = row_text(row)
        if words := text[: why_column(width)].replace("to CPU", "to_CPU").split():
            found[words[0]] = words
    return found


def allowed(part: int, whole: int | None) -> set[str]:
    if whole is None:
        return {str(part), in_short(part)}
    return {f"{a}/{b}" for a in (str(part), in_short(part)) for b in (str(whole), in_short(whole))}


@pytest.mark.parametrize("width", WIDTHS)
def test_every_figure_stands_alone_and_is_whole(width: int) -> None:
    rig, seen = crowd(), set()
    for step in range(60):
        rig.step()
        if step == 18:
            rig.cancel("r3")
            rig.cancel("r4")
        scene = Scene.of(rig.state, Chrome(), DARK)
        states = {line.story.label: line for line in lines(scene)}
        for label, words in rows(rig, width).items():
            story, state = states[label].story, states[label].state
            live = scene.live(story.key)
            assert words[2] == state, words
            done = allowed(story.output_at(scene.step), story.limit if width >= 60 else None)
            if width < 60:
                assert words[3] in done and len(words) == 4, words
                continue
            total = story.prompt_tokens
            assert total is not None and len(words) == (9 if width >= 96 else 6), words
            part = live.change.computed if live is not None and not live.output else total
            assert words[3] in allowed(total, None) | (allowed(part, total) if 0 < part < total else set()), words
            if state == "prefill" and 0 < part < total:
                assert "/" in words[3], words
            assert words[4] in done, words
            seen.add((state, len(str(total))))
    if width >= 60:
        assert {("prefill", digits) for digits in (4, 5, 6)} <= seen
        assert {("waiting", digits) for digits in (4, 5, 6)} <= seen
        assert ("cancelled", 4) in seen and ("cancelled", 5) in seen


def test_a_prompt_of_three_digits_does_not_touch_the_state() -> None:
    rig = make_rig(max_batch_tokens=116)
    rig.add("a", prompt(0, 280), 10)
    rig.step()
    for width in (60, 80, 120):
        row = row_text(requests(Scene.of(rig.state, Chrome(), DARK), width, 8).rows[2])
        assert "prefill   116/280      0/10" in row


@pytest.mark.parametrize("width", [80, 120])
def test_blocks_of_two_kinds_are_not_cut(width: int) -> None:
    """Where the two counts have no room, their sum stands there."""
    rig = make_rig(num_blocks=8000, host_blocks=0, window=2000, max_batch_tokens=16_384)
    for place, tokens in enumerate((2000, 12_345)):
        rig.add(f"r{place}", prompt(place, tokens), 10)
    rig.step()
    assert rows(rig, width)["A"][5] == "125+125"
    assert rows(rig, width)["B"][5] in ("772+772", "772+126", "897", "1544")


@pytest.mark.parametrize("width", WIDTHS)
def test_names_stand_over_their_figures(width: int) -> None:
    rig = crowd()
    for _ in range(30):
        rig.step()
    scene = Scene.of(rig.state, replace(Chrome(), selected=0), DARK)
    _, names, *body = [row_text(row) for row in requests(scene, width, 12).rows]
    assert names.index("why") == why_column(width)
    for name in ("prompt", "done", "blocks", "hit%", "ttft", "itl"):
        if name in names:
            end = names.index(name) + len(name)
            assert all(row[end - 1] != " " and row[end] == " " for row in body if row[: end].strip()), name


def test_counts_in_short_round_down_and_stay_short() -> None:
    assert [in_short(n) for n in (0, 999, 1000, 1999, 2048, 9999, 16_384, 999_999, 1_000_000, 1_250_000)] == [
        "0", "999", "1k", "1.9k", "2k", "9.9k", "16k", "999k", "1M", "1.2M",
    ]  # fmt: skip
    assert all(len(in_short(n)) <= 4 for n in range(0, 3_000_000, 997))


def test_the_whole_screen_shows_long_prompts_apart() -> None:
    rig = crowd()
    for _ in range(14):
        rig.step()
    for size in ((80, 24), (120, 36), (200, 60)):
        text = [row_text(row) for row in compose(rig.state, Chrome(), DARK, *size).rows]
        assert any("prefill  4438/16k   0/16000 " in row for row in text), text
        assert any("waiting    131072  0/100000 " in row for row in text), text


@pytest.mark.parametrize("budget", [96, 1161, 16_384, 131_072])
def test_a_step_that_is_full_to_the_last_token_has_room_for_its_figures(budget: int) -> None:
    rig = make_rig(num_blocks=40_000, host_blocks=0, max_batch_tokens=budget)
    rig.add("a", prompt(0, 2 * budget), 10)
    rig.step(preview=True)
    for width in (40, 60, 80, 99, 100, 120, 149, 150, 200):
        text = [row_text(row) for row in compose(rig.state, Chrome(), DARK, width, 36).rows]
        assert sum(f"{budget}/{budget}" in row for row in text) >= 2, width

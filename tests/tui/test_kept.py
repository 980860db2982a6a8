"""Shortcuts of frames and records lead to the same as going all the way."""

import random
from typing import Any

from cbtui.model import MonitorState
from cbtui.picture import Picture
from cbtui.theme import theme_named
from cbtui.view.chrome import MAP_VIEWS, Chrome
from cbtui.view.frame import compose
from cbtui.view.scene import Scene
from cbtui.view.timeline import columns, peaks
from engine.core.packed import Grown
from tests.tui.scripted import Rig, rush_hour

SIZES = ((200, 60), (120, 36), (80, 24))


def test_frames_with_what_was_kept_are_those_drawn_anew() -> None:
    """Over a busy scene: requests come and go, blocks are shared, moved and given back, people look around."""
    draw = random.Random(11)
    themes = [theme_named("dark"), theme_named("light")]
    looks: list[tuple[Any, Any, Chrome]] = [(SIZES[0], themes[0], Chrome())]
    compared = 0

    def look(rig: Rig) -> None:
        nonlocal compared
        state = rig.state
        if draw.random() < 0.7:
            return
        if draw.random() < 0.3:
            looks.append((draw.choice(SIZES), draw.choice(themes), _chrome(draw, rig)))
        (width, height), theme, chrome = looks[-1]
        shown = compose(state, chrome, theme, width, height)
        state.memo.clear()
        anew = compose(state, chrome, theme, width, height)
        assert shown.rows == anew.rows
        assert shown.hits == anew.hits
        assert +state.picture.kinds == Picture(state.picture.keyframe()).kinds
        compared += 1

    rush_hour(on_step=look)
    assert compared > 60 and len(looks) > 10


def _chrome(draw: random.Random, rig: Rig) -> Chrome:
    """Something a person may look at."""
    state = rig.state
    past = draw.randint(state.oldest, state.step) if draw.random() < 0.2 else None
    return Chrome(
        past=past,
        mode=draw.choice((1, 1, 1, 2, 3, 4, 5)),
        selected=draw.choice([None, *state.stories]),
        block=draw.choice((None, None, 7)),
        map_view=draw.choice(MAP_VIEWS),
        map_order=draw.choice(("auto", "owner", "physical")),
        mark=draw.choice((None, state.oldest)),
    )


def test_cells_of_the_graphs_are_taken_over_only_when_they_are_full() -> None:
    draw, theme = random.Random(5), theme_named("dark")

    def look(rig: Rig) -> None:
        state = rig.state
        if draw.random() < 0.6:
            return
        past = draw.randint(state.oldest, state.step) if draw.random() < 0.3 else None
        scene = Scene.of(state, Chrome(past=past), theme)
        cols = columns(scene, draw.choice((20, 60)), draw.choice((0, 0, 4)))
        name = draw.choice(("tokens", "used", "queue"))
        values, first = state.series[name], state.series.first
        anew = [
            max((values[step - first] for step in cols.steps(x) if 0 <= step - first < len(values)), default=-1)
            for x in range(cols.used)
        ]
        assert peaks(scene, cols, name)[:-1] == anew[:-1]

    rush_hour(on_step=look)


def test_many_records_at_once_leave_the_same_as_one_after_the_other() -> None:
    """Also where a keyframe of the history falls between them."""
    draw, rig = random.Random(3), rush_hour()
    state = MonitorState(rig.start, text=rig.words)
    records = list(rig.records)
    while records:
        size = draw.choice((0, 1, 2, 5, 40))
        state.extend(records[:size])
        del records[:size]
    assert state.picture.keyframe() == rig.state.picture.keyframe()
    assert state.stories.keys() == rig.state.stories.keys()
    for key, story in rig.state.stories.items():
        for name in ("change", "decision", "phases", "events", "tokens", "token_steps", "ended", "peak_blocks"):
            assert getattr(state.stories[key], name) == getattr(story, name), (key, name)
    assert (state.marks, state.log) == (rig.state.marks, rig.state.log)
    assert state.series == rig.state.series and state.lives == rig.state.lives
    assert sum(isinstance(record.slices, Grown) for record in rig.records) > 50, "many of them go on"
    for step in range(state.oldest, state.step, 7):
        assert state.at(step).keyframe() == rig.state.at(step).keyframe()

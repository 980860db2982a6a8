"""What the monitor shows of a model that is split over several processes."""

from dataclasses import replace

import pytest

from cbtui.theme import theme_named
from cbtui.view.cells import row_text
from cbtui.view.chrome import Chrome
from cbtui.view.config import config_page
from cbtui.view.figures import figures
from cbtui.view.hud import hud
from cbtui.view.scene import Scene
from engine.core.counters import RankWait
from tests.tui.scripted import make_rig, prompt

WAITS = (RankWait(0, 0.0004, 0.0106), RankWait(1, 0.0015, 0.0095), RankWait(2, 0.0012, -1.0))


def split_scene(waits=WAITS):
    rig = make_rig()
    rig.add("a", prompt(1, 20), 30)
    apply = rig.state.apply
    rig.state.apply = lambda record: apply(replace(record, ranks=waits, plan_bytes=173 if waits else 0))
    for _ in range(6):
        rig.step()
    return Scene.of(rig.state, Chrome(engine="running"), theme_named("dark"))


def line(scene, width):
    return row_text(hud(scene, width).rows[0])


def test_the_first_line_tells_how_many_and_the_longest_wait():
    assert "ranks 3, wait 11ms" in line(split_scene(), 200)
    assert "ranks" not in line(split_scene(()), 200)


@pytest.mark.parametrize("width", [40, 80, 120, 149])
def test_a_narrow_line_leaves_them_out(width):
    assert "ranks" not in line(split_scene(), width)


def test_the_figure_says_what_each_rank_waited_for():
    figure = next(figure for figure in figures(split_scene()) if figure.name == "ranks")
    assert figure.sums == (
        "rank 0 waited 0.4ms for the plan + 11ms for tensors",
        "rank 1 waited 2ms for the plan + 10ms for tensors",
        "rank 2 waited 1ms for the plan, for tensors not known",
        "the plan of step 6 had 173 bytes",
    )
    assert not any(figure.name == "ranks" for figure in figures(split_scene(())))


def test_the_config_page_tells_them_too():
    text = "\n".join(row_text(row) for row in config_page(split_scene(), 180, 60).rows)
    assert "ranks" in text and "rank 1 waited" in text

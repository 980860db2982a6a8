"""Drawing in proportion to what it costs."""

from cbtui.pace import LONGEST, Pace
from tests.tui.stage import playing


class Machine:
    """A clock and the processor time of a thread."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0

    def pace(self, share: float) -> Pace:
        return Pace(share, lambda: self.now, lambda: self.spent)


def frames(cost: float, share: float, other: float = 0.0, seconds: float = 10.0, tick: float = 1 / 16) -> int:
    """Frames drawn when each takes ``cost`` seconds, and each tick ``other`` seconds before it comes to drawing."""
    machine, drawn = Machine(), 0
    pace = machine.pace(share)
    while machine.now < seconds:
        pace.settle()
        machine.spent += other
        if pace.ready:
            pace.begin()
            machine.spent += cost
            drawn += 1
        machine.now += tick
    return drawn


def test_cheap_frames_come_with_every_tick_and_dear_ones_pay_themselves_off() -> None:
    assert frames(0.001, 0.03) == 160
    for cost in (0.005, 0.01, 0.02):
        assert 0.02 <= frames(cost, 0.03) * cost / 10 <= 0.031
    assert frames(10.0, 0.03) == 10 / LONGEST, "even then the screen follows"


def test_only_drawing_counts() -> None:
    assert frames(0.005, 0.03, other=0.05) == frames(0.005, 0.03)


async def test_a_plan_to_come_is_asked_for_while_drawing_waits(tmp_path) -> None:
    """Else the record that is drawn in the end would not say what the step after it would do."""
    async with playing(tmp_path) as play:
        machine = Machine()
        pace = play.app.pace = machine.pace(0.03)
        pace.begin()
        machine.spent += 1.0
        play.app.tick()
        assert not pace.ready
        play.manager.preview_wanted = False
        play.app.tick()
        assert play.manager.preview_wanted

"""Drawing in proportion to what it costs."""

from cbtui.app import AHEAD
from cbtui.pace import LONGEST, MOMENT, ROOMY, TIGHT, WINDOW, Pace, Room
from tests.tui.stage import playing


class Machine:
    """A clock and the processor time of a thread."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0

    def pace(self, share: float) -> Pace:
        return Pace(lambda: share, lambda: self.now, lambda: self.spent)


def frames(cost: float, share: float, other: float = 0.0, seconds: float = 10.0, tick: float = 1 / 16) -> int:
    """Frames drawn when each takes ``cost`` seconds, and each tick ``other`` seconds before it comes to drawing."""
    machine, drawn = Machine(), 0
    pace = machine.pace(share)
    while machine.now < seconds:
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


def test_what_else_the_thread_does_counts_too() -> None:
    tick, cost, other = 1 / 16, 0.005, 0.001
    drawn = frames(cost, 0.03, other, tick=tick)
    assert drawn < frames(cost, 0.03)
    assert 0.02 <= (drawn * cost + other / tick * 10) / 10 <= 0.031, "all of it stays within the share"
    assert 10 / LONGEST - frames(cost, 0.03, other=0.05) in (0, 1), "nothing is left, and the screen follows"


def test_soon_looks_ahead() -> None:
    machine = Machine()
    pace = machine.pace(0.1)
    pace.begin()
    machine.spent += 0.05
    assert not pace.ready and not pace.soon(0.4) and pace.soon(0.6)
    machine.now += 0.2
    assert not pace.soon(0.2) and pace.soon(0.4)
    machine.spent += 1.0
    assert not pace.soon(0.7) and pace.soon(0.9), "the longest time is not exceeded"


def shares(cores: int, others: float) -> list[float]:
    """The share in each window while the rest of the process keeps ``others`` cores busy; drawing takes time too."""
    now = [0.0]
    room = Room(
        cores, lambda: now[0], whole=lambda: (others + 0.4) * now[0], own=lambda: 0.4 * now[0],
        idle=lambda: (cores - others) * now[0],
    )  # fmt: skip
    found = []
    for _ in range(4):
        now[0] += WINDOW
        found.append(room())
    return found


def test_a_model_on_all_cores_leaves_little_and_a_paced_one_much() -> None:
    assert shares(2, 1.9) == [TIGHT] * 4
    assert shares(2, 0.1) == [ROOMY] * 4
    assert shares(2, 1.0) == [ROOMY] * 4, "one thread on two cores"
    assert shares(8, 6.8) == [ROOMY] * 4, "one core left to the screen"
    assert shares(1, 0.9) == [TIGHT] * 4


def test_the_share_follows_what_the_engine_does() -> None:
    now, spent = [0.0], [0.0]
    room = Room(2, lambda: now[0], whole=lambda: spent[0], own=lambda: 0.0, idle=lambda: 2 * now[0] - spent[0])
    found = []
    for busy in (2.0, 2.0, 0.2, 2.0):
        for _ in range(10):
            now[0] += WINDOW / 8
            spent[0] += busy * WINDOW / 8
        found.append(room())
    assert found == [TIGHT, TIGHT, ROOMY, TIGHT]


def test_a_core_is_found_taken_sooner_than_free() -> None:
    now, spent = [0.0], [0.0]
    room = Room(2, lambda: now[0], whole=lambda: spent[0], own=lambda: 0.0, idle=lambda: 2 * now[0] - spent[0])

    def after(seconds: float, busy: float) -> float:
        seconds *= 1.01  # so that sums of them do not fall short by a rounding
        now[0] += seconds
        spent[0] += busy * seconds
        return room()

    assert after(MOMENT, 0.0) == ROOMY and after(MOMENT, 2.0) == TIGHT
    assert after(MOMENT, 0.0) == TIGHT and after(WINDOW - MOMENT, 0.0) == ROOMY
    assert after(MOMENT, 2.0) == TIGHT and after(MOMENT, 0.0) == TIGHT
    assert after(WINDOW - MOMENT, 2.0) == ROOMY, "half of the time both cores were free"
    assert after(MOMENT / 2, 2.0) == ROOMY, "that is too short to tell"


def test_a_core_that_another_program_takes_is_not_free() -> None:
    def share(others: float, idle: float) -> float:
        now = [0.0]
        room = Room(2, lambda: now[0], whole=lambda: others * now[0], own=lambda: 0.0, idle=lambda: idle * now[0])
        now[0] += WINDOW
        return room()

    assert share(1.0, idle=0.9) == ROOMY and share(1.0, idle=0.1) == TIGHT
    assert share(0.2, idle=0.1) == ROOMY, "a paced engine loses nothing"


async def test_a_plan_to_come_is_asked_for_before_it_is_drawn_and_for_no_other_step(tmp_path) -> None:
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
        assert not play.manager.preview_wanted
        machine.now += LONGEST - AHEAD
        play.app.tick()
        assert not pace.ready and play.manager.preview_wanted

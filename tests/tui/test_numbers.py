"""Figures that stand beside each other agree: steps of header and batch, rates, what is usable, what S and - do."""

import pytest

from cbtui import sentences
from cbtui.theme import theme_named
from cbtui.view.batch import batch
from cbtui.view.cells import row_width
from cbtui.view.chrome import Chrome
from cbtui.view.figures import figures
from cbtui.view.figures import number as rate_words
from cbtui.view.host import host
from cbtui.view.scene import Scene
from engine.core.observe import CommandAck, Verdict
from engine.core.request import FinishReason
from tests.tui.scripted import make_rig, prompt
from tests.tui.stage import Play, playing

LOOK = theme_named("dark")


def lines(panel):
    return ["".join(segment.text for segment in row) for row in panel.rows]


def line_with(play, word):
    return next(line for line in play.text.splitlines() if word in line)


async def stop_hard(play: Play) -> None:
    """A request runs for three steps and is stopped with its engine."""
    await play.add(1, tokens=30)
    await play.tick(3)
    play.app.session.hard_stop()
    await play.tick()


class TestSteps:
    async def test_commands_alone_are_told_beside_the_step_that_ran_last(self, tmp_path):
        async with playing(tmp_path) as play:
            await play.add(2, tokens=30)
            await play.tick(3)
            before = play.app.session.state.step
            assert "commands only" not in line_with(play, "BATCH")
            play.manager.hold()
            play.manager.add_request([1, 2, 3])
            await play.tick()
            assert f"step {before} ran" in line_with(play, "BATCH")
            assert "then 1 step of commands only" in line_with(play, "BATCH")
            assert f"step {before + 1}" in play.text.splitlines()[0]
            assert line_with(play, " next ").split()[1] == str(before + 2)

    async def test_before_anything_was_computed_no_plan_is_told(self, tmp_path):
        """Requests came while it is held: they wait, and no step has left any of them out."""
        async with playing(tmp_path) as play:
            await play.press("space")
            await play.tick()
            play.manager.add_request([1, 2, 3])
            await play.tick()
            assert "wait 1" in play.text.splitlines()[0]
            assert "nothing was computed yet" in line_with(play, "BATCH") and "limit" not in line_with(play, "BATCH")
            ran, planned = (next(line for line in play.text.splitlines() if line.startswith(f" {name} "))
                            for name in ("ran", "next"))  # fmt: skip
            assert "nothing, commands only" in ran and "waits" not in ran
            assert "A" in planned and planned.split()[1] == str(play.app.session.state.step + 1)
            await play.press("full_stop")
            await play.tick(1)
            assert "ran 3 of" in line_with(play, "BATCH")

    async def test_the_log_says_who_came_in_a_step_of_commands(self, tmp_path):
        async with playing(tmp_path) as play:
            play.manager.hold()
            await play.tick()
            assert "nothing to compute" in play.text
            play.manager.add_request([1, 2, 3])
            play.manager.add_request([1, 2, 3])
            await play.tick()
            assert "A B queued" in play.text and "nothing to compute" not in play.text

    async def test_a_stopped_engine_plans_nothing_and_waits_for_nobody(self, tmp_path):
        async with playing(tmp_path) as play:
            await stop_hard(play)
            assert play.app.chrome.engine == "stopped"
            assert "the engine is stopped: S starts it again" in line_with(play, " next ")

    async def test_in_the_past_nothing_is_planned_for_after_a_hard_stop(self, tmp_path):
        """Each record tells what would come next; after the last step that ran none of it came."""
        async with playing(tmp_path) as play:
            play.app.want_preview = True
            await stop_hard(play)
            ended = play.app.session.state.step
            for back, words in ((1, "nothing ran after this step: the engine was stopped"), (2, f"{ended - 1} A")):
                await play.press("left_square_bracket")
                assert play.app.chrome.past == ended - back
                assert words in line_with(play, " next "), back
            record = play.app.session.state.history.record(ended - 1)
            assert record.next is not None and record.next.slices, "a dry run was kept, and is not shown"
            await play.press("end")
            assert "the engine is stopped: S starts it again" in line_with(play, " next ")

    def test_the_past_says_so_too_when_the_engine_failed(self):
        rig = make_rig(host_blocks=0)
        rig.add("a", prompt(0, 20), 9)
        for _ in range(3):
            rig.step(preview=True)
        rig.scheduler.fail_all(FinishReason.FAILED, "no memory", rig.now)
        rig.state.apply(rig.scheduler.take_events().record(rig.now))
        told = [lines(batch(Scene.of(rig.state, Chrome(past=step), LOOK), 120, 4))[-1] for step in (2, 3)]
        assert "next   3 A" in told[0] and "nothing ran after this step: the engine failed" in told[1]

    def test_a_step_of_commands_alone_is_no_batch_with_everything_unused(self):
        rig = make_rig(host_blocks=0)
        rig.add("a", prompt(0, 20), 9)
        rig.step()
        rig.state.apply(rig.scheduler.take_events().record(rig.now))
        row = lines(batch(Scene.of(rig.state, Chrome(past=1), LOOK), 120, 4))[-1]
        assert " next   2 --" in row and "nothing to compute, commands only" in row and "unused" not in row

    async def test_an_engine_that_began_anew_says_since_when(self, tmp_path):
        async with playing(tmp_path) as play:
            await stop_hard(play)
            await play.press("S")
            await play.tick()
            step = play.app.session.state.step
            assert f"step {step}" in play.text.splitlines()[0]
            assert f"the engine began anew after step {step}: no step has run since" in play.text

    async def test_a_start_is_told_and_in_the_past_where_the_present_is(self, tmp_path):
        async with playing(tmp_path) as play:
            await stop_hard(play)
            await play.press("left_square_bracket")
            past = play.app.chrome.past
            await play.press("S")
            await play.tick()
            assert play.notice == f"the engine starts again; step {past} is shown, end goes live"


class TestBudget:
    def test_what_comes_next_is_measured_with_the_budget_it_will_have(self):
        """Held, the budget is changed in steps of commands alone; then a step runs, and its past says the same."""
        rig = make_rig(host_blocks=0, max_batch_tokens=64)
        for number in range(6):
            rig.add(f"r{number}", prompt(number, 70), 30)
        for _ in range(4):
            rig.step(preview=True)
        for budget in (16, 40, 20, 300):
            rig.configure(max_batch_tokens=budget)
            rig.state.apply(rig.scheduler.take_events().record(rig.now, next=rig.scheduler.preview()))
            for width in (80, 120, 200):
                row = lines(batch(Scene.of(rig.state, Chrome(), LOOK), width, 4))[-1]
                assert f"/{budget}" in row and len(row) == width
                assert "unused" in row or f"{budget}/{budget}" in row.replace(" ", "")
        before = rig.step().step
        rig.configure(max_batch_tokens=48)
        rig.step()
        assert "/48" in lines(batch(Scene.of(rig.state, Chrome(past=before), LOOK), 120, 4))[-1]


def rig_of_one():
    """One request runs for sixty steps."""
    rig = make_rig(host_blocks=0)
    rig.add("a", prompt(0, 20), 60)
    return rig


def hold(rig):
    """A record of a pause alone."""
    rig.acks.append(CommandAck(0, "pause", "", True))
    rig.state.apply(rig.scheduler.take_events().record(rig.now, commands=tuple(rig.acks)))
    rig.acks.clear()


class TestPace:
    async def test_another_rate_while_paused_is_told_at_once(self, tmp_path):
        async with playing(tmp_path) as play:
            await play.press("space")
            await play.tick()
            await play.press("minus")
            await play.tick()
            assert play.notice == "at most 50 steps per second when the engine goes on"

    def test_a_pause_and_commands_do_not_make_the_rate_greater(self):
        """Four steps begin in a second; two of them are followed by a pause as soon as they are done."""
        rig = rig_of_one()
        for number in range(30):
            began = rig.now
            rig.step()
            if number in (20, 26):
                hold(rig)
                rig.now += 1.0
                rig.acks.append(CommandAck(0, "resume", "", True))
            else:
                rig.now = began + 0.25
            steps, _ = rig.state.rates()
            assert steps is None or steps <= 4.0 + 1e-9, number
        stretch = rig.state.stretch()
        assert stretch.steps / stretch.seconds == pytest.approx(4.0)

    def test_right_after_a_hold_nothing_is_measured_yet(self):
        """Steps that take 3 ms, at most five per second, between two holds."""
        rig = rig_of_one()
        for number in range(24):
            began = rig.now
            if number in (10, 11, 12, 16):
                rig.now += 9.0
                began = rig.now
                rig.acks.append(CommandAck(0, "resume", "", True))
            rig.step()
            rig.now = began + 0.2
            if number in (9, 10, 11, 15):
                hold(rig)
            steps, tokens = rig.state.rates(limit=5.0)
            measured = 3 <= number < 10 or number in (15, 19, 20, 21, 22, 23)
            assert (steps is not None) == measured == (tokens is not None), number
            words = " ".join(line for figure in figures(Scene.of(rig.state, Chrome(), LOOK)) for line in figure.sums)
            assert ("fewer than 16 steps in less than 0.5 s" in words) != measured
            assert steps is None or steps == pytest.approx(5.0)

    def test_many_steps_in_a_short_time_are_enough(self):
        rig = rig_of_one()
        for number in range(30):
            began = rig.now
            rig.step()
            rig.now = began + 0.002
            steps, _ = rig.state.rates()
            assert (steps is None) == (number < 16), number
        assert steps == pytest.approx(500)

    def test_a_step_that_began_late_does_not_make_the_rate_greater(self):
        rig = rig_of_one()
        beat = rig.now
        for number in range(40):
            rig.now = beat + 0.1 * number + (0.02 if number % 7 == 0 else 0.0)
            rig.step()
            steps, tokens = rig.state.rates(limit=10.0)
            assert steps is None or steps <= 10.0 + 1e-9, number
            assert tokens is None or tokens <= 10.0 + 1e-9, number

    def test_another_pace_begins_a_measure_of_its_own(self):
        rig = rig_of_one()
        for number in range(30):
            began = rig.now
            if number == 20:
                rig.acks.append(CommandAck(0, "rate", "5", True))
            rig.step()
            rig.now = began + (0.051 if number < 19 else 0.2)
            steps, _ = rig.state.rates(limit=20.0 if number < 20 else 5.0)
            slow = number >= 20
            assert steps is None or steps == pytest.approx(5.0 if slow else 20.0, rel=0.02), number
            assert (steps is None) == (number < 10 or number in (20, 21, 22)), number
        past, _ = rig.state.rates(18, limit=5.0)
        assert past == pytest.approx(20.0, rel=0.02), "what was then is not measured with what is wanted now"

    def test_commands_alone_are_no_steps_per_second(self):
        rig = rig_of_one()
        for number in range(12):
            began = rig.now
            rig.step()
            if number % 2:
                rig.state.apply(rig.scheduler.take_events().record(began + 0.1))
            rig.now = began + 0.25
        steps, _ = rig.state.rates()
        assert steps == pytest.approx(4.0)


class TestUsable:
    def test_a_row_that_counts_otherwise_than_the_pool_says_so(self):
        """Two blocks are usable now; those who run take one of them in the next step."""
        rig = make_rig(hybrid=False, window=None, num_blocks=9, host_blocks=0, page_size=4, safety_margin=0.0)
        rig.add("a", prompt(0, 15), 12)
        rig.add("b", prompt(1, 12), 12)
        rig.step()
        rig.add("c", prompt(2, 16), 2)
        told = {True: 0, False: 0}
        for _ in range(8):
            rig.step(preview=True)
            scene = Scene.of(rig.state, Chrome(), LOOK)
            story = next((s for s in rig.state.stories.values() if s.request_id == "c"), None)
            decision = None if story is None else scene.decision(story)
            if decision is None or decision.verdict is not Verdict.WAIT_BLOCKS:
                continue
            words = sentences.why(scene, story)[0]
            differs = decision.b != scene.picture.usable
            assert (f"the others leave {decision.b}:" if differs else f"only {decision.b} usable:") in words
            told[differs] += 1
        assert all(told.values()), told

    def test_what_is_left_for_new_prompts_names_its_step(self):
        rig = make_rig(host_blocks=8)
        rig.add("a", prompt(0, 60), 5)
        rig.step()
        scene = Scene.of(rig.state, Chrome(), LOOK)
        assert "for new prompts after step 1: " in lines(host(scene, 100, 6))[-1]


def test_an_empty_batch_row_fits_the_smallest_screen():
    rig = make_rig(host_blocks=0)
    rig.add("a", prompt(0, 20), 3)
    rig.step()
    rig.state.apply(rig.scheduler.take_events().record(rig.now))
    scene = Scene.of(rig.state, Chrome(engine="stopped"), LOOK)
    for width in (40, 60, 80, 120, 200):
        assert all(row_width(row) == width for row in batch(scene, width, 4).rows)


def test_slow_rates_are_told_as_exactly_as_they_are_set():
    assert [rate_words(rate) for rate in (None, 0.0, 0.25, 0.5, 0.996, 1.0, 9.94, 12.3)] == [
        "--", "0.0", "0.25", "0.50", "1.0", "1.0", "9.9", "12",
    ]  # fmt: skip

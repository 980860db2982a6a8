"""The picture folds like the engine's own fold; the past comes back as it was; stories add up."""

import pytest

from cbtui.difference import difference
from cbtui.history import CHUNK_STEPS
from cbtui.letters import cell_letter, label
from cbtui.model import MonitorState
from cbtui.standing import state_of
from engine.core.fold import fold
from tests.tui.scripted import Rig, Words, make_rig, prompt, rush_hour


@pytest.fixture(scope="module")
def rush() -> Rig:
    return rush_hour()


def outputs(state: MonitorState) -> dict[int, tuple[int, ...]]:
    return {key: tuple(story.tokens) for key, story in state.stories.items()}


def same(ours, theirs) -> None:
    """Two keyframes say the same; the order of host entries means nothing."""
    assert ours.step == theirs.step
    assert ours.blocks == theirs.blocks
    assert ours.host == theirs.host
    assert ours.waiting == theirs.waiting
    assert ours.counters == theirs.counters
    assert dict(ours.settings) == dict(theirs.settings)
    assert set(ours.sequences) == set(theirs.sequences)
    for key, view in ours.sequences.items():
        other = theirs.sequences[key]
        assert (view.info, view.change, view.tables, view.output, view.decision) == (
            other.info, other.change, other.tables, other.output, other.decision,
        )  # fmt: skip
        assert sorted(view.host) == sorted(other.host)


def test_the_picture_is_the_engines_state_after_every_step() -> None:
    def compare(rig: Rig) -> None:
        same(rig.state.picture.keyframe(outputs(rig.state)), rig.keyframe())

    rig = rush_hour(260, on_step=compare)
    verdicts = {event.kind for story in rig.state.stories.values() for event in story.events}
    assert {"offload", "restore", "finished", "cancelled", "admit"} <= verdicts


def test_the_picture_folds_like_the_engines_fold(rush: Rig) -> None:
    folded = fold(rush.start, *rush.records)
    same(rush.state.picture.keyframe(outputs(rush.state)), folded)


def test_counts_add_up_in_every_step(rush: Rig) -> None:
    for step in range(1, rush.state.step + 1, 7):
        picture = rush.state.at(step)
        assert picture.used + picture.cached + picture.free == picture.num_blocks == 304
        assert picture.used == sum(1 for b in picture.blocks if b.state == "owned")
        assert picture.host_used == sum(1 for s in picture.host if s is not None)


def test_any_kept_step_comes_back_as_it_was() -> None:
    seen = {}
    rig = rush_hour(200, on_step=lambda rig: seen.__setitem__(rig.state.step, rig.keyframe()))
    for step in (1, 2, CHUNK_STEPS - 1, CHUNK_STEPS, CHUNK_STEPS + 1, 150, 199, 200):
        picture = rig.state.at(step)
        known = {key: tuple(s.tokens[: s.output_at(step)]) for key, s in rig.state.stories.items()}
        same(picture.keyframe(known), seen[step])
        assert picture.record == rig.records[step - 1]


def test_history_is_capped_by_bytes_and_says_what_it_kept() -> None:
    rig = make_rig(history_bytes=20_000)
    rig.add("a", prompt(1, 40), 2000)
    for _ in range(1500):
        rig.step()
    state = rig.state
    assert state.history.size + state.beside <= 20_000
    assert 0 < state.oldest < state.step
    assert state.series.first == state.oldest
    assert state.at(0).step == state.oldest
    assert all(entry.step >= state.oldest for entry in [*state.marks, *state.log])


def test_records_that_were_missed_leave_a_gap_not_a_wrong_picture() -> None:
    rig = make_rig()
    rig.add("a", prompt(1, 40), 100)
    rig.add("b", prompt(2, 40), 12)
    for _ in range(10):
        rig.step()
    late = MonitorState(rig.start, text=Words())
    late.extend(rig.records[:5])
    for _ in range(20):
        rig.step()
    late.resync(rig.keyframe())
    assert late.step == rig.state.step
    same(late.picture.keyframe(outputs(late)), rig.keyframe())
    assert late.log[-1].kind == "missed" and late.log[-1].a == 25
    finished = next(s for s in late.stories.values() if s.request_id == "b")
    assert finished.ended == late.step
    rig.step()
    late.apply(rig.records[-1])
    assert late.series.at("tokens", 7) == -1
    assert late.series.at("tokens", rig.state.step) == 1


def test_phases_of_a_story_add_up_to_its_life(rush: Rig) -> None:
    state = rush.state
    now = state.picture.time + (state.picture.record.spans.total if state.picture.record else 0.0)
    kinds = ("queued", "prefill", "decode", "stalled", "preempted", "offloaded")
    for story in state.stories.values():
        if story.is_refused:
            continue
        end = story.ended_time if story.ended >= 0 else now
        assert sum(story.seconds(kind, end) for kind in kinds) == pytest.approx(end - story.arrived_time, abs=1e-6)
        steps = [phase for phase in story.phases if phase.end >= phase.start]
        assert [p.start for p in steps] == sorted(p.start for p in steps)


def test_first_token_and_pace_come_from_the_clock(rush: Rig) -> None:
    story = rush.state.stories[0]
    assert story.ttft() == pytest.approx(story.token_times[0] - story.arrived_time, abs=0.05)
    assert story.itl() == pytest.approx(0.036, abs=0.01)
    assert story.ttft(story.token_steps[0] - 1) is None
    assert story.itl(story.token_steps[0]) is None


def test_a_refused_request_keeps_a_row_with_its_reason(rush: Rig) -> None:
    refused = [s for s in rush.state.stories.values() if s.is_refused]
    assert len(refused) == 1
    story = refused[0]
    assert story.key < 0 and story.label == "Y" and "never fit" in story.refusal
    assert state_of(None, story, rush.state.step) == "refused"
    assert any(mark.letter == "!" and mark.key == story.key for mark in rush.state.marks)


def test_marks_tell_offloads_cancels_settings_and_losses(rush: Rig) -> None:
    letters = {mark.letter for mark in rush.state.marks}
    assert letters == {"O", "P", "X", "S", "!"}
    offloads = [mark for mark in rush.state.marks if mark.letter == "O"]
    assert len(offloads) == rush.state.picture.counters.offloads


def test_within_a_step_the_log_has_the_cause_before_what_it_made_possible() -> None:
    rig = make_rig(host_blocks=0, max_requests_per_batch=2)
    for name in "abcd":
        rig.add(name, prompt(ord(name), 20), 100)
    rig.step()
    rig.configure(max_requests_per_batch=3)
    rig.cancel("a")
    step = rig.step().step
    kinds = [entry.kind for entry in rig.state.log if entry.step == step]
    assert kinds == ["setting", "cancelled", "admit", "admit"]
    assert [mark.letter for mark in rig.state.marks if mark.step == step] == ["S", "X"]


def test_rates_need_two_steps() -> None:
    rig = make_rig()
    rig.add("a", prompt(1, 40), 100)
    rig.step()
    assert rig.state.rates() == (None, None)
    for _ in range(30):
        rig.step()
    rig.now += 5
    rig.step()
    steps, _ = rig.state.rates()
    assert steps == pytest.approx(0.2, abs=0.01), "a slow step is a pace"
    rig.now += 60
    rig.step()
    assert rig.state.rates() == (None, None), "a pause is not"
    for _ in range(70):
        rig.step()
    steps, tokens = rig.state.rates()
    assert steps == pytest.approx(30, abs=2) and tokens == pytest.approx(steps, rel=0.05)


def test_the_series_is_what_the_records_say(rush: Rig) -> None:
    series = rush.state.series
    assert (series.first, series.last, len(series)) == (1, 355, 355)
    for record in rush.records[::20]:
        assert series.at("tokens", record.step) == sum(part.query for part in record.slices)
        assert series.at("output", record.step) == len(record.outputs)
    assert series.at("tokens", 0) == series.at("tokens", 356) == -1


def test_differences_add_up_and_do_not_care_about_the_order(rush: Rig) -> None:
    diff = difference(rush.state, 120, 170)
    assert diff == difference(rush.state, 170, 120)
    assert diff.unchanged + diff.taken + diff.given_back + diff.swapped == 304
    assert len(diff.changed) == 304 - diff.unchanged
    used, cached, free = (diff.figures[name] for name in ("used", "cached", "free"))
    assert used[0] + cached[0] + free[0] == used[1] + cached[1] + free[1] == 304
    tokens = sum(part.query for record in rush.records[120:170] for part in record.slices)
    assert (diff.tokens, diff.budget) == (tokens, 50 * 96)
    assert diff.offloads == sum(1 for mark in rush.state.marks if mark.letter == "O" and 120 < mark.step <= 170)


def test_labels_count_like_columns_of_a_sheet() -> None:
    assert [label(n) for n in (0, 25, 26, 27, 51, 52, 701, 702)] == ["A", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA"]
    assert len({label(n) for n in range(2000)}) == 2000
    with pytest.raises(ValueError):
        label(-1)
    assert cell_letter("B") == "B" and cell_letter("B", small=True) == "b"


def test_a_blocks_life_is_told_from_the_records(rush: Rig) -> None:
    block = next(n for n, b in enumerate(rush.state.picture.blocks) if len(b.owners) == 1)
    told = [(delta.op, delta.seq) for r in rush.records for delta in r.deltas if delta.block == block]
    life = rush.state.lives[block]
    assert [(event.op, event.seq) for event in life] == told[-len(life) :]
    assert [event.step for event in life] == sorted(event.step for event in life)

"""The registry of actions: keys, words, predicates, and everything that is made from it."""

import re

import pytest

from cbtui import actions, keybar, keys, situation
from cbtui.keys import ACTIONS, BY_ID, keymap
from cbtui.situation import Situation

READY = Situation(kept=10, selected="A", can_undo=True, mark=3, scenario="Pages", played=True)


def test_every_action_has_one_place_and_its_own_keys():
    assert len(BY_ID) == len(ACTIONS)
    taken = [key for action in ACTIONS for key in action.keys]
    assert len(taken) == len(set(taken))
    forbidden = {"ctrl+a", "ctrl+b", "ctrl+s", "ctrl+q", "ctrl+z"}
    assert not forbidden & set(taken)


def test_every_action_is_carried_out_by_exactly_one_method():
    class Bare:
        session = type("S", (), {"launch": type("L", (), {"defaults": None})()})()

    groups = [group(Bare()) for group in actions.GROUPS]
    for name in BY_ID:
        assert sum(callable(getattr(group, name, None)) for group in groups) == 1, name


def test_help_is_one_sentence():
    for action in ACTIONS:
        assert action.help.endswith("."), action.id
        assert len(action.help) <= 90 and len(action.label) <= 12, action.id


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_every_action_can_be_used_in_some_situation(action):
    tries = [
        READY,
        Situation(past=3, kept=10, selected="A", mark=3),
        Situation(engine="stopped", kept=10, selected="A", mark=3),
        Situation(phase="failed"),
    ]
    assert any(action.check(now) is None for now in tries)


REASONS = [
    ("scenarios", Situation(phase="loading"), "the model is still loading"),
    ("next_scenario", Situation(), "no scenario was played yet"),
    ("again", Situation(), "no scenario was played yet"),
    ("leave", Situation(played=True), "no scenario is played"),
    ("pause", Situation(phase="loading"), "the model is still loading"),
    ("pause", Situation(phase="failed", loaded=False), "no model is loaded"),
    ("pause", Situation(phase="failed"), "no engine could be built; S tries again"),
    ("pause", Situation(engine="failed"), "the engine died; S starts it again"),
    ("step", Situation(engine="stopped"), "the engine is stopped; S starts it again"),
    ("step", Situation(engine="detached"), "the engine was given up; S starts a new one"),
    ("steps", Situation(past=7), "step 7 is the past; end goes back to LIVE"),
    ("run_until", Situation(past=7), "step 7 is the past; end goes back to LIVE"),
    ("slower", Situation(phase="loading"), "the model is still loading"),
    ("faster", Situation(engine="stopped"), "the engine is stopped; S starts it again"),
    ("stop", Situation(engine="draining"), "the engine is already finishing its work"),
    ("hard_stop", Situation(engine="stopped"), "the engine is stopped; S starts it again"),
    ("start", Situation(engine="running"), "the engine is running"),
    (
        "start",
        Situation(engine="draining"),
        "the engine is finishing its work; X ends it at once, and then S starts it again",
    ),
    ("start", Situation(phase="loading"), "the model is still loading"),
    ("config", Situation(engine="failed"), "the engine died; S starts it again"),
    ("add", Situation(engine="draining"), "the engine is stopping and takes nothing new"),
    ("burst", Situation(past=2), "step 2 is the past; end goes back to LIVE"),
    ("duplicate", Situation(), "no request is selected; a adds one"),
    ("cancel", Situation(selected="B", selected_ended=True), "B has already ended"),
    ("cancel", Situation(), "no request is selected; a adds one"),
    ("undo", Situation(), "nothing was cancelled yet"),
    ("detail", Situation(), "no request is selected; a adds one"),
    ("pin", Situation(), "no request is selected; a adds one"),
    ("copy", Situation(), "no request is selected; a adds one"),
    ("older", Situation(kept=1), "no earlier step is kept yet"),
    ("older10", Situation(kept=1), "no earlier step is kept yet"),
    ("oldest", Situation(kept=0), "no earlier step is kept yet"),
    ("newer", Situation(kept=9), "the view is LIVE already"),
    ("newer10", Situation(kept=9), "the view is LIVE already"),
    ("live", Situation(kept=9), "the view is LIVE already"),
    ("freeze", Situation(), "no step has run yet"),
    ("preview", Situation(engine="stopped"), "the engine is stopped; S starts it again"),
    ("mark", Situation(), "no step has run yet"),
    ("difference", Situation(kept=3), "mark a step with m first"),
    ("difference", Situation(), "no step has run yet"),
    ("explain", Situation(), "no step has run yet"),
]


@pytest.mark.parametrize(("name", "now", "reason"), REASONS, ids=lambda value: value if isinstance(value, str) else "")
def test_reason_when_disabled(name, now, reason):
    assert BY_ID[name].check(now) == reason


def test_every_action_that_can_be_disabled_has_a_tested_reason():
    tested = {name for name, _, _ in REASONS}
    can_be_off = {action.id for action in ACTIONS if action.check is not situation.always}
    assert can_be_off == tested


def test_keymap_overrides():
    assert keymap({"pause": ("p",), "preview": ("space",)})["pause"] == ("p",)
    with pytest.raises(ValueError, match="unknown action 'paws'"):
        keymap({"paws": ("p",)})
    with pytest.raises(ValueError, match="'p' is given to both"):
        keymap({"pause": ("p",)})
    with pytest.raises(ValueError, match="without a key"):
        keymap({"pause": ()})


def test_key_names_for_people():
    assert [keys.key_name(k) for k in ("full_stop", "ctrl+p", "A", "escape", "left_square_bracket")] == [
        ".", "^p", "A", "esc", "[",
    ]  # fmt: skip


SITUATIONS = [
    (Situation(phase="loading"), 1),
    (Situation(phase="failed"), 1),
    (READY, 1),
    (READY, 4),
    (Situation(past=3, kept=9, selected="A"), 1),
    (Situation(engine="stopped"), 2),
]


@pytest.mark.parametrize(("now", "mode"), SITUATIONS)
def test_key_bar_shows_known_actions_and_marks_what_is_off(now, mode):
    bar = keybar.hints(now, mode, keymap())
    assert {"help", "quit"} <= {hint.action for hint in bar}
    assert len({hint.priority for hint in bar}) == len(bar)
    for (names, _, _), hint in zip(keybar.entries(now, mode), bar, strict=True):
        assert hint.enabled == any(BY_ID[name].check(now) is None for name in names.split("+"))


def test_key_bar_follows_the_keymap_and_the_engine():
    bar = keybar.hints(Situation(engine="held"), 1, keymap({"pause": ("P",)}))
    assert (bar[0].keys, bar[0].label) == ("P", "run")


def test_markdown_table_holds_every_action_once():
    table = keys.markdown()
    for action in ACTIONS:
        assert table.count(f"| {action.help} |") == 1
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 4 for line in table.splitlines())


@pytest.mark.parametrize(
    ("now", "page"),
    [
        (Situation(selected="A", kept=3), "request"),
        (Situation(selected="A", kept=3, pane="batch"), "step"),
        (Situation(selected="A", kept=3, pane="timeline"), "step"),
        (Situation(selected="A", kept=3, pane="hud"), "figures"),
        (Situation(selected="A", kept=3, past=2), "step"),
        (Situation(selected="A", kept=3, selected_ended=True), "request"),
        (Situation(selected="C", selected_ended=True), "request"),
        (Situation(selected="A", kept=3, selected_ended=True, engine="failed"), "request"),
        (Situation(selected="A", kept=3, selected_ended=True, past=2), "step"),
        (Situation(selected="A", kept=3, engine="failed"), "step"),
        (Situation(kept=3), "step"),
    ],
)
def test_what_is_explained(now, page):
    assert situation.explains(now) == page
    assert BY_ID["explain"].check(now) is None

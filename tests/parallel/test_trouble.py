"""When a rank fails, all leave: every accepted request gets its terminal output with the cause, and nobody hangs."""

import pytest
from transformers import AutoModelForCausalLM

from tests.parallel import tasks
from tests.tiny import reference

QUICK = 40.0
"""A timeout that no test may reach: what is told at once must not need it."""


def _all_failed(leader, cause):
    assert leader["state"] == "failed" and not leader["running"]
    assert cause in leader["error"]
    assert set(leader["outputs"]) == {f"r{number}" for number in range(len(tasks.PROMPTS))}
    for reason, count, error in leader["outputs"].values():
        assert reason == "failed" and cause in error
        assert count > 0
    assert "start them all again" in leader["again"]


def test_a_killed_follower(crew, folders):
    leader, follower = crew.run(tasks.broken, 2, folders["llama", 2], "killed", 1, QUICK)
    _all_failed(leader, "another rank is gone")
    assert follower is None and leader["seconds"] < QUICK / 2


@pytest.mark.slow
def test_a_follower_that_cannot_prepare_a_step(crew, folders):
    leader, follower = crew.run(tasks.broken, 2, folders["llama", 2], "unready", 1, QUICK)
    _all_failed(leader, "rank 1: ValueError: the pages are out of order")
    assert follower["state"] == "failed" and "out of order" in follower["error"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_a_follower_that_fails_in_the_middle_of_a_pass(crew, folders, size):
    """The others wait for its tensors, which do not come; the timeout bounds that."""
    found = crew.run(tasks.broken, size, folders["llama", size], "raises", 1, 4.0)
    _all_failed(found[0], "rank 1: ValueError: the layer is out of order")
    for follower in found[1:]:
        assert follower["state"] == "failed" and "out of order" in follower["error"]
        assert follower["seconds"] < 30


@pytest.mark.slow
def test_a_follower_that_hangs(crew, folders):
    """It does not come back itself, so it is given up by the others and killed in the end."""
    with pytest.raises(AssertionError, match="ranks \\[1\\] did not end"):
        crew.run(tasks.broken, 2, folders["llama", 2], "asleep", 1, 3.0, patience=40.0)
    leader = crew.last[0]
    _all_failed(leader, "did not answer within 3 s")


@pytest.mark.slow
def test_a_killed_leader(crew, folders):
    found = crew.run(tasks.broken, 4, folders["llama", 4], "killed", 0, QUICK)
    assert found[0] is None
    for follower in found[1:]:
        assert follower["state"] == "failed" and "another rank is gone" in follower["error"]


@pytest.mark.slow
def test_a_leader_that_fails(crew, folders):
    leader, follower = crew.run(tasks.broken, 2, folders["llama", 2], "unready", 0, QUICK)
    _all_failed(leader, "the pages are out of order")
    assert "rank 0: the pages are out of order" in follower["error"]


@pytest.mark.slow
def test_ranks_that_prepared_different_tensors(crew, folders):
    leader, follower = crew.run(tasks.broken, 2, folders["llama", 2], "different", 1, QUICK)
    _all_failed(leader, "differ between rank 0 and rank 1")
    assert "differ between rank 0 and rank 1" in follower["error"]


@pytest.mark.slow
def test_silence_of_rank_0_is_no_trouble(crew, folders):
    leader, follower = crew.run(tasks.idle, 2, folders["llama", 2])
    assert leader[0] and len(leader[1]) == 1 and len(leader[1][0]) == tasks.NEW
    assert follower == (True, [])


@pytest.mark.slow
def test_a_number_of_ranks_that_does_not_divide_the_heads(crew, folders):
    """It is refused; under a plan that leaves attention whole, every rank attends with all heads."""
    found = crew.run(tasks.more_ranks_than_heads, 4, folders["llama", 2])
    told = "2 KV heads cannot be divided over 4 ranks; start as many processes as one of 1, 2"
    assert [trouble for trouble, _, _ in found] == [told] * 4
    assert all(heads == [2, 2] for _, heads, _ in found)
    model = AutoModelForCausalLM.from_pretrained(folders["llama", 2], attn_implementation="eager").eval()
    assert found[0][2] == [reference(model, prompt, tasks.NEW) for prompt in tasks.PROMPTS]

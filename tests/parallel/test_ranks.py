"""A split model gives the same tokens as the whole one, whatever the scheduler does to the requests."""

import pytest
from transformers import AutoModelForCausalLM

from engine import ContinuousBatchingConfig
from tests.parallel import tasks
from tests.tiny import reference

KINDS = ("llama", "gemma2")


def _sessions(size):
    """Everything the ranks did in one life, by rank."""

    @pytest.fixture(scope="module")
    def sessions(crew, folders):
        found = crew.run(tasks.engines, size, {kind: folders[kind, size] for kind in KINDS})
        for result in found:
            assert isinstance(result, dict), result
        return found

    return sessions


two = _sessions(2)
four = _sessions(4)
SIZES = ["two", pytest.param("four", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=SIZES)
def ranks(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def whole(folders):
    """(kind, KV heads) -> what one process says."""
    found = {}

    def ask(kind, kv_heads):
        if (kind, kv_heads) not in found:
            model = AutoModelForCausalLM.from_pretrained(folders[kind, kv_heads], attn_implementation="eager").eval()
            config = ContinuousBatchingConfig(forward="modules", **{**tasks.ROOMY, "check_ranks": False})
            answers = tasks.run_engine(model, config)
            for number, prompt in enumerate(tasks.PROMPTS):
                assert answers["tokens"][f"r{number}"] == reference(model, prompt, tasks.NEW)
            found[kind, kv_heads] = answers
        return found[kind, kv_heads]

    return ask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", tasks.SETTINGS)
def test_tokens_are_those_of_one_process(ranks, whole, kind, setting):
    mine, theirs = ranks[0][kind][setting], whole(kind, len(ranks))
    assert mine["tokens"] == theirs["tokens"]
    assert mine["logprobs"] == pytest.approx(theirs["logprobs"], abs=1e-4)
    assert mine["cached"] > 0 or setting not in ("roomy", "one step ahead")
    assert (mine["offloads"] > 0) == (setting == "offloaded")
    assert (mine["preemptions"] > 0) == (setting == "recomputed")


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_request_leaves_the_others_alone(ranks, whole, kind):
    mine, theirs = ranks[0][kind]["cancelled"], whole(kind, len(ranks))
    assert mine["reasons"].pop("r2") == "cancelled"
    assert set(mine["reasons"].values()) == {"length"}
    assert all(tokens == theirs["tokens"][name][: len(tokens)] for name, tokens in mine["tokens"].items())


def test_records_tell_what_the_ranks_waited_for_and_what_a_plan_costs(ranks):
    found = ranks[0]["llama"]["roomy"]
    assert [rank for rank, _, _ in found["ranks"]] == list(range(len(ranks)))
    assert all(plan >= 0 and tensors >= 0 for _, plan, tensors in found["ranks"])
    assert all(size > 24 for size in found["plan_bytes"]) and found["plan_bytes"][-1] < 250


def test_the_forward_pass_says_why_it_is_not_the_fast_one(ranks):
    forward = ranks[0]["llama"]["roomy"]["forward"]
    assert forward.value == "modules" and f"{len(ranks)} ranks" in forward.reason


def test_a_program_is_the_same_on_all_ranks(ranks, whole):
    leader, *followers = (result["managed"] for result in ranks)
    tokens = whole("llama", len(ranks))["tokens"]
    assert leader["added"] == "mine" and len(leader["several"]) == 2
    names = ("mine", *leader["several"])
    assert leader["outputs"] == {name: tokens[f"r{number}"][:6] for number, name in enumerate(names)}
    assert leader["second"] == [tokens["r3"][:4]]
    assert leader["hard"][0] == "stopped" and "hard stop" in leader["hard"][1]
    for follower in followers:
        assert follower["added"] is None and follower["several"] is None and follower["known"] is False
        assert follower["outputs"] == {} and follower["result"] is None
        assert follower["second"] == [] and follower["hard"] is None
    for name in ("blocks", "new", "running", "paused", "stopped", "end"):
        assert len({str(result["managed"][name]) for result in ranks}) == 1
    assert (leader["new"], leader["running"], leader["stopped"], leader["end"]) == ("new", True, "stopped", "stopped")
    assert leader["paused"]


def test_the_rank_with_the_least_memory_sizes_the_cache_of_all(ranks):
    found = [result["uneven"] for result in ranks]
    assert all(one == found[0] for one in found)
    assert found[0]["demand"] <= 48 * 2**20 / len(ranks)
    assert f"of {48 / len(ranks):.1f} MiB free" in found[0]["reason"]


def test_a_batch_is_generated_on_rank_0(ranks, whole):
    tokens = whole("llama", len(ranks))["tokens"]
    assert [result["batch"] for result in ranks] == [[tokens["r0"][:4], tokens["r1"][:4]]] + [[]] * (len(ranks) - 1)

"""What a runner leaves behind, and how it reports what goes wrong."""

import copy

import pytest
import torch

from engine.core.errors import ConfigError
from engine.core.groups import group_layers
from engine.core.layout import CacheLayout, SchedulerSettings
from engine.core.plan import Copies
from engine.core.request import FinishReason, Request, RequestStatus
from engine.core.scheduler import Scheduler
from engine.run.facts import inspect_model
from engine.run.kv_store import KVStore
from engine.run.model_runner import ModelRunner
from tests.run.drive import drive, output
from tests.tiny import reference, tiny_model


def runner_of(model, blocks=40, host_blocks=0, **options):
    facts = inspect_model(model)
    layout = CacheLayout(4, group_layers(facts.windows), blocks, host_blocks)
    return layout, ModelRunner(model, layout, facts, **options)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_the_model_is_given_back_as_it_was(kind, backend):
    model = tiny_model(kind).train()
    ids = torch.arange(12)[None]

    def measure():
        model.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        return loss.item(), [p.grad.clone() for p in model.parameters()]

    before = measure()
    attention = model.config._attn_implementation
    _, runner = runner_of(model, backend=backend)
    assert model.config._attn_implementation != attention
    runner.close()
    assert model.config._attn_implementation == attention and model.training
    after = measure()
    assert before[0] == after[0]
    assert all(torch.equal(a, b) for a, b in zip(before[1], after[1], strict=True))


def test_using_the_model_while_the_engine_has_it_says_what_to_do():
    model = tiny_model("llama")
    model.set_attn_implementation("paged|eager")  # an attention that plain passes cannot be given back meanwhile
    _, runner = runner_of(model)
    with pytest.raises(RuntimeError, match="stop the engine first"):
        model(input_ids=torch.arange(4)[None])
    runner.close()


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"'magic'.*eager, sdpa"):
        runner_of(tiny_model("llama"), backend="magic")


def test_a_row_that_is_not_finite_fails_alone():
    model = tiny_model("llama")
    poisoned = 90
    with torch.no_grad():
        model.model.embed_tokens.weight[poisoned] = float("nan")
    good = [[1, 2, 3, 4, 5], [6, 7, 8]]
    answers = [reference(model, prompt, 8) for prompt in good]
    assert all(poisoned not in answer for answer in answers)
    requests = [
        Request(f"r{i}", tuple(p), max_new_tokens=8) for i, p in enumerate([good[0], [1, 2, 3, poisoned, 5], good[1]])
    ]
    ended = drive(model, requests, spoil=None)
    assert ended["r1"].status is RequestStatus.FAILED and ended["r1"].finish_reason is FinishReason.FAILED
    assert "non-finite logits" in ended["r1"].error
    assert [output(ended["r0"]), output(ended["r2"])] == answers


def test_an_exception_of_the_model_becomes_the_result_of_the_step():
    model = tiny_model("llama")
    layout, runner = runner_of(model)
    scheduler = Scheduler(layout, SchedulerSettings())
    scheduler.add(Request("r", (1, 2, 3), max_new_tokens=4))

    def broken(batch):
        raise ValueError("device on fire")

    runner._forward.__call__ = None
    runner._forward = type("Broken", (), {"__call__": staticmethod(broken), "close": runner._forward.close})()
    plan = scheduler.plan()
    result = runner.collect(runner.launch(plan))
    assert isinstance(result.error, ValueError) and "on fire" in str(result.error)
    ended = scheduler.apply(plan, result, 1.0).ended
    assert [seq.status for seq in ended] == [RequestStatus.FAILED]
    runner.close()


def test_blocks_survive_the_way_to_the_host_and_back():
    facts = inspect_model(tiny_model("gemma2"))
    store = KVStore(CacheLayout(4, group_layers(facts.windows), 8, host_blocks=4), facts)
    for tensor in (*store.keys, *store.values):
        tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(tensor))))
    wanted = [copy.deepcopy(tensor[[2, 5]]) for tensor in (*store.keys, *store.values)]
    store.run_copies(Copies(offload=((2, 3), (5, 0))))
    for tensor in (*store.keys, *store.values):
        tensor.fill_(float("nan"))
    store.run_copies(Copies(restore=((3, 7), (0, 1)), fork=((7, 4),)))
    for tensor, expected in zip((*store.keys, *store.values), wanted, strict=True):
        assert torch.equal(tensor[[7, 1]], expected)
        assert torch.equal(tensor[4], expected[0])


def test_offload_restore_and_fork_run_in_this_order_in_one_step():
    """A block may leave, take another's contents from the host, and be copied on, all in one step."""
    facts = inspect_model(tiny_model("llama"))
    store = KVStore(CacheLayout(4, group_layers(facts.windows), 4, host_blocks=2), facts)
    store.keys[0][1], store.keys[0][2] = 1.0, 2.0
    store.run_copies(Copies(offload=((1, 0),)))
    store.run_copies(Copies(offload=((2, 1),), restore=((0, 2),), fork=((2, 3),)))
    assert float(store.keys[0][3].mean()) == 1.0
    store.run_copies(Copies(restore=((1, 4),)))
    assert float(store.keys[0][4].mean()) == 2.0


def test_a_pool_that_cannot_be_had_lays_out_the_sum():
    facts = inspect_model(tiny_model("llama"))
    with pytest.raises(MemoryError, match=r"pages x .* blocks x .* GiB; lower num_blocks"):
        KVStore(CacheLayout(4, group_layers(facts.windows), 2**50), facts)


def test_untouched_blocks_take_no_memory():
    import psutil

    facts = inspect_model(tiny_model("llama"))
    before = psutil.Process().memory_info().rss
    store = KVStore(CacheLayout(16, group_layers(facts.windows), 2**20), facts)
    size = sum(t.numel() * t.element_size() for t in (*store.keys, *store.values))
    assert size > 2**30
    assert psutil.Process().memory_info().rss - before < size / 20


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer 1 .*'linear_attention'"),
        ({"layer_types": ["chunked_attention", "full_attention"]}, "layer 0 .*'chunked_attention'"),
        ({"kv_lora_rank": 64}, "latent attention"),
        ({"is_encoder_decoder": True}, "has an encoder"),
    ],
)
def test_models_we_cannot_run_are_named(fields, says):
    model = tiny_model("llama")
    for name, value in fields.items():
        setattr(model.config, name, value)
    with pytest.raises(ConfigError, match=says):
        inspect_model(model)

"""What a runner leaves behind, and how it reports what goes wrong."""

import copy
import threading

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

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


def loss_and_gradients(model) -> tuple[float, list[torch.Tensor]]:
    """Of a plain pass over two rows, one of them padded."""
    ids = torch.arange(24).view(2, 12)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    model.zero_grad()
    loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
    loss.backward()
    return loss.item(), [p.grad.clone() for p in model.parameters()]


def assert_same(one, two) -> None:
    assert one[0] == two[0]
    assert all(torch.equal(a, b) for a, b in zip(one[1], two[1], strict=True))


@pytest.mark.parametrize(("kind", "attention"), [("llama", "eager"), ("mistral", "sdpa"), ("gemma2", "eager")])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_the_model_is_its_own_before_beside_and_after_a_runner(kind, attention, backend):
    """Setting, mode, loss and gradients; beside means between steps and, from another thread, in the middle of one."""
    model = tiny_model(kind)
    model.set_attn_implementation(attention)
    model.train()
    before = loss_and_gradients(model)
    layout, runner = runner_of(model, backend=backend)
    scheduler = Scheduler(layout, SchedulerSettings())
    scheduler.add(Request("r", tuple(range(9)), max_new_tokens=4))
    seen = []

    def in_the_middle(*_):
        if threading.current_thread() is threading.main_thread() and torch.is_inference_mode_enabled():
            thread = threading.Thread(target=lambda: seen.append(loss_and_gradients(model)))
            thread.start()
            thread.join()

    hook = model.model.layers[1].register_forward_pre_hook(in_the_middle)
    for _ in range(2):
        plan = scheduler.plan()
        result = runner.collect(runner.launch(plan))
        assert result.error is None
        scheduler.apply(plan, result, 1.0)
        assert model.config._attn_implementation == attention and model.training
        assert_same(loss_and_gradients(model), before)
    hook.remove()
    runner.close()
    assert len(seen) == 2
    for other in seen:
        assert_same(other, before)
    assert model.config._attn_implementation == attention and model.training
    assert_same(loss_and_gradients(model), before)


def test_a_mode_that_differs_between_modules_is_found_again():
    model = tiny_model("llama").train()
    model.model.layers[0].eval()
    layout, runner = runner_of(model)
    modes = [module.training for module in model.modules()]
    scheduler = Scheduler(layout, SchedulerSettings())
    scheduler.add(Request("r", (1, 2, 3), max_new_tokens=4))
    assert runner.collect(runner.launch(scheduler.plan())).error is None
    assert [module.training for module in model.modules()] == modes


def first_step(model, **options):
    layout, runner = runner_of(model, **options)
    scheduler = Scheduler(layout, SchedulerSettings())
    scheduler.add(Request("r", (1, 2, 3), max_new_tokens=4))
    return runner.collect(runner.launch(scheduler.plan()))


def test_an_attention_setting_changed_in_the_middle_of_a_step_fails_the_step():
    model = tiny_model("llama")
    model.model.layers[0].register_forward_hook(lambda *_: model.set_attn_implementation("sdpa"))
    assert "1 of 2 layers attended over the paged cache" in str(first_step(model).error)


def test_a_layer_whose_window_is_not_the_one_of_its_cache_fails_the_step():
    model = tiny_model("gemma2")
    layout, runner = runner_of(model)
    model.model.layers[0].self_attn.sliding_window = 7
    scheduler = Scheduler(layout, SchedulerSettings())
    scheduler.add(Request("r", (1, 2, 3), max_new_tokens=4))
    error = runner.collect(runner.launch(scheduler.plan())).error
    assert "layer 0 attends with window 7, but its cache was laid out for 6" in str(error)


@pytest.mark.parametrize("argument", ["position_bias", "sinks"])
def test_an_argument_the_backends_would_ignore_fails_the_step(argument):
    model = tiny_model("llama")
    attention = model.model.layers[1].self_attn
    attention.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {**kwargs, argument: torch.zeros(4)}), with_kwargs=True
    )
    assert f"LlamaAttention attends with {argument}" in str(first_step(model).error)


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

    own = runner._forward
    parts = {"stage": own.stage, "mode": own.mode, "__call__": staticmethod(broken), "close": own.close}
    runner._forward = type("Broken", (), parts)()
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


def test_a_model_that_gives_logits_of_every_token_is_understood():
    model = tiny_model("llama")
    head = model.forward
    model.forward = lambda logits_to_keep, **given: head(**given)
    prompts = [[1, 2, 3, 4, 5, 6, 7], [8]]
    ended = drive(model, [Request(f"r{i}", tuple(p), max_new_tokens=5) for i, p in enumerate(prompts)], budget=4)
    del model.forward
    assert [output(ended[f"r{i}"]) for i in range(2)] == [reference(model, p, 5) for p in prompts]


def test_an_attention_outside_the_interface_is_refused_by_layer():
    config = AutoConfig.for_model("bloom", vocab_size=97, hidden_size=32, n_layer=2, n_head=4)
    with pytest.raises(ConfigError, match=r"layer 0 of BloomForCausalLM does not attend through"):
        inspect_model(AutoModelForCausalLM.from_config(config))


def test_layers_that_differ_in_shape_or_keep_a_state_are_refused_by_name():
    model = tiny_model("llama")
    model.model.layers[1].self_attn.v_proj = torch.nn.Linear(32, 24)
    with pytest.raises(ConfigError, match=r"layer 1 .*self_attn.* makes values of 24 numbers"):
        inspect_model(model)
    model = tiny_model("llama")
    model.model.layers[1].mixer = type("MambaMixer", (torch.nn.Module,), {"layer_idx": 1})()
    with pytest.raises(ConfigError, match=r"layer 1 .*MambaMixer, model.layers.1.mixer.* running state"):
        inspect_model(model)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer 1 .*'linear_attention'"),
        ({"layer_types": ["chunked_attention", "full_attention"]}, "layer 0 .*'chunked_attention'"),
        ({"kv_lora_rank": 64}, "latent attention"),
        ({"is_encoder_decoder": True}, "has an encoder"),
        ({"is_causal": False}, "later tokens"),
        ({"use_bidirectional_attention": True}, "later tokens"),
    ],
)
def test_models_we_cannot_run_are_named(fields, says):
    model = tiny_model("llama")
    for name, value in fields.items():
        setattr(model.config, name, value)
    with pytest.raises(ConfigError, match=says):
        inspect_model(model)

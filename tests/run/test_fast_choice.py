"""Which forward pass is chosen, and what a person is told when it is not the quickest."""

import warnings

import pytest
import torch
from torch import nn

from engine.api import generate_batch
from engine.blueprint import draw
from engine.core.errors import ConfigError
from engine.core.groups import group_layers
from engine.core.layout import CacheLayout
from engine.core.options import ContinuousBatchingConfig
from engine.run.facts import inspect_model
from engine.run.fast import build, choose, packed_modules
from engine.run.fast.native import NativeForward
from engine.run.fast.spec import UnknownModel, read_spec
from engine.run.kv_store import KVStore
from tests.run.fast_tools import model_of, need_kernels, prompts_of, run
from tests.tiny import reference, tiny_model

SMALL = {"page_size": 4, "num_blocks": 32, "max_batch_tokens": 12, "max_requests_per_batch": 8}


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    monkeypatch.setattr(build.platformdirs, "user_cache_path", lambda name: tmp_path)


@pytest.fixture
def no_packing(monkeypatch):
    def missing(weight):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_reorder_linear_weight'")

    monkeypatch.setattr(packed_modules, "pack", missing)


def decided(model, **config):
    """(what runs, why, warnings given)"""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        resolved = draw(model, config=ContinuousBatchingConfig(**SMALL, **config)).config
    return resolved.forward.value, resolved.forward.reason, [str(one.message) for one in given]


class TestChoice:
    def test_a_known_model_with_a_compiler_runs_on_the_kernels(self):
        need_kernels(torch.float32)
        assert decided(tiny_model("llama")) == ("fast", "known architecture, compiler found", [])

    def test_asked_for_modules_there_are_modules(self):
        assert decided(tiny_model("llama"), forward="modules") == ("modules", "user", [])

    def test_without_a_compiler_weights_are_packed_and_it_is_said(self, no_compiler):
        kind, reason, notices = decided(tiny_model("llama"))
        assert kind == "packed" and "no C++ compiler" in reason
        assert len(notices) == 1 and "no C++ compiler found (looked for c++, g++, clang++)" in notices[0]

    def test_without_compiler_and_packing_the_modules_run(self, no_compiler, no_packing):
        kind, reason, notices = decided(tiny_model("llama"))
        assert kind == "modules" and "no C++ compiler" in reason and "oneDNN" in reason
        assert len(notices) == 1 and "slower" in notices[0]

    def test_what_was_asked_for_and_cannot_be_had_is_an_error(self, no_compiler, no_packing):
        with pytest.raises(ConfigError, match=r"forward='fast' .* no C\+\+ compiler"):
            decided(tiny_model("llama"), forward="fast")
        with pytest.raises(ConfigError, match=r"forward='packed' .* oneDNN"):
            decided(tiny_model("llama"), forward="packed")
        with pytest.raises(ConfigError, match="forward='quick' is not allowed"):
            decided(tiny_model("llama"), forward="quick")

    def test_an_operator_that_computes_something_else_is_noticed(self, no_compiler, monkeypatch):
        monkeypatch.setattr(packed_modules, "multiply", lambda rows, packed, bias: torch.zeros(5, 48))
        kind, reason, _ = decided(tiny_model("llama"))
        assert kind == "modules" and "another result" in reason

    @pytest.mark.parametrize("missing", ["compiler", "packing", "both"])
    def test_tokens_are_the_same_without_the_parts_that_may_be_missing(self, request, missing):
        if missing != "packing":
            request.getfixturevalue("no_compiler")
        if missing != "compiler":
            request.getfixturevalue("no_packing")
        model, prompts = model_of("gemma2"), prompts_of("gemma2", (3, 14))
        answers = [reference(model, prompt, 10) for prompt in prompts]
        assert run(model, prompts, 10, "auto")[0] == answers


class TestUnknownModels:
    def changed(self, kind="llama", **overrides):
        return tiny_model(kind, **overrides)

    def test_another_architecture(self):
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.for_model(
            "granite", vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(config).eval()
        with pytest.raises(UnknownModel, match="GraniteForCausalLM"):
            read_spec(model)
        prompts = prompts_of("granite", (5, 9))
        assert run(model, prompts, 8, "auto")[0] == [reference(model, prompt, 8) for prompt in prompts]

    def test_a_class_of_somebody_else_with_a_known_name(self):
        model = self.changed()

        class LlamaForCausalLM(type(model)):
            pass

        model.__class__ = LlamaForCausalLM
        with pytest.raises(UnknownModel, match="LlamaForCausalLM"):
            read_spec(model)

    def test_a_linear_layer_of_another_class(self):
        model = self.changed()

        class Adapter(nn.Linear):
            pass

        model.model.layers[1].mlp.up_proj = Adapter(32, 64, bias=False)
        with pytest.raises(UnknownModel, match="Adapter"):
            read_spec(model)

    def test_hooks(self):
        model = self.changed()
        model.model.layers[0].register_forward_hook(lambda *_: None)
        with pytest.raises(UnknownModel, match="hooks"):
            read_spec(model)

    def test_an_activation(self):
        with pytest.raises(UnknownModel, match="relu"):
            read_spec(self.changed(hidden_act="relu"))

    def test_rotary_embeddings_that_depend_on_the_length(self):
        rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
        with pytest.raises(UnknownModel, match="dynamic"):
            read_spec(self.changed(rope_parameters=rope))

    def test_both_directions(self):
        with pytest.raises(UnknownModel, match="both directions"):
            read_spec(self.changed("gemma3", use_bidirectional_attention=True))

    def test_element_types(self):
        with pytest.raises(UnknownModel, match="float16"):
            read_spec(self.changed().half())
        mixed = self.changed()
        mixed.model.layers[0].mlp.to(torch.bfloat16)
        with pytest.raises(UnknownModel, match="of one type"):
            read_spec(mixed)


class TestUse:
    def test_a_batch_through_the_public_function(self):
        need_kernels(torch.float32)
        model, prompts = model_of("qwen3"), prompts_of("qwen3", (4, 9, 2))
        answers = [reference(model, prompt, 7) for prompt in prompts]
        config = ContinuousBatchingConfig(**SMALL, forward="fast")
        found = generate_batch(model, prompts, continuous_batching_config=config, max_new_tokens=7, temperature=0.0)
        assert [output.generated_tokens for output in found.values()] == answers

    def test_the_largest_logit_is_found_and_rows_that_are_not_finite_too(self):
        need_kernels(torch.float32)
        model = model_of("llama")
        facts = inspect_model(model)
        layout = CacheLayout(4, group_layers(facts.windows), 8)
        with torch.no_grad():
            model.model.embed_tokens.weight[9].fill_(float("inf"))
            model.lm_head.weight[5] = model.lm_head.weight[70]  # a tie: the lower index wins
        forward = choose.choose_forward(model, "fast").make(layout, KVStore(layout, facts), "sdpa")
        assert isinstance(forward, NativeForward)
        import numpy as np

        from engine.run.batch import Batch

        batch = Batch(
            layout, facts.device, np.array([1, 9, 3]), np.zeros(3, np.int64), np.ones(3, np.int64),
            [np.array([[1], [2], [3]], np.int32)], np.ones(3, bool),
        )  # fmt: skip
        logits = forward(batch)
        assert forward.greedy is not None
        assert forward.greedy[1] == -1 and not logits[1].isfinite().all()
        assert forward.greedy[0] == logits[0].argmax() and forward.greedy[2] == logits[2].argmax()
        assert torch.equal(logits[:, 5][[0, 2]], logits[:, 70][[0, 2]])
        forward.close()

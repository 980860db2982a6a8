"""Facts asked from the machine and the model, and what an engine is built from."""

from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig

from engine import ConfigError, memory
from engine.blueprint import WorkloadHints, draw
from engine.core.options import ContinuousBatchingConfig
from engine.memory import probe
from engine.run.facts import inspect_model
from tests.engine.fakes import fake_blueprint, fake_facts
from tests.tiny import VOCAB, tiny_model


class TestProbe:
    def test_a_model_on_the_cpu(self):
        model = tiny_model("gemma2")
        facts = probe(model, "eager", inspect_model(model), attention_reason="asked")
        assert (facts.device, facts.attention, facts.attention_reason) == ("cpu", "eager", "asked")
        assert facts.windows == (6, None, 6, None)
        assert (facts.vocab_size, facts.max_positions, facts.item_bytes) == (VOCAB, 512, 4)
        assert facts.weight_bytes == sum(p.numel() * 4 for p in model.parameters())
        assert 0 < facts.free_bytes <= facts.total_bytes
        assert not (facts.has_graphs or facts.has_decode_kernel or facts.has_tables)

    def test_cache_elements_have_the_size_of_the_weights(self):
        assert probe(tiny_model("llama").to(torch.bfloat16), "sdpa").item_bytes == 2

    def test_what_an_engine_holds_counts_as_free_for_the_one_in_its_place(self, monkeypatch):
        drawn = fake_blueprint(num_blocks=10, cpu_offload_space=0.01)
        held, pool = drawn.config.demand, drawn.config.host_blocks.value * drawn.config.block_bytes.value
        assert pool > 0
        for available, most in ((1 << 30, 8 << 30), ((8 << 30) - 1, 8 << 30)):
            machine = SimpleNamespace(available=available, total=most)
            monkeypatch.setattr(memory.psutil, "virtual_memory", lambda machine=machine: machine)
            facts = memory.without(fake_facts(), drawn.config, torch.device("cpu"))
            assert facts.free_bytes == min(most, available + held.total + pool)
            assert facts.host_free_bytes == min(most, available + held.kv + pool)
            assert facts.weight_bytes == fake_facts().weight_bytes


class TestBlueprint:
    def test_the_pool_counts_blocks_of_each_group(self):
        drawn = fake_blueprint(facts=fake_facts(windows=(8, 8, 8, None)), num_blocks=10)
        assert len(drawn.layout.groups) == 4
        assert drawn.layout.num_blocks == 40
        assert drawn.layout.block_bytes == drawn.config.block_bytes.value

    @pytest.mark.parametrize(("blocks", "positions", "longest"), [(8, None, 33), (8, 512, 33), (32, 20, 20)])
    def test_the_longest_request_is_what_the_scheduler_would_take(self, blocks, positions, longest):
        drawn = fake_blueprint(facts=fake_facts(max_positions=positions), num_blocks=blocks)
        assert drawn.builder.limits.pool_tokens == longest

    def test_hints_size_the_rows(self):
        drawn = fake_blueprint(hints=WorkloadHints(100, 20, 3), max_requests_per_batch=None)
        assert drawn.config.max_requests_per_batch.value == 3

    def test_sampling_defaults_leave_room_for_processing(self):
        drawn = fake_blueprint(generation_config=GenerationConfig(do_sample=True), num_blocks=None)
        assert drawn.config.max_memory_percent.value == 0.25  # a CPU keeps to its quarter
        gpu = fake_facts(device="cuda")
        drawn = fake_blueprint(generation_config=GenerationConfig(do_sample=True), facts=gpu)
        assert drawn.config.max_memory_percent.value == 0.8

    def test_notices_are_warnings_too(self):
        with pytest.warns(UserWarning, match="use_cuda_graph is switched off: needs a CUDA device"):
            drawn = fake_blueprint(use_cuda_graph=True)
        assert drawn.notices == drawn.config.notices

    def test_without_a_model_somebody_must_bring_a_runner(self):
        drawn = draw(None, config=ContinuousBatchingConfig(num_blocks=8), facts=fake_facts())
        with pytest.raises(ConfigError, match="no model to run"):
            drawn.make_runner(None)

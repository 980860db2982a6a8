"""What the configuration becomes on a machine, and why."""

import pytest

from engine import ConfigError, ContinuousBatchingConfig
from engine.core.config import CHANGEABLE, change, resolve
from engine.core.options import RULES
from engine.core.sizing import Sizing
from tests.engine.fakes import GIB, fake_facts

MIB = 1024**2


def resolved(facts=None, **config):
    return resolve(ContinuousBatchingConfig(**config), facts or fake_facts())


def gpu(**changed):
    values = {
        "device": "cuda", "attention": "flash_attention_2", "has_graphs": True, "has_decode_kernel": True,
        "hidden_size": 2048, "intermediate_size": 8192, "num_heads": 32, "kv_heads": 8, "head_dim": 64,
        "vocab_size": 128_000, "item_bytes": 2, "windows": (None,) * 16, "max_positions": 131_072,
        "free_bytes": 20 * GIB, "total_bytes": 24 * GIB, "host_free_bytes": 64 * GIB,
    }  # fmt: skip
    return fake_facts(**{**values, **changed})


class TestReasons:
    def test_every_field_has_a_value_and_a_reason(self):
        entries = dict(resolved().items())
        assert set(RULES) <= set(entries)
        assert all(entry.reason for entry in entries.values())
        undecided = {"seed", "varlen_compile_config", "decode_compile_config"}
        assert all(entry.value is not None for name, entry in entries.items() if name not in undecided)

    def test_what_was_set_says_user_and_what_was_not_says_default(self):
        config = resolved(page_size=8, num_blocks=20)
        assert (config.page_size.value, config.page_size.reason) == (8, "user")
        assert config.num_blocks.reason == "user"
        assert config.scheduler_type.reason == "default"

    @pytest.mark.parametrize(("policy", "margin"), [("fifo", 0.15), ("prefill_first", 0.0)])
    def test_the_margin_follows_the_policy_unless_it_was_set(self, policy, margin):
        assert resolved(scheduler_type=policy).safety_margin.value == margin
        assert resolved(scheduler_type=policy).safety_margin.reason == f"default of {policy}"
        assert resolved(scheduler_type=policy, safety_margin=0.3).safety_margin.value == 0.3

    def test_the_scheduler_gets_what_was_decided(self):
        settings = resolved(num_blocks=64, max_batch_tokens=32, skip_limit=3, scheduler_type="prefill_first")
        settings = settings.scheduler_settings()
        assert (settings.policy, settings.max_batch_tokens, settings.skip_limit) == ("prefill_first", 32, 3)
        assert settings.max_length == 512


class TestMemory:
    def test_a_cpu_gives_at_most_a_quarter_of_its_free_memory(self):
        facts = fake_facts(max_positions=None, free_bytes=64 * MIB)
        config = resolved(facts)
        assert config.demand.total <= 16 * MIB
        one_more = Sizing(facts, 256).demand(config.num_blocks.value + 1, config.max_batch_tokens.value, 1024)
        assert one_more.total > 16 * MIB
        assert "quarter" in config.max_memory_percent.reason

    def test_the_batch_shrinks_before_the_cache_does_but_never_below_256(self):
        sizes = {free: resolved(gpu(free_bytes=free)).max_batch_tokens.value for free in (GIB // 2, 2 * GIB, 20 * GIB)}
        assert sizes[20 * GIB] == 8192
        assert 256 <= sizes[GIB // 2] < sizes[2 * GIB] <= 8192
        assert resolved(gpu(free_bytes=GIB // 2)).max_batch_tokens.reason == f"8192 → {sizes[GIB // 2]}: free memory"

    def test_what_was_decided_fits_into_what_may_be_used(self):
        for free in (GIB // 2, GIB, 5 * GIB, 20 * GIB):
            config = resolved(gpu(free_bytes=free))
            assert config.demand.total <= free * config.max_memory_percent.value
            one_more = Sizing(gpu(free_bytes=free), 256).demand(
                config.num_blocks.value + 1, config.max_batch_tokens.value, 1024
            )
            assert one_more.total > free * config.max_memory_percent.value

    def test_logits_processing_leaves_more_room(self):
        assert resolved(gpu()).max_memory_percent.value == 0.9
        assert resolved(gpu(processes_logits=True)).max_memory_percent.value == 0.8

    def test_a_person_may_ask_for_a_smaller_batch(self):
        assert resolved(max_batch_tokens=10, num_blocks=16).max_batch_tokens.value == 10

    def test_a_tiny_model_gets_no_more_blocks_than_it_can_use(self):
        config = resolved(fake_facts(free_bytes=1000 * GIB, total_bytes=1000 * GIB))
        assert config.num_blocks.value == 1024 * 2  # 1024 rows of 512 tokens in pages of 256
        assert "no more" in config.num_blocks.reason

    @pytest.mark.parametrize(
        "wish",
        [{"num_blocks": 10**7}, {"max_batch_tokens": 10**8}, {"num_blocks": 10**7, "max_batch_tokens": 10**8}],
    )
    def test_an_impossible_wish_lays_out_the_sum(self, wish):
        with pytest.raises(ConfigError) as refused:
            resolved(gpu(), **wish)
        message = str(refused.value)
        for part in ("KV cache", "buffers", "attention", "logits", "weights", "lower num_blocks"):
            assert part in message

    def test_no_memory_at_all_is_an_error_with_the_sum_too(self):
        with pytest.raises(ConfigError, match=r"1 blocks of 256 tokens with 256 batch tokens does not fit: KV cache"):
            resolved(gpu(free_bytes=10 * MIB))

    def test_async_batching_counts_its_buffers_twice(self):
        facts = gpu(attention="sdpa", has_decode_kernel=False)
        once, twice = (Sizing(facts, 256, depth=depth).demand(10, 8192, 10).buffers for depth in (0, 1))
        assert twice - once == 8192 * 8 * (3 + 1)
        once, twice = (Sizing(gpu(), 256, depth=depth).demand(10, 8192, 10).buffers for depth in (0, 1))
        assert twice == once, "static buffers exist once on the device"

    def test_block_tables_of_kernels_that_read_them_are_counted(self):
        sizing = Sizing(gpu(max_positions=None), 256)
        assert sizing.demand(20, 8192, 10).buffers - sizing.demand(10, 8192, 10).buffers == 4 * 10 * 10

    def test_more_layer_groups_make_smaller_blocks_in_a_larger_pool(self):
        hybrid = fake_facts(windows=(8, 8, 8, None))
        assert Sizing(hybrid, 16).groups == 4
        assert Sizing(hybrid, 16).block_bytes * 4 == Sizing(fake_facts(windows=(None,) * 4), 16).block_bytes


class TestRows:
    def test_rows_come_from_the_number_of_prompts(self):
        config = resolved(fake_facts(num_requests=5))
        assert (config.max_requests_per_batch.value, config.max_requests_per_batch.reason) == (5, "number of prompts")

    def test_rows_never_exceed_tokens_or_blocks(self):
        config = resolved(max_requests_per_batch=500, max_batch_tokens=64, num_blocks=32)
        assert config.max_requests_per_batch.value == 32
        assert any("max_requests_per_batch=500 lowered to 64" in notice for notice in config.notices)


class TestOffload:
    def test_space_becomes_blocks(self):
        config = resolved(gpu(), cpu_offload_space=2.0)
        assert config.host_blocks.value == 2 * GIB // config.block_bytes.value

    def test_none_takes_what_the_threshold_allows(self):
        config = resolved(gpu(), cpu_offload_space=None, cpu_offload_space_safety_threshold=0.5)
        assert config.host_blocks.value == 32 * GIB // config.block_bytes.value
        assert config.host_blocks.reason == "50% of 64.0 GiB free"

    def test_too_much_is_lowered_with_a_notice(self):
        config = resolved(gpu(), cpu_offload_space=100.0)
        assert config.cpu_offload_space.value <= 0.8 * 64
        assert any("cpu_offload_space=100.0 GiB lowered" in notice for notice in config.notices)

    def test_on_a_cpu_the_pool_counts_against_the_same_memory(self):
        free = fake_facts(max_positions=None, free_bytes=64 * MIB, host_free_bytes=64 * MIB)
        config = resolved(free, cpu_offload_space=None)
        assert (config.host_blocks.value + config.num_blocks.value) * config.block_bytes.value <= 64 * MIB

    def test_less_than_a_block_is_none_and_says_so(self):
        config = resolved(gpu(), cpu_offload_space=1e-9)
        assert config.host_blocks.value == 0
        assert any("no offloading" in notice for notice in config.notices)


class TestDevice:
    def test_what_needs_a_gpu_is_off_on_a_cpu_and_says_so(self):
        config = resolved(use_cuda_graph=True, max_blocks_per_request=8, q_padding_interval_size=8)
        assert config.use_cuda_graph.value == (False, False)
        assert config.max_blocks_per_request.value == config.q_padding_interval_size.value == 0
        assert config.notices == (
            "max_blocks_per_request=8 is switched off: no paged decode kernel for sdpa on cpu",
            "use_cuda_graph is switched off: needs a CUDA device, this is cpu",
            "q_padding_interval_size=8 has no effect: neither graphs nor compilation, so nothing is padded",
        )

    def test_nobody_asked_so_nobody_is_told(self):
        assert resolved().notices == ()
        assert resolved(use_cuda_graph=False, max_blocks_per_request=0).notices == ()

    def test_flash_on_a_gpu_uses_graphs_async_and_the_fast_path(self):
        config = resolved(gpu(longest_request=1000))
        assert config.use_cuda_graph.value == (True, True)
        assert config.use_async_batching.value is True
        assert config.max_blocks_per_request.value == 6  # 1000 tokens in pages of 256, one more, even
        assert (config.q_padding_interval_size.value, config.kv_padding_interval_size.value) == (64, 16384)
        assert resolved(gpu()).max_blocks_per_request.value == 32

    def test_a_model_with_sliding_layers_has_all_of_it_too(self):
        config = resolved(gpu(windows=(8, None) * 8))
        assert config.max_blocks_per_request.value == 32
        assert config.use_cuda_graph.value == (True, True)
        assert config.notices == ()

    def test_without_the_decode_path_only_varlen_is_recorded(self):
        config = resolved(gpu(), max_blocks_per_request=0)
        assert (config.max_blocks_per_request.value, config.use_cuda_graph.value) == (0, (True, False))
        assert "decode path is off" in config.use_cuda_graph.reason

    def test_sdpa_on_a_gpu_has_none_of_it_and_says_why(self):
        config = resolved(gpu(attention="sdpa", has_decode_kernel=False))
        assert config.use_cuda_graph.value == (False, False)
        assert config.use_cuda_graph.reason == "needs flash attention, this is sdpa"
        assert config.use_async_batching.value is False
        assert config.notices == ()
        asked = resolved(gpu(attention="sdpa", has_decode_kernel=False), use_cuda_graph=(True, False))
        assert asked.use_cuda_graph.value == (False, False)
        assert asked.notices == ("use_cuda_graph is switched off: needs flash attention, this is sdpa",)

    def test_what_was_asked_for_is_followed(self):
        config = resolved(gpu(), use_cuda_graph=(True, False), use_async_batching=False, kv_padding_interval_size=512)
        assert config.use_cuda_graph.value == (True, False)
        assert (config.use_async_batching.value, config.use_async_batching.reason) == (False, "user")
        assert (config.kv_padding_interval_size.value, config.kv_padding_interval_size.reason) == (512, "user")
        assert resolved(use_async_batching=True).use_async_batching.value is True

    def test_pages_become_what_the_kernels_read(self):
        config = resolved(gpu(page_multiple=256), page_size=16)
        why = "flash_attention_2 reads pages of a multiple of 256 tokens"
        assert (config.page_size.value, config.page_size.reason) == (256, f"16 → 256: {why}")
        assert config.notices == (f"page_size=16 raised to 256: {why}",)
        assert config.block_bytes.value == resolved(gpu(page_multiple=256)).block_bytes.value
        assert resolved(gpu(page_multiple=256), page_size=512).page_size.value == 512
        assert resolved(gpu(attention="flash_attention_3"), page_size=16).page_size.value == 16


class TestCompilation:
    """Each path: its own config, else the level, else the generation config's."""

    @staticmethod
    def of(config):
        return config.varlen_compile_config, config.decode_compile_config

    def test_off_by_default(self):
        assert [one.value for one in self.of(resolved())] == [None, None]
        assert [one.reason for one in self.of(resolved())] == ["default_compile_level=0"] * 2

    @pytest.mark.parametrize(
        ("level", "mode", "dynamic"),
        [(1, "default", True), (2, "max-autotune-no-cudagraphs", True), (3, "max-autotune-no-cudagraphs", False)],
    )
    def test_a_level_compiles_both_paths(self, level, mode, dynamic):
        config = resolved(default_compile_level=level)
        for one in self.of(config):
            assert one.value == {"mode": mode, "fullgraph": False, "dynamic": dynamic}
            assert one.reason == f"default_compile_level={level}"
        assert config.q_padding_interval_size.value == 64
        assert config.notices == ()

    def test_explicit_before_level_before_fallback(self):
        own, fallback = {"mode": "default"}, {"mode": "max-autotune"}
        config = resolved(fake_facts(compile_fallback=fallback), varlen_compile_config=own)
        assert [(one.value, one.reason) for one in self.of(config)] == [(own, "user"), (fallback, "generation config")]
        config = resolved(
            fake_facts(compile_fallback=fallback), varlen_compile_config=own, default_compile_level=1
        )
        assert [one.reason for one in self.of(config)] == ["user", "default_compile_level=1"]

    def test_a_level_leaves_flash_varlen_alone_but_a_person_may_not(self):
        varlen, decode = self.of(resolved(gpu(), default_compile_level=1))
        assert varlen.value is None and "not compiled by a level" in varlen.reason
        assert decode.value is not None
        assert self.of(resolved(gpu(), varlen_compile_config={"mode": "default"}))[0].reason == "user"

    def test_without_a_decode_path_there_is_nothing_to_compile_on_it(self):
        config = resolved(gpu(), max_blocks_per_request=0, decode_compile_config={"mode": "default"})
        assert config.decode_compile_config.value is None
        assert config.notices == ("decode_compile_config is switched off: the decode path is off: user",)

    def test_kernels_of_our_own_are_not_compiled(self):
        config = resolved(fake_facts(forward="fast"), default_compile_level=2)
        assert [one.value for one in self.of(config)] == [None, None]
        assert config.default_compile_level.value == 0
        assert config.notices == (
            "default_compile_level is switched off: forward is fast, which has nothing to compile",
        )
        quiet = resolved(fake_facts(forward="fast", compile_fallback={"mode": "default"}))
        assert [one.value for one in self.of(quiet)] == [None, None] and quiet.notices == ()

    @pytest.mark.parametrize("wrong", ["default", 3, True])
    def test_a_compile_config_is_a_dict_or_has_one(self, wrong):
        with pytest.raises(ConfigError, match="must be a dict or a CompileConfig"):
            resolved(varlen_compile_config=wrong)

    def test_where_nothing_can_be_compiled_it_says_why(self):
        config = resolved(fake_facts(compile_trouble="the model is split over ranks"), default_compile_level=1)
        assert [one.reason for one in self.of(config)] == ["the model is split over ranks"] * 2
        assert config.notices == ("default_compile_level is switched off: the model is split over ranks",)

    def test_modes_that_record_graphs_get_none_of_ours(self):
        config = resolved(gpu(), decode_compile_config={"mode": "reduce-overhead"})
        assert config.use_cuda_graph.value == (True, False)
        assert "records graphs itself" in config.use_cuda_graph.reason


class TestChange:
    built = resolved(num_blocks=64, max_batch_tokens=32, max_requests_per_batch=16)

    def test_a_change_says_when_it_was_made(self):
        changed = change(self.built, self.built, safety_margin=0.4, max_batch_tokens=8)
        assert changed.safety_margin.value == 0.4
        assert changed.max_batch_tokens.value == 8
        assert changed.max_batch_tokens.reason == "changed while running"
        assert changed.page_size == self.built.page_size

    def test_a_new_policy_brings_its_margin_unless_one_was_set(self):
        assert change(self.built, self.built, scheduler_type="prefill_first").safety_margin.value == 0.0
        kept = change(self.built, self.built, safety_margin=0.4)
        assert change(kept, self.built, scheduler_type="prefill_first").safety_margin.value == 0.4

    def test_limits_may_shrink_and_grow_back_but_not_past_the_buffers(self):
        smaller = change(self.built, self.built, max_batch_tokens=4)
        assert change(smaller, self.built, max_batch_tokens=32).max_batch_tokens.value == 32
        with pytest.raises(ConfigError, match="max_batch_tokens=33 is more than the 32"):
            change(smaller, self.built, max_batch_tokens=33)

    @pytest.mark.parametrize("field", sorted(set(RULES) - set(CHANGEABLE)))
    def test_what_is_built_in_is_refused_with_what_can_change(self, field):
        with pytest.raises(ConfigError, match=f"{field} is built into the engine.*safety_margin"):
            change(self.built, self.built, **{field: getattr(ContinuousBatchingConfig(), field)})

    def test_values_are_checked_and_unknown_names_refused(self):
        with pytest.raises(ConfigError, match="safety_margin=3"):
            change(self.built, self.built, safety_margin=3)
        with pytest.raises(ConfigError, match="did you mean 'safety_margin'"):
            change(self.built, self.built, safety_margn=0.1)

"""What the configuration becomes on a machine, and why."""

import pytest

from engine import ConfigError, ContinuousBatchingConfig
from engine.core.config import CHANGEABLE, change
from engine.core.options import RULES
from engine.core.sizing import Sizing
from tests.engine.fakes import GIB, fake_facts
from tests.engine.machines import gpu, resolved

MIB = 1024**2






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

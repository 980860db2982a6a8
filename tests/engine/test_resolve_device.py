"""What the configuration becomes on a device: graphs, pages, compilation."""

import pytest

from engine import ConfigError
from tests.engine.fakes import fake_facts
from tests.engine.machines import gpu, resolved


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

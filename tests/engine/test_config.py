"""The configuration's fields, ranges and deprecations."""

import copy
import dataclasses
import pickle

import pytest
from transformers.generation import ContinuousBatchingConfig as Reference

from engine import ConfigError, ContinuousBatchingConfig

REFERENCE_FIELDS = {spec.name: spec.default for spec in dataclasses.fields(Reference)}


class TestFields:
    def test_every_field_of_the_reference_is_there_with_its_default(self):
        ours = {spec.name: spec.default for spec in dataclasses.fields(ContinuousBatchingConfig)}
        assert {name: ours[name] for name in REFERENCE_FIELDS} == REFERENCE_FIELDS

    def test_a_configuration_of_the_reference_is_taken_over(self):
        theirs = Reference(page_size=32, num_blocks=7, scheduler_type="prefill_first")
        ours = ContinuousBatchingConfig.from_any(theirs)
        assert (ours.page_size, ours.num_blocks, ours.scheduler_type) == (32, 7, "prefill_first")

    def test_something_else_is_not(self):
        with pytest.raises(TypeError, match="ContinuousBatchingConfig"):
            ContinuousBatchingConfig.from_any({"page_size": 4})

    def test_it_can_be_copied_pickled_and_replaced(self):
        config = ContinuousBatchingConfig(page_size=16, use_cuda_graph=(True, False))
        assert copy.deepcopy(config) == config
        assert pickle.loads(pickle.dumps(config)) == config
        assert dataclasses.replace(config, seed=3).page_size == 16


class TestRefusals:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("page_size", 3),
            ("page_size", 16.0),
            ("num_blocks", 0),
            ("max_batch_tokens", -1),
            ("max_memory_percent", 0),
            ("max_memory_percent", 1.5),
            ("max_requests_per_batch", 0),
            ("max_blocks_per_request", -1),
            ("allow_block_sharing", 1),
            ("use_cuda_graph", (True,)),
            ("default_compile_level", 4),
            ("scheduler_type", "random"),
            ("safety_margin", 1.01),
            ("safety_margin", float("nan")),
            ("seed", -1),
            ("cpu_offload_space", -0.5),
            ("cpu_offload_space_safety_threshold", 2),
            ("max_queue_size", -1),
            ("cpu_group_timeout", 0),
            ("skip_limit", -1),
            ("max_steps_without_decode", 0),
        ],
    )
    def test_a_value_out_of_range_names_field_value_and_range(self, field, value):
        with pytest.raises(ConfigError) as refused:
            ContinuousBatchingConfig(**{field: value})
        message = str(refused.value)
        assert f"{field}={value!r}" in message
        assert "must be" in message

    def test_a_page_size_under_four_is_a_value_error(self):
        with pytest.raises(ValueError, match="4"):
            ContinuousBatchingConfig(page_size=2)

    @pytest.mark.parametrize(("wrong", "near"), [("page_sze", "page_size"), ("max_batch_token", "max_batch_tokens")])
    def test_an_unknown_field_names_the_nearest_known_one(self, wrong, near):
        with pytest.raises(ConfigError, match=f"{wrong}.*did you mean '{near}'"):
            ContinuousBatchingConfig(**{wrong: 4})

    def test_a_far_off_name_lists_what_there_is(self):
        with pytest.raises(ConfigError, match="known fields: page_size"):
            ContinuousBatchingConfig(zzzz=1)

    def test_the_field_that_is_wrong_is_named_even_after_a_change_by_hand(self):
        config = ContinuousBatchingConfig()
        config.safety_margin = 7
        with pytest.raises(ConfigError, match="safety_margin=7"):
            config.validate()


class TestDeprecations:
    def test_block_size_is_page_size(self):
        with pytest.warns(FutureWarning, match="page_size"):
            assert ContinuousBatchingConfig(block_size=8).page_size == 8

    def test_block_size_is_checked_as_page_size(self):
        with pytest.warns(FutureWarning), pytest.raises(ConfigError, match="page_size=3"):
            ContinuousBatchingConfig(block_size=3)

    @pytest.mark.parametrize(("flag", "level"), [(True, 3), (False, 0)])
    def test_the_compile_switch_is_a_level(self, flag, level):
        with pytest.warns(FutureWarning, match="default_compile_level"):
            config = ContinuousBatchingConfig(use_default_compile_configs=flag, default_compile_level=1)
        assert config.default_compile_level == level

    def test_the_graph_limit_does_nothing(self):
        with pytest.warns(FutureWarning, match="max_cached_graphs"):
            ContinuousBatchingConfig(max_cached_graphs=3)

"""The package's public names, and what it refuses when an engine is made."""

import pytest
from transformers.generation.continuous_batching import RequestStatus as ReferenceStatus

import engine
from engine import (
    ConfigError,
    RequestStatus,
    init_continuous_batching,
)
from tests.tiny import tiny_model


class TestPackage:
    def test_every_public_name_is_there(self):
        for name in engine.__all__:
            assert getattr(engine, name) is not None
        assert set(engine.__all__) <= set(dir(engine))
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = engine.nothing

    def test_statuses_have_the_numbers_of_transformers(self):
        for name in ("PENDING", "PREFILLING", "DECODING", "FINISHED", "FAILED"):
            assert RequestStatus[name] == ReferenceStatus[name]

    def test_a_model_with_a_layer_we_lack_is_refused_at_construction(self):
        strange = tiny_model("llama")
        strange.config.layer_types = ["full_attention", "linear_attention"]
        with pytest.raises(ConfigError, match=r"layer 1 .*linear_attention"):
            init_continuous_batching(strange)

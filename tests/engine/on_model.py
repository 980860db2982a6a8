"""An engine on a real, tiny model, stepped by the caller."""

from engine import ContinuousBatchingConfig, Engine
from engine.core.invariants import check
from tests.tiny import VOCAB

SMALL = {"page_size": 4, "num_blocks": 24, "max_batch_tokens": 12, "max_requests_per_batch": 8}


def engine_of(model, *, tokenizer=None, generation_config=None, **config):
    return Engine(model, tokenizer, generation_config, ContinuousBatchingConfig(**{**SMALL, **config}))


def run(engine, *requests):
    """Outputs by id of requests given as keyword dictionaries."""
    try:
        for request in requests:
            engine.submit(request.pop("prompt"), request.pop("id"), **request)
        engine.run_until_idle()
        assert check(engine.scheduler) == []
        return {output.request_id: output for output in engine.take_outputs() if output.is_finished()}
    finally:
        engine.close()


def prompt(n, length):
    return [(7 * n + 3 * i * i) % VOCAB for i in range(length)]

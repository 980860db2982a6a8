"""Requests as a caller wants them, built as the engine would."""

from transformers import GenerationConfig

from engine.generation import request_defaults
from engine.requests import Limits, RequestBuilder
from tests.engine.fakes import VOCAB


def builder(defaults=None, *, limits=Limits(VOCAB, 64, 1000), **more):
    if isinstance(defaults, GenerationConfig):
        defaults, _ = request_defaults(defaults, drop_unsupported=False)
    return RequestBuilder(limits, defaults or {}, **more)


def build(prompt=(1, 2, 3), defaults=None, *, builder_options=None, **wanted):
    made = builder(defaults, **(builder_options or {}))
    return made.build(prompt, request_id="r", created_time=0.0, **wanted)

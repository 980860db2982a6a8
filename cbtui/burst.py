"""A burst of requests with drawn lengths and arrival times. The same numbers give the same burst."""

import random
from typing import Any

from cbtui.forms import BurstSpec
from cbtui.launch import RequestSpec

_TEXT = (
    "The lighthouse keeper wrote a letter every evening and never sent one. Bread rises because yeast eats sugar and "
    "breathes out gas. A queue is fair when nobody who came later is served earlier. Rivers bend because water cuts "
    "the outer bank and lays its sand on the inner one. The first clocks had no hands, they rang a bell. "
)
"""Plain prose the prompts are cut from."""


def make_burst(spec: BurstSpec, tokenizer: Any) -> list[tuple[float, RequestSpec]]:
    """The requests of a burst with the seconds after its start at which each arrives, in order.

    Prompts are cut from one text at drawn places; arrivals of a rate are exponentially spaced, as independent
    callers are.
    """
    draw = random.Random(spec.seed)
    ids = list(tokenizer(_TEXT, add_special_tokens=False)["input_ids"])
    common = _cut(ids, 0, spec.shared)
    due, requests = 0.0, []
    for _ in range(spec.count):
        length = draw.randint(spec.prompt_min, spec.prompt_max)
        own = _cut(ids, draw.randrange(len(ids)), length - len(common))
        request = RequestSpec(
            prompt_ids=tuple(common + own), chat=False, max_new_tokens=draw.randint(spec.new_min, spec.new_max)
        )
        requests.append((due, request))
        if spec.per_second:
            due += draw.expovariate(spec.per_second)
    return requests


def _cut(ids: list[int], start: int, length: int) -> list[int]:
    """``length`` tokens from ``start`` on, going round the end."""
    return [ids[(start + i) % len(ids)] for i in range(length)]

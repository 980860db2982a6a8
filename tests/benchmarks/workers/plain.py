"""``transformers`` itself. Settings: model, dtype, threads, way ("single", "padded" or "batch"), config."""

import time
from typing import Any

from tests.benchmarks.workers.wire import Job, serve


def open_engine(settings: dict[str, Any]) -> tuple[str, Job]:
    import torch
    import transformers

    torch.set_num_threads(settings["threads"])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        settings["model"], dtype=getattr(torch, settings["dtype"])
    ).eval()
    way = settings["way"]
    about = f"transformers {transformers.__version__}, {way}"
    if way == "batch":
        return about, batch(model, settings.get("config", {}))
    return about, padded(model) if way == "padded" else single(model)


class _Clock:
    """Notes when each step's tokens come; ``generate`` hands them to it like to any streamer."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.times: list[float] = []
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        if self._prompt_seen:
            self.times.append(time.perf_counter() - self.began)
        self._prompt_seen = True

    def end(self) -> None:
        """Nothing is held back."""


def _generate(model: Any, rows: list[list[int]], new_tokens: int, clock: _Clock) -> list[list[int]]:
    """Greedy, padded on the left to the longest row."""
    import torch

    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=new_tokens,
            eos_token_id=None,
            pad_token_id=0,
            streamer=clock,
        )
    return out[:, width:].tolist()


def single(model: Any) -> Job:
    def run(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], list[list[float]], float]:
        clock, tokens, times = _Clock(), [], []
        for prompt in prompts:
            tokens += _generate(model, [prompt], new_tokens, clock)
            times.append(clock.times)
            fresh = _Clock()
            fresh.began, clock = clock.began, fresh
        return tokens, times, time.perf_counter() - clock.began

    return run


def padded(model: Any) -> Job:
    def run(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], list[list[float]], float]:
        clock = _Clock()
        tokens = _generate(model, prompts, new_tokens, clock)
        return tokens, [clock.times] * len(prompts), time.perf_counter() - clock.began

    return run


def batch(model: Any, fields: dict[str, Any]) -> Job:
    """``generate_batch``, with a manager of its own per job, as it is meant to be called."""
    from transformers import GenerationConfig
    from transformers.generation import ContinuousBatchingConfig

    def run(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], list[list[float]], float]:
        generation = GenerationConfig(do_sample=False, max_new_tokens=new_tokens, eos_token_id=-1, pad_token_id=0)
        began = time.perf_counter()
        found = model.generate_batch(
            prompts,
            generation_config=generation,
            continuous_batching_config=ContinuousBatchingConfig(**fields),
            record_timestamps=True,
            progress_bar=False,
        )
        seconds = time.perf_counter() - began
        outputs = sorted(found.values(), key=lambda output: int(output.request_id.rsplit("_", 1)[-1]))
        return [o.generated_tokens for o in outputs], [[t - began for t in o.timestamps] for o in outputs], seconds

    return run


if __name__ == "__main__":
    serve(open_engine)

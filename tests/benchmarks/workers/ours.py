"""This project's engine. Settings: model, dtype, threads, device, forward, config (more fields), watched."""

import time
from typing import Any

from tests.benchmarks.workers.watcher import Watcher
from tests.benchmarks.workers.wire import Job, serve


def open_engine(settings: dict[str, Any]) -> tuple[str, Job]:
    import torch
    from transformers import AutoModelForCausalLM

    from engine.core.options import ContinuousBatchingConfig
    from engine.manager import ContinuousBatchingManager

    torch.set_num_threads(settings["threads"])
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=getattr(torch, settings["dtype"]))
    model.to(settings.get("device", "cpu"))
    config = ContinuousBatchingConfig(forward=settings["forward"], **settings.get("config", {}))
    manager = ContinuousBatchingManager(model, config=config)
    manager.warmup()
    manager.start()

    def run(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], list[list[float]], float]:
        watcher = Watcher(manager) if settings.get("watched") else None
        began = time.perf_counter()
        names = manager.add_requests(
            prompts, max_new_tokens=new_tokens, record_timestamps=True, eos_token_id=-1, temperature=0.0
        )
        found: dict[str, Any] = {}
        while len(found) < len(prompts):
            output = manager.get_result()
            if output.error:
                raise RuntimeError(output.error)
            found[output.request_id] = output
        seconds = time.perf_counter() - began
        if watcher is not None:
            watcher.close()
        manager.clear_prefix_cache()
        outputs = [found[name] for name in names]
        return [o.generated_tokens for o in outputs], [[t - began for t in o.timestamps] for o in outputs], seconds

    decided = manager.status.config
    names = ("forward", "attention", "use_cuda_graph", "use_async_batching", "default_compile_level")
    return ", ".join(f"{name}={getattr(decided, name).value}" for name in names), run


if __name__ == "__main__":
    serve(open_engine)

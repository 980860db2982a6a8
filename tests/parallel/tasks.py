"""What the ranks of a crew do. Each task runs on every rank and returns what the test looks at."""

import os
import signal
import time
from typing import Any

from engine import ContinuousBatchingConfig, ContinuousBatchingManager, Engine, generate_batch
from engine.parallel.attach import follower
from engine.parallel.frames import Kind
from engine.parallel.ranks import ranks_of, release
from tests.parallel.crew import split_model

PROMPTS = [[*range(1, 13), *range(20 + i, 25 + 2 * i)] for i in range(6)]
"""They share their first twelve tokens."""
NEW = 10
SAMPLED = {"do_sample": True, "temperature": 1.3, "top_p": 0.95, "seed": 7}
TIGHT = {"page_size": 4, "num_blocks": 17, "max_batch_tokens": 24, "safety_margin": 0.0, "check_ranks": True}
ROOMY = {"page_size": 4, "num_blocks": 90, "max_batch_tokens": 32, "check_ranks": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "roomy": ROOMY,
    "eager, decodes first": {**ROOMY, "scheduler_type": "prefill_first"},
    "one step ahead": {**ROOMY, "use_async_batching": True},
    "recomputed": TIGHT,
    "offloaded": {**TIGHT, "cpu_offload_space": 0.001},
}


def settings(size: int, **more: Any) -> ContinuousBatchingConfig:
    return ContinuousBatchingConfig(cpu_group_timeout=60.0, **more)


def run_engine(model: Any, config: ContinuousBatchingConfig, cancel: bool = False) -> dict[str, Any]:
    """All prompts through an engine without a thread: greedy ones, and a sampled one."""
    engine = Engine(model, config=config)
    engine.tap.attach()
    for number, prompt in enumerate(PROMPTS):
        engine.submit(prompt, f"r{number}", max_new_tokens=NEW)
    engine.submit(PROMPTS[0], "sampled", max_new_tokens=NEW, logprobs=1, **SAMPLED)
    if cancel:
        for _ in range(4):
            engine.step()
        engine.cancel("r2")
    engine.run_until_idle()
    counters = engine.keyframe().counters
    records, _ = engine.tap.read(after_step=0)
    outputs = {o.request_id: o for o in engine.take_outputs() if o.is_finished()}
    engine.close()
    return {
        "tokens": {name: o.generated_tokens for name, o in outputs.items()},
        "reasons": {name: str(o.finish_reason) for name, o in outputs.items()},
        "logprobs": outputs["sampled"].logprobs,
        "offloads": counters.offloads,
        "preemptions": counters.preemptions,
        "cached": counters.cached_tokens,
        "ranks": [(wait.rank, wait.plan, wait.tensors) for wait in records[-1].ranks],
        "plan_bytes": [record.plan_bytes for record in records if record.slices],
        "forward": engine.config.forward,
    }


def engines(rank: int, size: int, paths: dict[str, str]) -> dict[str, Any]:
    """Every setting on every model, without threads; then the same ranks work on under a manager."""
    found: dict[str, Any] = {}
    for kind, path in paths.items():
        model = split_model(path, size)
        if rank:
            follower(model, ranks_of(model, 60.0)).serve(until=Kind.DESTROY)
        else:
            found[kind] = {name: run_engine(model, settings(size, **fields)) for name, fields in SETTINGS.items()}
            found[kind]["cancelled"] = run_engine(model, settings(size, **ROOMY), cancel=True)
            release(model)
        if kind == "llama":
            found["managed"] = managed(rank, model, settings(size, **ROOMY))
            outputs = generate_batch(model, PROMPTS[:2], max_new_tokens=4, continuous_batching_config=settings(size))
            found["batch"] = [output.generated_tokens for output in outputs.values()]
            found["uneven"] = uneven(rank, model)
    return found


def managed(rank: int, model: Any, config: ContinuousBatchingConfig) -> dict[str, Any]:
    """One program on all ranks, as under torchrun."""
    import torch

    found: dict[str, Any] = {}
    manager = ContinuousBatchingManager(model, config=config)
    found["blocks"], found["new"] = manager.config.num_blocks.value, manager.status.state
    manager.start()
    found["running"] = manager.is_running()
    found["added"] = manager.add_request(PROMPTS[0], "mine", max_new_tokens=6)
    found["several"] = manager.add_requests(PROMPTS[1:3], max_new_tokens=6)
    found["known"] = manager.cancel_request("nobody")
    found["outputs"] = {output.request_id: output.generated_tokens for output in manager}
    found["result"] = manager.get_result(timeout=0.01)
    manager.hold()
    manager.resume()
    logits = []
    for _ in range(2):
        with manager.pause(), torch.inference_mode():
            logits.append(model(torch.tensor([PROMPTS[0]]), use_cache=False).logits[0, -1].tolist())
    found["paused"] = logits[0] == logits[1] and logits[0]
    manager.stop(keep_for_next_session=True)
    found["stopped"] = manager.status.state
    manager.start()
    manager.add_request(PROMPTS[3], "second", max_new_tokens=4)
    found["second"] = [output.generated_tokens for output in manager]
    manager.add_request(PROMPTS[4], "endless", max_new_tokens=300)
    manager.stop(hard_stop=True)
    last = manager.get_result("endless")
    found["hard"] = None if last is None else (str(last.finish_reason), last.error)
    manager.destroy()
    found["end"] = manager.status.state
    return found


def more_ranks_than_heads(rank: int, size: int, path: str) -> tuple[str, list[int], list[list[int]]]:
    """What is said about it; and with a plan that leaves attention whole, KV heads of each page, and the tokens."""
    from engine.core.errors import ConfigError

    trouble = "no error"
    try:
        ContinuousBatchingManager(split_model(path, size))
    except ConfigError as error:
        trouble = str(error)
    whole = {f"model.layers.*.self_attn.{name}_proj": "replicate" for name in "qkvo"}
    model = split_model(path, size, whole)
    if rank:
        work = follower(model, ranks_of(model, 60.0))
        work.serve(until=Kind.CLOSE)
        return trouble, [int(keys.shape[2]) for keys in work.store.keys], []
    engine = Engine(model, config=settings(size, **ROOMY))
    for number, prompt in enumerate(PROMPTS):
        engine.submit(prompt, f"r{number}", max_new_tokens=NEW)
    engine.run_until_idle()
    heads = [int(keys.shape[2]) for keys in engine.runner.store.keys]
    engine.close()
    outputs = {o.request_id: o.generated_tokens for o in engine.take_outputs() if o.is_finished()}
    return trouble, heads, [outputs[f"r{number}"] for number in range(len(PROMPTS))]


def idle(rank: int, size: int, path: str) -> tuple[bool, list[list[int]]]:
    """Rank 0 has nothing to say for longer than a rank may be waited for; whether all are there afterwards."""
    model = split_model(path, size)
    config = ContinuousBatchingConfig(cpu_group_timeout=6.0, page_size=4, num_blocks=90)
    manager = ContinuousBatchingManager(model, config=config)
    manager.start()
    if rank == 0:
        time.sleep(10.0)
    manager.add_request(PROMPTS[0], max_new_tokens=NEW)
    tokens = [output.generated_tokens for output in manager]
    manager.stop()
    fine = manager.status.error is None
    manager.destroy()
    return fine, tokens


def uneven(rank: int, model: Any) -> dict[str, Any]:
    """The last rank has little memory; what each rank's manager decides."""
    from engine import memory

    measure = memory._device_memory
    if rank == 1:
        memory._device_memory = lambda device, host: (48 * 2**20, 2**30)
    manager = ContinuousBatchingManager(model, config=ContinuousBatchingConfig(page_size=4, max_batch_tokens=256))
    memory._device_memory = measure
    blocks = manager.config.num_blocks
    demand = manager.config.demand.total
    manager.destroy()
    return {"blocks": blocks.value, "reason": blocks.reason, "demand": demand}


def broken(rank: int, size: int, path: str, how: str, culprit: int, timeout: float) -> dict[str, Any]:
    """A running manager on all ranks; after a while ``culprit`` fails in some way."""
    model = split_model(path, size)
    config = ContinuousBatchingConfig(cpu_group_timeout=timeout, check_ranks=True, page_size=4, num_blocks=700)
    manager = ContinuousBatchingManager(model, config=config)
    manager.start()
    manager.hold()
    if rank == culprit:
        _arm(model, how)
    for number, prompt in enumerate(PROMPTS):
        manager.add_request(prompt, f"r{number}", max_new_tokens=400)
    manager.resume()
    outputs = {}
    if rank == 0:
        manager.tap.attach()
        outputs = {o.request_id: (str(o.finish_reason), len(o.generated_tokens), o.error) for o in manager}
    began = time.monotonic()
    manager.join(timeout=50)
    found = {"outputs": outputs, "state": manager.status.state, "error": manager.status.error}
    found["running"] = manager.is_running()
    try:
        manager.start()
    except RuntimeError as error:
        found["again"] = str(error)
    manager.destroy()
    found["seconds"] = time.monotonic() - began
    return found


def _arm(model: Any, how: str) -> None:
    """Lets the model run for a few passes and then go wrong."""
    layer = model.model.layers[1]
    passes = 0

    def act(*_: Any) -> None:
        nonlocal passes
        passes += 1
        if passes == 12:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "asleep":
                time.sleep(1000)
            raise ValueError("the layer is out of order")

    if how == "unready":
        from engine.run.kv_store import KVStore

        def fail(self: KVStore, copies: Any) -> None:
            nonlocal passes
            passes += 1
            if passes == 12:
                raise ValueError("the pages are out of order")

        KVStore.run_copies = fail  # type: ignore[method-assign]
    elif how == "different":
        from engine.run.batch import Batch

        build = Batch.__init__

        def spoil(self: Batch, *args: Any, **kwargs: Any) -> None:
            nonlocal passes
            passes += 1
            build(self, *args, **kwargs)
            self.slots[0][0] += passes == 12

        Batch.__init__ = spoil  # type: ignore[method-assign]
    else:
        layer.register_forward_pre_hook(act)

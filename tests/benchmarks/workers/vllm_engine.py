"""vLLM's CPU build, in the environment it is installed in. Settings: model, dtype, threads, eager, longest."""

import os
import time
from typing import Any

from tests.benchmarks.workers.wire import Job, serve


def open_engine(settings: dict[str, Any]) -> tuple[str, Job]:
    threads = settings["threads"]
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{threads - 1}")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    import vllm

    engine = vllm.LLM(
        model=settings["model"],
        dtype=settings["dtype"],
        enforce_eager=settings["eager"],
        max_model_len=settings["longest"],
        max_num_seqs=settings.get("rows", 64),
        disable_log_stats=True,
    )

    def run(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], list[list[float]], float]:
        params = vllm.SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        began = time.perf_counter()
        for i, prompt in enumerate(prompts):
            engine.llm_engine.add_request(str(i), {"prompt_token_ids": prompt}, params)
        tokens: list[list[int]] = [[] for _ in prompts]
        times: list[list[float]] = [[] for _ in prompts]
        while engine.llm_engine.has_unfinished_requests():
            for output in engine.llm_engine.step():
                i, so_far = int(output.request_id.split("-")[0]), list(output.outputs[0].token_ids)
                times[i] += [time.perf_counter() - began] * (len(so_far) - len(tokens[i]))
                tokens[i] = so_far
        seconds = time.perf_counter() - began
        engine.reset_prefix_cache()
        return tokens, times, seconds

    return f"vLLM {vllm.__version__}, {'eager' if settings['eager'] else 'compiled'}", run


if __name__ == "__main__":
    serve(open_engine)

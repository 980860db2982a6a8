"""How the benchmark talks to an engine in another process: JSON lines. Standard library only.

The first line holds the settings, each later line a job ``{"prompts": [[id …] …], "new_tokens": n}``. Answers: one line
when the engine is ready, then one per job with the tokens of every prompt and the seconds, from the start of the job,
at which each came.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Job = Callable[[list[list[int]], int], tuple[list[list[int]], list[list[float]], float]]
"""(prompts, new tokens) -> (tokens, times, seconds); times count from the start, seconds are those of the whole job."""


def serve(open_engine: Callable[[dict[str, Any]], tuple[str, Job]]) -> None:
    """Open the engine with the settings of the first line and run jobs until the input ends.

    ``open_engine`` returns a line about the engine and the function that runs a job. What engines print to standard
    output goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    began = time.perf_counter()
    try:
        about, run = open_engine(json.loads(sys.stdin.readline()))
    except Exception as error:  # the benchmark reports it and goes on without this engine
        answer(error=f"{type(error).__name__}: {error}")
        return
    answer(ready=time.perf_counter() - began, about=about)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            tokens, times, seconds = run(job["prompts"], job["new_tokens"])
        except Exception as error:
            answer(error=f"{type(error).__name__}: {error}")
            continue
        answer(tokens=tokens, times=times, seconds=seconds)

"""Several processes with one split model between them, for tests: started, joined and watched with bounded waits.

They are forked from a server that has imported what they need, because importing it takes longer than their work.
"""

import datetime
import multiprocessing as mp
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 100.0
"""Seconds until a crew that does not come home is killed. Far more than it needs on a busy machine."""


class Crew:
    """Processes that run ``task(rank, size, folder)`` and leave what it returns.

    Args:
        folder: of this test; models are looked for here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last: list[Any] = []

    def run(self, task: Callable[..., Any], size: int, *args: Any, patience: float = PATIENCE) -> list[Any]:
        """What each rank returned; an exception in its place where it raised, None where it was killed.

        Raises:
            AssertionError: some rank did not end; what the others returned is in ``last``.
        """
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(["torch", "transformers.models.auto.modeling_auto", "engine.parallel.attach"])
        home = self.folder / f"{task.__name__}-{time.monotonic_ns()}"
        home.mkdir()
        crew = [context.Process(target=_work, args=(task, rank, size, str(home), args)) for rank in range(size)]
        for process in crew:
            process.start()
        deadline = time.monotonic() + patience
        for process in crew:
            process.join(max(0.0, deadline - time.monotonic()))
        late = [rank for rank, process in enumerate(crew) if process.is_alive()]
        for process in crew:
            process.kill()
        self.last = [_result(home / str(rank)) for rank in range(size)]
        assert not late, f"ranks {late} did not end"
        return self.last


def _result(path: Path) -> Any:
    return pickle.loads(path.read_bytes()) if path.exists() else None


def _work(task: Callable[..., Any], rank: int, size: int, home: str, args: tuple) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(f"{home}/store", size)
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
    try:
        result = task(rank, size, *args)
    except Exception as error:
        import traceback

        traceback.print_exc()
        result = RuntimeError(f"{type(error).__name__}: {error}")
    Path(home, str(rank)).write_bytes(pickle.dumps(result))
    os._exit(0)  # groups that lost a member cannot be taken down in good order


def split_model(path: str | Path, size: int, plan: dict[str, str] | None = None) -> Any:
    """The model of a folder, of which this process holds its part; ``plan`` changes rules of its own plan."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    config = DistributedConfig(tp_size=size, tp_plan=plan)
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, distributed_config=config).eval()

"""CUDA graphs: a pass over static buffers is recorded once per shape and then started by one call.

What is recorded holds addresses and numbers. The addresses are those of the buffers and never change; the numbers are
in ``Shape``, which is the key. All graphs share one memory pool, because only one runs at a time and none of them
returns memory of the pool: results are written into a tensor outside.
"""

import logging
from collections.abc import Callable, Hashable
from typing import Protocol

import torch

logger = logging.getLogger(__name__)


class Recorder(Protocol):
    """What can record work on a device."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Do ``work`` and record it; what is returned does it again, with the contents its tensors have then."""
        ...


class CudaRecorder:
    """Records CUDA graphs into one memory pool."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with torch.cuda.device(device):
            self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """See ``Recorder.record``.

        Raises:
            RuntimeError: something in ``work`` cannot be recorded, for example because it waits for the device.
            torch.OutOfMemoryError: no room for its temporaries.
        """
        with torch.cuda.device(self._device):
            # Libraries set themselves up on first use, which must not happen inside a recording.
            stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                work()
            current.wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads may go on using the device meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                work()
        return graph.replay


class Graphs:
    """Recorded passes by key.

    Attributes:
        trouble: why nothing more is recorded, "" while all is well. What was recorded before is still used.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._recorded: dict[Hashable, Callable[[], None]] = {}
        self.trouble = ""

    def __len__(self) -> int:
        return len(self._recorded)

    def run(self, key: Hashable, work: Callable[[], None]) -> None:
        """Do ``work``, from its recording if there is one, else recording it now.

        Args:
            key: equal for two pieces of work only if they differ in nothing but the contents of tensors.
        """
        again = self._recorded.get(key)
        if again is None and not self.trouble:
            again = self._record(key, work)
        if again is None:
            work()
        else:
            again()

    def _record(self, key: Hashable, work: Callable[[], None]) -> Callable[[], None] | None:
        try:
            again = self._recorded[key] = self._recorder.record(work)
        except Exception as error:  # whatever it is, the pass itself may still be possible
            first = (str(error).splitlines() or [""])[0]
            self.trouble = f"{type(error).__name__}: {first}"
            logger.warning("CUDA graphs are switched off, steps run without them: %s", self.trouble)
            return None
        return again

    def clear(self) -> None:
        """Forget all recordings, because addresses changed."""
        self._recorded.clear()

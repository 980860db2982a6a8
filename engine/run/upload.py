"""Small tensors on their way to the device, and how the host learns that they, or results, have arrived."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def upload(
    values: Sequence[Any] | np.ndarray | torch.Tensor, device: torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``values`` as a tensor on ``device``, without waiting for what the device has still to do.

    An ordinary copy to a CUDA device waits until the device has reached it, which would end the overlap of two steps.
    From page-locked memory it does not; PyTorch gives such memory out again only after the copy is over. An array on
    the CPU is shared, not copied.
    """
    tensor = torch.as_tensor(values, dtype=dtype)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def recorded_event(device: torch.device) -> torch.cuda.Event:
    """An event that has passed once a CUDA device has done all that is queued on it now. Other devices have none."""
    event = torch.cuda.Event()
    # Without a stream it would be recorded on the device that is current, which need not be the model's.
    event.record(torch.cuda.current_stream(device))
    return event

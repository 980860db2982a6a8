"""Small tensors on their way to the device."""

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

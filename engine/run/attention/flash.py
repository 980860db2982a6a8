"""FlashAttention over the paged cache: the kernels follow block tables, so no key is gathered or repeated."""

import torch

from engine.core.errors import EngineError
from engine.run.attention.context import Layer
from engine.run.buffers import Inputs


def attend(
    layer: Layer, query: torch.Tensor, scaling: float, softcap: float | None, sinks: torch.Tensor | None
) -> torch.Tensor:
    """See ``engine.run.attention.eager.attend``: same arguments, same result up to rounding, for inputs in buffers.

    A table begins at the oldest key some query sees. Kernels align the last query with the last key, so cutting off
    whole pages in front changes neither the causal triangle nor the window.

    Raises:
        EngineError: the layer has attention sinks, which these kernels do not take.
    """
    if sinks is not None:
        raise EngineError("the flash kernels know no attention sinks; use sdpa")
    inputs = layer.step
    assert isinstance(inputs, Inputs), "the flash kernels read tables from buffers"
    keys, values = layer.pages
    # A window of w tokens holds the query's own and w - 1 before it.
    window = (-1, -1) if layer.window is None else (layer.window - 1, 0)
    options = {"softmax_scale": scaling, "window_size": window, "softcap": softcap or 0.0}
    return layer.kernels.attend(query, keys, values, inputs, layer.group, options)

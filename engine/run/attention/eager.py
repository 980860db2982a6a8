"""The reference backend: one slice after another, every step of the formula written out in float32."""

import torch

from engine.run.attention.context import Layer


def attend(
    layer: Layer, query: torch.Tensor, scaling: float, softcap: float | None, sinks: torch.Tensor | None
) -> torch.Tensor:
    """Attention of every query to its own request's keys.

    Args:
        layer: the cache, with this step's keys written.
        query: [tokens, heads, head_dim].
        scaling: factor on the scores.
        softcap: scores become ``softcap * tanh(scores / softcap)`` when given.
        sinks: [heads] or None, a score per head that takes part in the softmax and carries no value.

    Returns:
        [tokens, heads, head_dim].
    """
    out = torch.empty_like(query)
    heads = query.shape[1]
    for span in layer.spans(together=False):
        slots = span.slots[0]
        keys = layer.keys[slots].repeat_interleave(heads // layer.keys.shape[1], dim=1)
        values = layer.values[slots].repeat_interleave(heads // layer.values.shape[1], dim=1)
        scores = torch.einsum("qhd,khd->hqk", query[span.rows], keys) * scaling
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if span.mask is not None:
            scores = scores.masked_fill(~span.mask[0], float("-inf"))
        scores = scores.float()
        if sinks is not None:
            scores = torch.cat([scores, sinks.float()[:, None, None].expand(-1, span.length, 1)], dim=-1)
        weights = scores.softmax(-1).to(values.dtype)
        if sinks is not None:
            weights = weights[..., :-1]
        out[span.rows] = torch.einsum("hqk,khd->qhd", weights, values)
    return out

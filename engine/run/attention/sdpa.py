"""The quick portable backend: fused attention per bucket of decodes and per prompt chunk.

Queries of one KV head are put side by side as a longer query, so grouped-query attention needs no repeated keys::

    query  [n, length, heads, d]  ->  [n, kv_heads, group * length, d]

Soft-capping and sinks have no place in the fused kernel; layers that use them take the written-out form of the same
bucket.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.run.attention.context import Layer
from engine.run.batch import Span


def attend(
    layer: Layer, query: torch.Tensor, scaling: float, softcap: float | None, sinks: torch.Tensor | None
) -> torch.Tensor:
    """See ``engine.run.attention.eager.attend``: same arguments, same result up to rounding."""
    _, heads, width = query.shape
    kv_heads = layer.keys.shape[1]
    shared = heads // kv_heads
    out = torch.empty_like(query)
    for span in layer.spans(together=True):
        n, length = span.count, span.length
        asked = query[span.rows].view(n, length, kv_heads, shared, width).permute(0, 2, 3, 1, 4)
        asked = asked.reshape(n, kv_heads, shared * length, width)
        keys, values = layer.keys[span.slots].transpose(1, 2), layer.values[span.slots].transpose(1, 2)
        mask = _mask(span, shared)
        if softcap is None and sinks is None:
            got = scaled_dot_product_attention(asked, keys, values, attn_mask=mask, scale=scaling)
        else:
            got = _written_out(asked, keys, values, mask, scaling, softcap, _per_row(sinks, kv_heads, length))
        got = got.view(n, kv_heads, shared, length, width).permute(0, 3, 1, 2, 4)
        out[span.rows] = got.reshape(n * length, heads, width)
    return out


def _mask(span: Span, shared: int) -> torch.Tensor | None:
    """bool [n, 1, shared * length, keys]: the heads of a group see the same keys."""
    if span.mask is None:
        return None
    return span.mask[:, None].repeat(1, 1, shared, 1) if span.length > 1 else span.mask[:, None]


def _per_row(sinks: torch.Tensor | None, kv_heads: int, length: int) -> torch.Tensor | None:
    """[heads] -> [kv_heads, shared * length, 1], in the order of the query rows."""
    return None if sinks is None else sinks.view(kv_heads, -1, 1).repeat_interleave(length, dim=1)


def _written_out(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Scores, cap, softmax and sum, for [n, kv_heads, rows, d] against [n, kv_heads, keys, d]."""
    scores = torch.matmul(query, keys.transpose(-1, -2)).mul_(scaling)
    if softcap is not None:
        scores.div_(softcap).tanh_().mul_(softcap)
    if mask is not None:
        scores = scores.masked_fill_(~mask, float("-inf"))
    scores = scores.float()
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().expand(scores.shape[0], -1, -1, 1)], dim=-1)
    weights = scores.softmax(-1).to(values.dtype)
    return torch.matmul(weights if sinks is None else weights[..., :-1], values)

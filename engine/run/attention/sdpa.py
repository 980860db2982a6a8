"""The quick portable backend: fused attention per bucket of decodes and per prompt chunk.

Queries of one KV head are put side by side as a longer query, so grouped-query attention needs no repeated keys::

    query  [n, length, heads, d]  ->  [n, kv_heads, group * length, d]

A prompt from its first token needs no mask: the kernel knows the causal triangle and skips half of it. Soft-capping and
sinks have no place in the fused kernel; layers that use them take the written-out form of the same bucket.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.run.attention.context import Layer
from engine.run.batch import Span


def attend(
    layer: Layer, query: torch.Tensor, scaling: float, softcap: float | None, sinks: torch.Tensor | None
) -> torch.Tensor:
    """See ``engine.run.attention.eager.attend``: same arguments, same result up to rounding."""
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    for span in layer.spans(together=True):
        asked = query.index_select(0, span.rows)
        keys, values = _gathered(layer.keys, span), _gathered(layer.values, span)
        if span.causal and softcap is None and sinks is None:
            got = _triangle(asked, keys, values, scaling)
        else:
            got = _packed(asked, keys, values, span, scaling, softcap, sinks)
        out.index_copy_(0, span.rows, got)
    return out


def _gathered(slots: torch.Tensor, span: Span) -> torch.Tensor:
    """[n, kv_heads, keys, d], the span's keys or values out of [slots, kv_heads, d]."""
    count, keys = span.slots.shape
    return slots.index_select(0, span.slots.view(-1)).view(count, keys, *slots.shape[1:]).transpose(1, 2)


def _triangle(asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float) -> torch.Tensor:
    """Queries [length, heads, d] of one slice against as many keys, none of them looking ahead."""
    got = scaled_dot_product_attention(
        asked.transpose(0, 1).unsqueeze(0), keys, values, is_causal=True, scale=scaling, enable_gqa=True
    )
    return got[0].transpose(0, 1)


def _packed(
    asked: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    span: Span,
    scaling: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Queries [n * length, heads, d] with those of one KV head side by side."""
    _, heads, width = asked.shape
    n, length, kv_heads = span.count, span.length, keys.shape[1]
    shared = heads // kv_heads
    asked = asked.view(n, length, kv_heads, shared, width).permute(0, 2, 3, 1, 4)
    asked = asked.reshape(n, kv_heads, shared * length, width)
    mask = span.mask_of_heads(shared)
    if softcap is None and sinks is None:
        got = scaled_dot_product_attention(asked, keys, values, attn_mask=mask, scale=scaling)
    else:
        got = _written_out(asked, keys, values, mask, scaling, softcap, _per_row(sinks, kv_heads, length))
    got = got.view(n, kv_heads, shared, length, width).permute(0, 3, 1, 2, 4)
    return got.reshape(n * length, heads, width)


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

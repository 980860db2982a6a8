"""What the FlashAttention functions compute, written out in torch, with their parameters and their checks.

Two things are stricter than needed for a right answer, because the kernels work in tiles. A key inside a row's length
takes part even where the mask gives it no weight, so a NaN there reaches the result. And what belongs to no row is left
as NaN, as the kernels leave their output uninitialised.
"""

from types import SimpleNamespace

import torch


def _check(q, keys, values, table, page_multiple):
    for tensor in (q, keys, values):
        assert tensor.stride(-1) == 1
    assert table.dtype == torch.int32 and table.stride(-1) == 1
    assert keys.shape == values.shape and keys.shape[1] % page_multiple == 0, "Paged KV cache block size"
    assert q.shape[-2] % keys.shape[2] == 0 and q.shape[-1] == keys.shape[-1]
    assert table.min() >= 0 and table.max() < keys.shape[0]


def _row(q, keys, values, table, count, scale, causal, window, softcap):
    """One row: q [queries, heads, d] against the first ``count`` keys that ``table`` leads to."""
    if count == 0 or len(q) == 0:
        return torch.zeros_like(q)
    size = keys.shape[1]
    blocks = table[: -(-count // size)].long()
    assert len(blocks) * size >= count, "the table is too narrow for the keys"
    k = keys[blocks].flatten(0, 1)[:count].float()
    v = values[blocks].flatten(0, 1)[:count].float()
    shared = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k) * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    query = torch.arange(len(q))[:, None] + count - len(q)
    key = torch.arange(count)[None]
    left, right = window
    if causal:
        right = 0
    seen = torch.ones(len(q), count, dtype=torch.bool)
    if right >= 0:
        seen &= key <= query + right
    if left >= 0:
        seen &= key >= query - left
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    weights = weights.masked_fill(~seen.any(-1)[:, None], 0.0)
    return torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype)


def flash_2(page_multiple: int = 256) -> SimpleNamespace:
    """A module with the functions of FlashAttention-2; ``calls`` counts them."""

    def flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        softcap=0.0,
        alibi_slopes=None,
        deterministic=False,
        return_attn_probs=False,
        block_table=None,
    ):
        module.calls["flash_attn_varlen_func"] += 1
        assert dropout_p == 0.0 and alibi_slopes is None and not deterministic and not return_attn_probs
        _check(q, k, v, block_table, page_multiple)
        assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
        assert len(cu_seqlens_q) == len(cu_seqlens_k) == len(block_table) + 1
        scale = softmax_scale if softmax_scale is not None else q.shape[-1] ** -0.5
        out = torch.full_like(q, float("nan"), memory_format=torch.contiguous_format)
        ends, key_ends = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
        for i, table in enumerate(block_table):
            rows, count = slice(ends[i], ends[i + 1]), key_ends[i + 1] - key_ends[i]
            assert ends[i + 1] - ends[i] <= max_seqlen_q and count <= max_seqlen_k
            out[rows] = _row(q[rows], k, v, table, count, scale, causal, window_size, softcap)
        return out

    def flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        k=None,
        v=None,
        rotary_cos=None,
        rotary_sin=None,
        cache_seqlens=None,
        cache_batch_idx=None,
        cache_leftpad=None,
        block_table=None,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        softcap=0.0,
        rotary_interleaved=True,
        alibi_slopes=None,
        num_splits=0,
        return_softmax_lse=False,
    ):
        module.calls["flash_attn_with_kvcache"] += 1
        given = (k, v, rotary_cos, rotary_sin, cache_batch_idx, cache_leftpad, alibi_slopes)
        assert all(value is None for value in given) and not return_softmax_lse
        _check(q, k_cache, v_cache, block_table, page_multiple)
        assert q.dim() == 4 and cache_seqlens.dtype == torch.int32 and len(cache_seqlens) == len(q) == len(block_table)
        scale = softmax_scale if softmax_scale is not None else q.shape[-1] ** -0.5
        rows = zip(q, block_table, cache_seqlens.tolist(), strict=True)
        return torch.stack(
            [_row(one, k_cache, v_cache, table, n, scale, causal, window_size, softcap) for one, table, n in rows]
        )

    module = SimpleNamespace(
        flash_attn_varlen_func=flash_attn_varlen_func,
        flash_attn_with_kvcache=flash_attn_with_kvcache,
        calls={"flash_attn_varlen_func": 0, "flash_attn_with_kvcache": 0},
    )
    return module


def flash_3() -> SimpleNamespace:
    """A module with the function of FlashAttention-3 that reads pages."""

    def flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        k=None,
        v=None,
        qv=None,
        rotary_cos=None,
        rotary_sin=None,
        cache_seqlens=None,
        cache_batch_idx=None,
        cache_leftpad=None,
        page_table=None,
        cu_seqlens_q=None,
        cu_seqlens_k_new=None,
        max_seqlen_q=None,
        rotary_seqlens=None,
        q_descale=None,
        k_descale=None,
        v_descale=None,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        attention_chunk=0,
        softcap=0.0,
        rotary_interleaved=True,
        scheduler_metadata=None,
        num_splits=0,
        pack_gqa=None,
        sm_margin=0,
        return_softmax_lse=False,
    ):
        given = (k, v, qv, rotary_cos, rotary_sin, cache_batch_idx, cache_leftpad, cu_seqlens_k_new, rotary_seqlens)
        assert all(value is None for value in (*given, q_descale, k_descale, v_descale)) and not attention_chunk
        _check(q, k_cache, v_cache, page_table, 1)
        assert cache_seqlens.dtype == torch.int32 and len(cache_seqlens) == len(page_table)
        scale = softmax_scale if softmax_scale is not None else q.shape[-1] ** -0.5
        counts = cache_seqlens.tolist()
        if cu_seqlens_q is None:
            module.calls["equal lengths"] += 1
            assert q.dim() == 4 and len(q) == len(page_table)
            rows = zip(q, page_table, counts, strict=True)
            return torch.stack(
                [_row(one, k_cache, v_cache, table, n, scale, causal, window_size, softcap) for one, table, n in rows]
            )
        module.calls["varlen"] += 1
        assert q.dim() == 3 and cu_seqlens_q.dtype == torch.int32 and len(cu_seqlens_q) == len(page_table) + 1
        out = torch.full_like(q, float("nan"), memory_format=torch.contiguous_format)
        ends = cu_seqlens_q.tolist()
        for i, table in enumerate(page_table):
            rows = slice(ends[i], ends[i + 1])
            assert ends[i + 1] - ends[i] <= max_seqlen_q
            out[rows] = _row(q[rows], k_cache, v_cache, table, counts[i], scale, causal, window_size, softcap)
        return out

    module = SimpleNamespace(
        flash_attn_with_kvcache=flash_attn_with_kvcache, calls={"equal lengths": 0, "varlen": 0}
    )
    return module

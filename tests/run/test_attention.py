"""The two backends against the formula, and what a window may and may not see."""

import numpy as np
import pytest
import torch

from engine.core.layout import CacheLayout, LayerGroup
from engine.run.attention import PORTABLE
from engine.run.attention.context import Context
from engine.run.batch import Batch
from engine.run.facts import ModelFacts
from engine.run.kv_store import KVStore

HEADS, KV_HEADS, WIDTH, PAGE = 6, 2, 8, 4


def facts_of(window: int | None) -> ModelFacts:
    return ModelFacts((window,), HEADS, KV_HEADS, WIDTH, 48, 96, 97, None, torch.float32, torch.device("cpu"), 0)


def scene(window: int | None, sizes: list[tuple[int, int]], seed: int = 0):
    """A layer over a NaN-filled cache with shuffled blocks, past keys written; sizes are (past, new) tokens a request.

    Returns (layer, queries, keys and values of every request as dense tensors).
    """
    random = torch.Generator().manual_seed(seed)
    pages = [-(-(past + new) // PAGE) for past, new in sizes]
    order = torch.randperm(sum(pages), generator=random) + 1
    layout = CacheLayout(PAGE, (LayerGroup(0, window, (0,)),), sum(pages) + 3)
    store = KVStore(layout, facts_of(window))
    for tensor in (*store.keys, *store.values):
        tensor.fill_(float("nan"))
    table = np.zeros((len(sizes), max(pages)), np.int32)
    dense, taken = [], 0
    for i, ((past, new), count) in enumerate(zip(sizes, pages, strict=True)):
        table[i, :count] = order[taken : taken + count].numpy()
        taken += count
        keys, values = (torch.randn(past + new, KV_HEADS, WIDTH, generator=random) for _ in range(2))
        dense.append((keys, values))
        for position in range(past):
            if window is None or position > past - window:  # what lies behind every window stays NaN
                block, slot = int(table[i, position // PAGE]), position % PAGE
                store.keys[0][block, slot], store.values[0][block, slot] = keys[position], values[position]
    starts, lengths = (np.array(column) for column in zip(*sizes, strict=True))
    batch = Batch(
        layout, torch.device("cpu"), np.zeros(int(lengths.sum()), np.int64), starts, lengths, [table],
        np.ones(len(sizes), bool),
    )  # fmt: skip
    layer = Context(batch, store, {0: (0, 0)}).layer(0, window)
    layer.write(
        *(torch.cat([pair[which][past:] for pair, (past, _) in zip(dense, sizes, strict=True)]) for which in (0, 1))
    )
    return layer, torch.randn(len(batch.ids), HEADS, WIDTH, generator=random), dense


def formula(query, dense, sizes, window, softcap, sinks):
    """softmax(cap(q·k·scale)) · v, one query and one head at a time, in float64."""
    out, row = [], 0
    for (past, new), (keys, values) in zip(sizes, dense, strict=True):
        for position in range(past, past + new):
            low = 0 if window is None else max(0, position - window + 1)
            heads = []
            for head in range(HEADS):
                kv = head // (HEADS // KV_HEADS)
                scores = keys[low : position + 1, kv].double() @ query[row, head].double() * WIDTH**-0.5
                if softcap is not None:
                    scores = softcap * torch.tanh(scores / softcap)
                if sinks is not None:
                    scores = torch.cat([scores, sinks[head : head + 1].double()])
                weights = scores.softmax(0)[: position + 1 - low]
                heads.append(weights @ values[low : position + 1, kv].double())
            out.append(torch.stack(heads))
            row += 1
    return torch.stack(out).float()


@pytest.mark.parametrize("backend", sorted(PORTABLE))
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_backends_follow_the_formula(backend, window, softcap, with_sinks):
    sizes = [(0, 1), (3, 1), (17, 1), (16, 1), (0, 9), (6, 5), (40, 1), (12, 3)]
    layer, query, dense = scene(window, sizes)
    sinks = torch.linspace(-1, 1, HEADS) if with_sinks else None
    got = PORTABLE[backend](layer, query, WIDTH**-0.5, softcap, sinks)
    torch.testing.assert_close(got, formula(query, dense, sizes, window, softcap, sinks), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("piece", [1, 4, 7])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_long_prompt_chunks_are_cut_up_in_sliding_layers(monkeypatch, piece, softcap):
    """Pieces shorter and longer than the window, a remainder, and chunks that fit the window whole."""
    monkeypatch.setattr("engine.run.batch._PIECE", piece)
    window, sizes = 5, [(0, 5), (0, 26), (12, 30), (3, 1), (0, 2)]
    layer, query, dense = scene(window, sizes)
    spans = layer.spans(together=True)
    assert max(span.length for span in spans) == max(piece, window)
    assert max(span.slots.shape[1] for span in spans) <= max(piece, window) + window - 1
    got = PORTABLE["sdpa"](layer, query, WIDTH**-0.5, softcap, None)
    torch.testing.assert_close(got, formula(query, dense, sizes, window, softcap, None), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", sorted(PORTABLE))
def test_a_company_changes_nothing(backend):
    sizes = [(9, 1), (2, 6), (30, 1)]
    layer, query, _ = scene(None, sizes)
    together = PORTABLE[backend](layer, query, 0.3, None, None)
    row = 0
    for i, (past, new) in enumerate(sizes):
        alone = Batch(
            layer.step.layout, torch.device("cpu"), np.zeros(new, np.int64),
            np.array([past]), np.array([new]),
            [layer.step.tables[0][i : i + 1]], np.ones(1, bool),
        )  # fmt: skip
        single = type(layer)(alone, 0, layer.keys, layer.values, alone.slots[0])
        got = PORTABLE[backend](single, query[row : row + new], 0.3, None, None)
        torch.testing.assert_close(got, together[row : row + new], rtol=1e-5, atol=1e-6)
        row += new


def test_padding_of_joined_decodes_stays_under_a_quarter():
    sizes = [(n, 1) for n in (1, 2, 3, 50, 51, 60, 300, 310, 320, 5, 0, 900)]
    layer, _, _ = scene(None, sizes)
    for span in layer.spans(together=True):
        real = span.slots.numel() if span.mask is None else int(span.mask.sum())
        assert span.slots.numel() <= 1.25 * real


def test_tokens_behind_the_window_cannot_move_the_logits():
    from engine.core.request import Request
    from tests.run.drive import drive, output
    from tests.tiny import VOCAB, tiny_model

    model = tiny_model("mistral", num_hidden_layers=1, sliding_window=4)
    prompt = [(3 * i + 1) % VOCAB for i in range(16)]
    seen = set()
    for changed in range(11):
        tokens = list(prompt)
        tokens[changed] = (tokens[changed] + 5) % VOCAB
        seen.add(tuple(output(drive(model, [Request("r", tuple(tokens), max_new_tokens=3)], budget=5)["r"])))
    assert seen == {tuple(output(drive(model, [Request("r", tuple(prompt), max_new_tokens=3)], budget=5)["r"]))}

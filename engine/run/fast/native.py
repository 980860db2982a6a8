"""The fast forward pass: one call into the compiled kernels per step."""

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from ctypes import POINTER, c_float, c_int32, c_void_p
from typing import Any

import torch
from torch import Tensor

from engine.core.layout import CacheLayout
from engine.run.batch import Batch
from engine.run.fast.borrowed import Borrowed
from engine.run.fast.drawing import Drawing
from engine.run.fast.inputs import Inputs
from engine.run.fast.packing import PackedWeight, Packer
from engine.run.fast.spec import LayerSpec, read_spec
from engine.run.fast.team import Team
from engine.run.kv_store import KVStore

_FIRST_POSITIONS = 1024
"""Rows a rotary table begins with; it doubles when a request gets longer."""


class _Weight(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bias", c_void_p), ("n", c_int32), ("k", c_int32)]


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, _Weight) for name in ("qkv", "out", "gate_up", "down")),
        *(
            (name, c_void_p)
            for name in ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm", "q_norm", "k_norm")
        ),
        *((name, c_void_p) for name in ("keys", "values")),
        *((name, c_float) for name in ("scale", "softcap")),
        *((name, c_int32) for name in ("window", "group", "rotary")),
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        ("layers", POINTER(_Layer)),
        ("head", _Weight),
        ("embedding", c_void_p),
        ("final_norm", c_void_p),
        *((name, c_float) for name in ("eps", "embedding_scale", "logit_softcap")),
        *((name, c_int32) for name in ("num_layers", "hidden", "heads", "kv_heads", "head_dim", "activation")),
    ]


class NativeForward:
    """Runs steps of one model over one paged cache. Takes the model's weights until ``close``.

    Attributes:
        greedy: int64 [sampling rows] of the last step, None before it: the lowest index of each row's largest logit,
            -1 where a logit is not finite.
        draw: draws tokens from the logits of a step.
    """

    def __init__(self, model: Any, library: ctypes.CDLL, layout: CacheLayout, store: KVStore) -> None:
        """Takes the model.

        Args:
            model: one that ``read_spec`` describes.
            library: kernels built for the model's element type.
            layout: layer groups and page size.
            store: the cache; its element type is the model's.
        """
        self._source, self._library, self._layout, self._store = model, library, layout, store
        self._columns = int(library.block_columns())
        self.greedy: Tensor | None = None
        self.batch_device = torch.device("cpu")
        self.mode: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._inputs = Inputs(len(layout.groups), layout.page_size)
        self._logits = torch.empty(0, 0)
        self._logits_of: dict[int, Tensor] = {}
        self.take()

    def take(self) -> None:
        """Packs the weights and empties those of the modules, until ``close``."""
        spec = self._spec = read_spec(self._source)
        self._rotary: list[Tensor] = []
        self._borrowed = Borrowed(self._source)
        self._team = Team(self._library)
        self.draw = Drawing(self._library, self._team)
        self._packer = Packer(self._library, self._borrowed, self._team)
        self._kept: list[Any] = []  # what the raw pointers below point into
        self._layers = (_Layer * len(spec.layers))()
        for group in self._layout.groups:
            for page, index in enumerate(group.layers):
                keys, values = self._store.keys[page], self._store.values[page]
                self._layers[index] = self._layer(spec.layers[index], keys, values, group.window, group.index)
        self._model = _Model(
            layers=self._layers,
            head=self._weight(self._packer.pack([spec.head])),
            embedding=self._address(None if spec.tied else spec.embedding.weight),
            final_norm=self._address(spec.final_norm),
            eps=spec.eps,
            embedding_scale=spec.embedding_scale,
            logit_softcap=spec.logit_softcap,
            num_layers=len(spec.layers),
            hidden=spec.hidden,
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            activation=spec.activation,
        )
        self._borrowed.watch()

    def _address(self, tensor: Tensor | None) -> int | None:
        if tensor is None:
            return None
        self._kept.append(tensor)
        return tensor.data_ptr()

    def _weight(self, packed: PackedWeight) -> _Weight:
        return _Weight(self._address(packed.data), self._address(packed.bias), packed.n, packed.k)

    def _layer(self, layer: LayerSpec, keys: Tensor, values: Tensor, window: int | None, group: int) -> _Layer:
        pack = self._packer.pack
        return _Layer(
            qkv=self._weight(pack(layer.qkv)),
            out=self._weight(pack([layer.out])),
            gate_up=self._weight(pack(layer.gate_up, gated=True)),
            down=self._weight(pack([layer.down])),
            attn_norm=self._address(layer.attn_norm),
            attn_post_norm=self._address(layer.attn_post_norm),
            mlp_norm=self._address(layer.mlp_norm),
            mlp_post_norm=self._address(layer.mlp_post_norm),
            q_norm=self._address(layer.q_norm),
            k_norm=self._address(layer.k_norm),
            keys=keys.data_ptr(),
            values=values.data_ptr(),
            scale=layer.scale,
            softcap=layer.softcap,
            window=window or 0,
            group=group,
            rotary=layer.rotary,
        )

    def stage(self, batch: Batch) -> Batch:
        """Nothing to prepare."""
        return batch

    def warmup(self, progress: Callable[[int, int], None]) -> None:
        """Nothing takes long the first time."""
        progress(1, 1)

    def __call__(self, batch: Batch) -> Tensor:
        """One step: writes keys and values of every token and returns the logits of the sampling rows.

        Returns:
            float32 [sampling rows, vocab_size], until the next call. ``greedy`` holds each row's best id afterwards.
        """
        n = batch.num_samples
        logits = self._room_for(n)
        self.greedy = greedy = torch.empty(n, dtype=torch.int64)
        rotary = self._rotary_up_to(batch.tables[0].shape[1] * self._layout.page_size)
        inputs = self._inputs.of(batch, rotary, self._logits.data_ptr(), greedy.data_ptr())
        if self._library.forward(ctypes.byref(self._model), inputs, self._team.handle()):
            raise MemoryError(f"no memory for a step of {len(batch.host_ids)} tokens; lower max_batch_tokens")
        return logits

    def _room_for(self, rows: int) -> Tensor:
        """Room that stays for the logits of so many rows, float32 [rows, vocab_size]."""
        if rows > len(self._logits):
            vocab = self._model.head.n
            self._logits = torch.empty(1 << (rows - 1).bit_length(), -(-vocab // self._columns) * self._columns)
            self._logits_of.clear()
        found = self._logits_of.get(rows)
        if found is None:
            found = self._logits_of[rows] = self._logits[:rows, : self._model.head.n]
        return found

    def _rotary_up_to(self, positions: int) -> list[Tensor]:
        """Cosines and sines of each table, float32 [positions or more, 2, head_dim / 2]; grown as positions come up."""
        have = len(self._rotary[0]) if self._rotary else 0
        if have < positions:
            size = max(_FIRST_POSITIONS, 1 << (positions - 1).bit_length())
            self._rotary = [_rotary(size, *table) for table in self._spec.rotaries]
        return self._rotary

    def close(self) -> None:
        """Gives the weights back to the model."""
        self._borrowed.give_back()
        self._team.close()
        self._kept.clear()


def _rotary(positions: int, frequencies: Tensor, factor: float) -> Tensor:
    """Cosines and sines of positions 0 …, float32 [positions, 2, head_dim / 2]."""
    angles = torch.outer(torch.arange(positions).float(), frequencies)
    return torch.stack((angles.cos(), angles.sin()), 1).mul_(factor)

"""What an attention layer gets besides its queries: the batch, and its own pages of the cache."""

from dataclasses import dataclass
from typing import Any

import torch

from engine.core.errors import EngineError
from engine.run.batch import Batch, Span
from engine.run.buffers import Inputs
from engine.run.kv_store import KVStore


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's view of a step.

    Attributes:
        step: what is computed: a batch of one step, or inputs in buffers that stay.
        keys, values: [slots, kv_heads, head_dim], this layer's pages as flat slots.
        slots: int64 [tokens], where each new token goes.
        kernels: what a backend brought along, see ``Context``.
    """

    step: Batch | Inputs
    group: int
    keys: torch.Tensor
    values: torch.Tensor
    slots: torch.Tensor
    kernels: Any = None

    @property
    def window(self) -> int | None:
        """Sliding window in tokens."""
        return self.step.layout.groups[self.group].window

    @property
    def pages(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values as pages, each [1 + num_blocks, page_size, kv_heads, head_dim]."""
        shape = (-1, self.step.layout.page_size, *self.keys.shape[1:])
        return self.keys.view(shape), self.values.view(shape)

    def write(self, key: torch.Tensor, value: torch.Tensor) -> None:
        """Store the new tokens' keys and values, each [tokens, kv_heads, head_dim].

        Raises:
            EngineError: they have another shape than the pages.
        """
        if key.shape[1:] != self.keys.shape[1:] or value.shape[1:] != self.values.shape[1:]:
            raise EngineError(
                f"keys of {tuple(key.shape[1:])} and values of {tuple(value.shape[1:])} (heads, numbers) do not fit"
                f" pages of {tuple(self.keys.shape[1:])}"
            )
        self.keys.index_copy_(0, self.slots, key.to(self.keys.dtype))
        self.values.index_copy_(0, self.slots, value.to(self.values.dtype))

    def spans(self, together: bool) -> list[Span]:
        """See ``Batch.spans``."""
        assert isinstance(self.step, Batch), "only a batch of one step has spans"
        return self.step.spans(self.group, together)


class Context:
    """A step's batch and the cache it runs over; handed to every layer as the keyword ``paged``."""

    def __init__(
        self, step: Batch | Inputs, store: KVStore, places: dict[int, tuple[int, int]], kernels: Any = None
    ) -> None:
        """A step and its cache.

        Args:
            places: model layer index -> (layer group, page of a block).
            kernels: handed on to the backend.
        """
        self.step = step
        self._store, self._places, self._kernels = store, places, kernels
        self._visits = 0

    def layer(self, index: int, window: int | None) -> Layer:
        """The view of model layer ``index``, which says it has this sliding window.

        Raises:
            EngineError: the window is not the one the cache was laid out for.
        """
        group, page = self._places[index]
        expected = self.step.layout.groups[group].window
        if window != expected:
            raise EngineError(f"layer {index} attends with window {window}, but its cache was laid out for {expected}")
        self._visits += 1
        store = self._store
        keys, values = store.flat_keys[page], store.flat_values[page]
        return Layer(self.step, group, keys, values, self.step.slots[group], self._kernels)

    def check_complete(self) -> None:
        """Every layer must have attended over the cache exactly once, else its result is not what the model means.

        Raises:
            EngineError: some layer kept its own attention, or the model's setting was changed during the step.
        """
        if self._visits != len(self._places):
            raise EngineError(
                f"{self._visits} of {len(self._places)} layers attended over the paged cache; either the model's"
                " attention setting was changed during the step, or its layers do not hand keyword arguments on to"
                " their attention and it cannot be batched continuously"
            )

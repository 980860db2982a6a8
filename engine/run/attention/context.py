"""What an attention layer gets besides its queries: the batch, and its own pages of the cache."""

from dataclasses import dataclass

import torch

from engine.run.batch import Batch, Span
from engine.run.kv_store import KVStore


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's view of a step.

    Attributes:
        keys, values: [slots, kv_heads, head_dim], this layer's pages as flat slots.
        slots: int64 [tokens], where each new token goes.
    """

    batch: Batch
    group: int
    keys: torch.Tensor
    values: torch.Tensor
    slots: torch.Tensor

    def write(self, key: torch.Tensor, value: torch.Tensor) -> None:
        """Store the new tokens' keys and values, each [tokens, kv_heads, head_dim]."""
        self.keys.index_copy_(0, self.slots, key.to(self.keys.dtype))
        self.values.index_copy_(0, self.slots, value.to(self.values.dtype))

    def spans(self, together: bool) -> list[Span]:
        return self.batch.spans(self.group, together)


@dataclass(frozen=True, slots=True)
class Context:
    """A step's batch and the cache it runs over; handed to every layer as the keyword ``paged``."""

    batch: Batch
    store: KVStore
    places: dict[int, tuple[int, int]]

    def layer(self, index: int) -> Layer:
        """The view of model layer ``index``."""
        group, page = self.places[index]
        keys, values = self.store.keys[page], self.store.values[page]
        return Layer(self.batch, group, keys.flatten(0, 1), values.flatten(0, 1), self.batch.slots[group])

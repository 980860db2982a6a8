"""Weights taken out of a model's parameters, and how they come back."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Borrowed:
    """Parameters whose storage somebody else holds in another form, so that memory does not double.

    They are empty meanwhile. Whoever uses the model from outside finds them whole: the first call of a module that owns
    one, and the first ``state_dict``, bring all of them back (and then memory does double). Reading a parameter without
    calling anything shows it empty.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._rebuild: list[tuple[Tensor, Callable[[], Tensor]]] = []
        self._hooks: list[Any] = []
        self._lock = threading.Lock()

    def take(self, parameter: Tensor, rebuild: Callable[[], Tensor]) -> None:
        """Empties a parameter; ``rebuild`` makes its content anew."""
        self._rebuild.append((parameter, rebuild))
        parameter.data = torch.empty(0, dtype=parameter.dtype)

    def watch(self) -> None:
        """From now on a use of the model from outside brings the weights back."""
        taken = {id(parameter) for parameter, _ in self._rebuild}
        for module in self._model.modules():
            if module is self._model or any(id(p) in taken for p in module.parameters(recurse=False)):
                self._hooks.append(module.register_forward_pre_hook(self._used))
        self._hooks.append(self._model.register_state_dict_pre_hook(self._used))

    def _used(self, *_: Any) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Fills every parameter again, the same objects bit by bit. More than one call does no harm."""
        with self._lock:
            while self._hooks:
                self._hooks.pop().remove()
            with torch.inference_mode(False), torch.no_grad():
                while self._rebuild:
                    parameter, rebuild = self._rebuild.pop()
                    parameter.data = rebuild()

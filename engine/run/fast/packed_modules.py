"""The model's own modules with linear layers whose weights oneDNN keeps in its own order.

The operators that do this are private parts of PyTorch. They are tried on a small product first; where they are missing
or wrong the layers stay as they are.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from engine.run.fast.borrowed import Borrowed
from engine.run.forward import ModulesForward

TYPICAL_ROWS = 32
"""Rows of input the packed order is chosen for. Other numbers work too."""


def packing_problem(dtype: torch.dtype) -> str | None:
    """Why weights of this type cannot be packed here, or None when a trial gave the right result."""
    if dtype not in (torch.float32, torch.bfloat16):
        return f"only float32 and bfloat16 are packed, not {str(dtype).removeprefix('torch.')}"
    if not torch.backends.mkldnn.is_available():
        return "this PyTorch was built without oneDNN"
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 32, generator=generator).to(dtype)
    rows, bias = torch.randn(5, 32, generator=generator).to(dtype), torch.randn(48, generator=generator).to(dtype)
    try:
        packed = pack(weight)
        got, back = multiply(rows, packed, bias), unpack(packed)
    except (AttributeError, RuntimeError, TypeError, NotImplementedError) as error:
        return f"this PyTorch's oneDNN operators do not work here: {str(error).splitlines()[0]}"
    want = nn.functional.linear(rows, weight, bias)
    if not torch.equal(back, weight) or not torch.allclose(got.float(), want.float(), rtol=2e-2, atol=2e-1):
        return "this PyTorch's oneDNN operators give another result"
    return None


def pack(weight: Tensor) -> Tensor:
    """[outputs, inputs] -> an opaque tensor for ``multiply``."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS)


def unpack(packed: Tensor) -> Tensor:
    """The weight again, bit by bit."""
    return packed.to_dense()


def multiply(rows: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """What ``linear`` computes, from a packed weight."""
    return torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")


class PackedModulesForward(ModulesForward):
    """``ModulesForward`` with packed linear layers.

    The packed weights take the place of the modules' own, so memory does not double; a weight that something else uses
    too (an embedding tied to the head) stays beside its packed form. A pass from outside ends the packing: the weights
    are back before it begins, and the engine goes on with the modules as they are.
    """

    def take(self) -> None:
        """Exchange the products of the linear layers."""
        super().take()
        users = Counter(id(p) for module in self._model.modules() for p in module.parameters(recurse=False))
        borrowed = Borrowed(self._model)
        for module in self._model.modules():
            if _is_plain(module):
                _exchange(module, borrowed, self._undo, shared=users[id(module.weight)] > 1)
        self._undo.callback(borrowed.give_back)
        hooks = (
            self._model.register_forward_pre_hook(self._called, with_kwargs=True),
            self._model.register_state_dict_pre_hook(self._asked),
        )
        for hook in hooks:
            self._undo.callback(hook.remove)

    def _called(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if "paged" not in kwargs:
            self.close()

    def _asked(self, *_: Any) -> None:
        self.close()


def _is_plain(module: nn.Module) -> bool:
    return (
        type(module) is nn.Linear
        and "forward" not in vars(module)
        and module.weight.device.type == "cpu"
        and module.weight.numel() > 0
    )


def _exchange(linear: nn.Linear, borrowed: Borrowed, undo: ExitStack, *, shared: bool) -> None:
    """Puts a packed product in the place of the layer's forward, until ``undo``."""
    with torch.no_grad():
        packed = pack(linear.weight)
    linear.forward = _forward(packed, linear.bias)  # type: ignore[method-assign, assignment]
    undo.callback(vars(linear).pop, "forward", None)
    if not shared:
        borrowed.take(linear.weight, lambda: unpack(packed))


def _forward(packed: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    return lambda rows: multiply(rows, packed, bias)

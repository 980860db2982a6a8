"""Fast construction of frozen dataclasses that are made for every row of every step."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def open_twin(cls: type[T]) -> Callable[..., Any]:
    """An open, slotted dataclass with the fields of the frozen dataclass ``cls``; takes all of them in order.

    The constructor of a frozen dataclass goes through ``object.__setattr__`` for every field, which makes it two to
    four times slower than that of an open one. Objects of the twin become ordinary, frozen instances with ``freeze``.
    """
    names: list[Any] = [(f.name, f.type) for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    twin: Callable[..., Any] = dataclasses.make_dataclass(cls.__name__, names, slots=True, eq=False)
    return twin


def freeze(made: list[Any], cls: type[T]) -> tuple[T, ...]:
    """Hand objects of the open twin over to ``cls``; classes with equal slots allow that."""
    for item in made:
        item.__class__ = cls
    return tuple(made)


def quick(cls: type[T]) -> Callable[..., T]:
    """A constructor of the frozen, slotted dataclass ``cls`` that takes all its fields in order, see ``open_twin``."""
    twin = open_twin(cls)

    def build(*values: Any) -> T:
        made = twin(*values)
        made.__class__ = cls
        return made  # type: ignore[no-any-return]

    return build

"""Many small observations of one kind, kept as plain tuples until somebody looks at them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from engine.core.quick import freeze, open_twin

T = TypeVar("T")


class PackedKind(Generic[T]):
    """Makes ``Packed`` of the frozen, slotted dataclass ``cls``.

    Args:
        name: of the constant in the module of ``cls`` that holds this; it is pickled by that name.
    """

    def __init__(self, cls: type[T], name: str) -> None:
        self.cls, self._name = cls, name
        self.__module__ = cls.__module__
        self._twin = open_twin(cls)

    def __call__(self, values: Iterable[tuple[Any, ...]]) -> "Packed[T]":
        """These objects, packed: one tuple for each object with all its fields in order."""
        return Packed(self, tuple(values))

    def make(self, values: Iterable[tuple[Any, ...]]) -> tuple[T, ...]:
        """The objects of these values."""
        twin = self._twin
        return freeze([twin(*row) for row in values], self.cls)

    def __reduce__(self) -> str:
        return self._name


class Packed(Sequence[T]):
    """An immutable sequence of dataclass instances, which come into being when they are read.

    A step has several for each of its rows. Who makes it pays for plain tuples, which the garbage collector leaves
    alone; who reads it pays for the objects, every time: ``tuple(packed)`` where they are needed more than once.
    Equal to any sequence of equal objects that is a tuple or ``Packed``.
    """

    __slots__ = ("_kind", "_values")
    _kind: PackedKind[T]
    _values: tuple[tuple[Any, ...], ...]

    def __init__(self, kind: PackedKind[T], values: tuple[tuple[Any, ...], ...]) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_values", values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"it cannot be changed: {name}")

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """What it holds: a plain tuple for each object, with all its fields in order."""
        return self._values

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[T]:
        return iter(self._kind.make(self.rows))

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> T | Self:
        if isinstance(index, slice):
            return type(self)(self._kind, self.rows[index])
        return self._kind.make((self.rows[index],))[0]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Packed):
            return self.rows == other.rows and (self._kind.cls is other._kind.cls or not self.rows)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return Packed, (self._kind, self.rows)


def rows_of(items: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """The fields of each object in order, for a reader that needs no objects: ``Packed`` has them at hand."""
    if isinstance(items, Packed):
        return items.rows
    return tuple(tuple(getattr(item, name) for name in item.__slots__) for item in items)

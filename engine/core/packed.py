"""Many small observations of one kind, kept as plain tuples until somebody looks at them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar, overload

from engine.core.quick import freeze, open_twin

T = TypeVar("T")


class PackedKind(Generic[T]):
    """Makes ``Packed`` of the frozen, slotted dataclass ``cls``.

    Args:
        name: of the constant in the module of ``cls`` that holds this; it is pickled by that name.
        growing: fields that one decode step makes larger by one.

    Attributes:
        growing: places of those fields.
    """

    def __init__(self, cls: type[T], name: str, growing: tuple[str, ...] = ()) -> None:
        self.cls, self._name = cls, name
        self.growing = tuple(place for place, field in enumerate(fields(cls)) if field.name in growing)  # type: ignore[arg-type]
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
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return iter(self._kind.make(self.rows))

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> "Packed[T]": ...

    def __getitem__(self, index: int | slice) -> "T | Packed[T]":
        if isinstance(index, slice):
            return Packed(self._kind, self.rows[index])
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


class Grown(Packed[T]):
    """``base`` as it is some decode steps later: the growing fields of all rows are larger by ``by``.

    Most steps give every running sequence one token and do hardly anything else. Their rows are only worked out where
    somebody looks at them.

    Attributes:
        other: place of a field and its values in all rows, where they are not those of ``base``; else empty.
    """

    __slots__ = ("base", "by", "other")
    base: Packed[T]
    by: int
    other: tuple[int, tuple[Any, ...]] | tuple[()]

    def __init__(self, base: Packed[T], by: int, other: tuple[int, tuple[Any, ...]] | tuple[()] = ()) -> None:
        super().__init__(base._kind, ())
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "other", other)

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        if not self._values:
            columns = list(zip(*self.base.rows, strict=True))
            for place in self._kind.growing:
                columns[place] = tuple([number + self.by for number in columns[place]])
            if self.other:
                columns[self.other[0]] = self.other[1]
            object.__setattr__(self, "_values", tuple(zip(*columns, strict=True)))
        return self._values

    def __len__(self) -> int:
        return len(self.base)


def base_of(items: Sequence[T]) -> Sequence[T]:
    """What rows of later steps may be told in terms of: themselves, unless they are told so too."""
    return items.base if isinstance(items, Grown) else items


def rows_of(items: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """The fields of each object in order, for a reader that needs no objects: ``Packed`` has them at hand."""
    if isinstance(items, Packed):
        return items.rows
    return tuple(tuple(getattr(item, name) for name in item.__slots__) for item in items)

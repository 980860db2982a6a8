"""Seeded faults: one small edit of a core module each, put in place in memory and taken back."""

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType


@dataclass(frozen=True)
class Mutant:
    """``old`` occurs exactly once in the source of ``module`` and becomes ``new``."""

    name: str
    module: str
    old: str
    new: str


class DoesNotApply(Exception):
    """The text is not there exactly once, or the edit changes no code: the mutant must be written anew."""


def functions_of(module: ModuleType) -> dict[str, FunctionType]:
    """Every function and method a module defines itself, by qualified name."""
    found: dict[str, FunctionType] = {}

    def add(value: object) -> None:
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if isinstance(value, property):
            for part in (value.fget, value.fset):
                add(part)
        elif isinstance(value, FunctionType) and value.__module__ == module.__name__:
            found[value.__qualname__] = value

    for value in vars(module).values():
        add(value)
        if inspect.isclass(value) and value.__module__ == module.__name__:
            for member in vars(value).values():
                add(member)
    return found


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """All code objects of functions and methods in a compiled module, not those nested in a function."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            else:
                yield from codes_of(constant)


@contextmanager
def applied(mutant: Mutant) -> Iterator[int]:
    """The module runs with the edit inside the block. Yields how many functions changed, at least one.

    Functions keep their identity and only their code is exchanged, so whoever imported them runs the edit too.
    """
    module = importlib.import_module(mutant.module)
    source = inspect.getsource(module)
    if source.count(mutant.old) != 1:
        raise DoesNotApply(f"{mutant.name}: its text occurs {source.count(mutant.old)} times in {mutant.module}")
    edited = source.replace(mutant.old, mutant.new)
    if ast.dump(ast.parse(edited)) == ast.dump(ast.parse(source)):
        raise DoesNotApply(f"{mutant.name}: the edit changes nothing")
    functions = functions_of(module)
    original = {code.co_qualname: code for code in codes_of(compile(source, module.__file__ or "", "exec"))}
    swapped: list[tuple[FunctionType, CodeType]] = []
    try:
        for code in codes_of(compile(edited, module.__file__ or "", "exec")):
            function = functions.get(code.co_qualname)
            if function is not None and not _same(code, original[code.co_qualname]):
                swapped.append((function, function.__code__))
                function.__code__ = code
        if not swapped:
            raise DoesNotApply(f"{mutant.name}: no function of {mutant.module} changed")
        yield len(swapped)
    finally:
        for function, code in swapped:
            function.__code__ = code


def _same(a: CodeType, b: CodeType) -> bool:
    """Equal but for line numbers."""
    if (a.co_code, a.co_names, a.co_varnames, a.co_freevars) != (b.co_code, b.co_names, b.co_varnames, b.co_freevars):
        return False
    pairs = zip(a.co_consts, b.co_consts, strict=False)
    return len(a.co_consts) == len(b.co_consts) and all(
        _same(x, y) if isinstance(x, CodeType) and isinstance(y, CodeType) else (type(x), x) == (type(y), y)
        for x, y in pairs
    )


def killed_by(mutant: Mutant, trials: list[Callable[[], object]]) -> str:
    """The first error a trial dies with under the mutant, or "" when it survives them all."""
    with applied(mutant):
        for trial in trials:
            try:
                trial()
            except Exception as error:
                return f"{type(error).__name__}: {error}"
    return ""

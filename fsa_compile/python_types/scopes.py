"""Where the names in annotations are looked up, and what reads annotations."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits
from fsa_compile.python_types.read_marks import Condition
from fsa_compile.python_types.shapes import Shape

_ANNOTATION = CompileLimits(max_values=20_000)
"""Limits of one annotation: Python resolves its names part by part."""


class Scope(NamedTuple):
    """What names and type variables mean in some place.

    Attributes:
      names: for forward references.
      variables: types by type variable.
      texts: conditions of every str that has none of the same name, from the config of the class around it.
      by_value: whether that config keeps members of enums as their values.
    """

    names: dict[str, Any]
    variables: dict[Any, Any]
    texts: tuple[Condition, ...] = ()
    by_value: bool = False


class TypeReader(Protocol):
    """What reads the types of a class's fields; `reader.Reader` is it."""

    namespace: dict[str, Any]
    allow_code: bool

    def read(self, T: Any, place: str, scope: Scope, marks: tuple[Condition, ...] = ()) -> Shape:
        """The shape of a type at a place."""

    def defined(self, key: Hashable, name: str, make: Callable[[], Shape]) -> Shape:
        """The shape under a key, made when it is first asked for, so that types may refer to themselves."""


def substituted(T: Any, scope: Scope) -> Any:
    """A type argument with the type variables of its scope, and `Self`, replaced."""
    T = _with_own(T, scope.names.get("typing.Self", typing.Self))
    if isinstance(T, typing.TypeVar):
        return type_of_variable(T, scope)
    parameters = getattr(T, "__parameters__", ())
    if parameters and typing.get_origin(T) is not None:
        return T[tuple([type_of_variable(p, scope) for p in parameters])]
    return T


def _with_own(T: Any, own: Any) -> Any:
    """A type with `Self` replaced wherever it stands."""
    if T is typing.Self:
        return own
    origin, args = typing.get_origin(T), typing.get_args(T)
    if origin is typing.Literal or not args:
        return T
    if origin is typing.Annotated:
        return typing.Annotated[(_with_own(args[0], own), *args[1:])]
    replaced = tuple([_with_own(x, own) for x in args])
    if all(x is y for x, y in zip(args, replaced)):
        return T
    return typing.Union[replaced] if origin in (typing.Union, types.UnionType) else origin[replaced]  # noqa: UP007


def type_of_variable(T: Any, scope: Scope) -> Any:
    if T in scope.variables:
        return scope.variables[T]
    default = getattr(T, "__default__", None)
    if default is not None and type(default).__name__ not in ("NoDefaultType", "NoDefault"):
        return default
    if T.__constraints__:
        return typing.Union[T.__constraints__]  # noqa: UP007
    return T.__bound__ if T.__bound__ is not None else Any


def check_size(T: Any, limits: CompileLimits) -> None:
    """Checks how many types a type has within it, before anything prints, hashes or reads it: what it holds twice counts twice.

    Raises:
      LimitError: `max_values` or `max_nesting` is exceeded.
    """
    found: dict[int, tuple[int, int]] = {}  # size and height by identity
    todo, opened = [T], set[int]()
    while todo:
        key, parts = id(todo[-1]), _parts(todo[-1])
        if key not in opened:
            opened.add(key)
            todo += [part for part in parts if id(part) not in opened]
            continue
        todo.pop()
        if key in found:
            continue
        size = 1 + sum([found[id(part)][0] for part in parts])
        height = 1 + max([found[id(part)][1] for part in parts], default=0)
        for name, most, has in (("max_values", limits.max_values, size), ("max_nesting", limits.max_nesting, height)):
            if has > most:
                raise LimitError(name, most, "the type")
        found[key] = size, height


def _parts(T: Any) -> tuple[Any, ...]:
    """The types in a generic type; values of literals and marks are none."""
    return () if typing.get_origin(T) in (None, typing.Literal) else getattr(T, "__args__", ())


def hints_of(annotated: Any, names: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a class or function, their names resolved; raises what evaluating them raises."""
    for holder in (*getattr(annotated, "__mro__", ()), annotated):
        annotations = getattr(holder, "__annotations__", None)
        for annotation in annotations.values() if isinstance(annotations, dict) else ():
            check_size(annotation, _ANNOTATION)
    return typing.get_type_hints(annotated, localns=names, include_extras=True)

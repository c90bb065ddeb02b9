"""Where the names in annotations are looked up, and what reads annotations."""

from __future__ import annotations

import typing
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

from fsa_compile.python_types.read_marks import Condition
from fsa_compile.python_types.shapes import Shape


class Scope(NamedTuple):
    """What names and type variables mean in some place.

    Attributes:
      names: for forward references.
      variables: types by type variable.
    """

    names: dict[str, Any]
    variables: dict[Any, Any]


class TypeReader(Protocol):
    """What reads the types of a class's fields; `reader.Reader` is it."""

    namespace: dict[str, Any]
    allow_code: bool

    def read(self, T: Any, place: str, scope: Scope, marks: tuple[Condition, ...] = ()) -> Shape:
        """The shape of a type at a place."""

    def defined(self, key: Hashable, name: str, make: Callable[[], Shape]) -> Shape:
        """The shape under a key, made when it is first asked for, so that types may refer to themselves."""


def substituted(T: Any, scope: Scope) -> Any:
    """A type argument with the type variables of its scope replaced."""
    if isinstance(T, typing.TypeVar):
        return type_of_variable(T, scope)
    parameters = getattr(T, "__parameters__", ())
    if parameters and typing.get_origin(T) is not None:
        return T[tuple([type_of_variable(p, scope) for p in parameters])]
    return T


def type_of_variable(T: Any, scope: Scope) -> Any:
    if T in scope.variables:
        return scope.variables[T]
    default = getattr(T, "__default__", None)
    if default is not None and type(default).__name__ not in ("NoDefaultType", "NoDefault"):
        return default
    if T.__constraints__:
        return typing.Union[T.__constraints__]  # noqa: UP007
    return T.__bound__ if T.__bound__ is not None else Any

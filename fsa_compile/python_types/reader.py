"""Python types to shapes: aliases, generics, forward references and containers. Classes with fields are read by `records`."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import sys
import types
import typing
import uuid
from fractions import Fraction
from typing import Any

from fsa_compile.errors import ConstraintError, LimitError, checked_flag, shown
from fsa_compile.inputs.json_input import digits_of
from fsa_compile.limits import MOST_DIGITS, CompileLimits, check_time
from fsa_compile.python_types import records, shapes, spellings
from fsa_compile.python_types.read_marks import Condition, conditions
from fsa_compile.python_types.scopes import Scope, substituted, type_of_variable
from fsa_compile.python_types.shapes import Shape, TypeShape
from fsa_compile.python_types.type_errors import UnsupportedTypeError

_MANY: dict[Any, type] = {
    list: list, set: set, frozenset: frozenset, collections.deque: collections.deque,
    collections.abc.Sequence: list, collections.abc.MutableSequence: list, collections.abc.Collection: list,
    collections.abc.Iterable: list, collections.abc.Set: frozenset, collections.abc.MutableSet: set,
}  # fmt: skip
_MAPPINGS = (dict, collections.OrderedDict, collections.abc.Mapping, collections.abc.MutableMapping)
_QUALIFIERS = ("Final", "Required", "NotRequired", "ReadOnly", "InitVar")

_LONGEST_NAME = 200
"""Characters of a type's name: every place within it begins with them."""
_MOST_DIGITS = 1_200
_MOST_BITS = int(_MOST_DIGITS * 3.32)


def read_type(
    T: Any, *, namespace: dict[str, Any] | None = None, allow_code: bool = False, limits: CompileLimits | None = None
) -> TypeShape:
    """The shape of a type.

    Args:
      namespace: names for forward references that their own modules do not know.
      allow_code: whether validators and `__post_init__` may be there, which only `parse` runs.

    Raises:
      UnsupportedTypeError: a part cannot be enforced exactly.
    """
    reader = Reader({} if namespace is None else namespace, allow_code, limits)
    name = type_name(T)
    name = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    root = reader.read(T, name, Scope(reader.namespace, {}))
    shape = TypeShape(name, root, reader.definitions)
    _check_references(shape)
    return shape


def _check_references(shape: TypeShape) -> None:
    """Raises where an alias is nothing but itself."""
    for name in shape.definitions:
        seen = {name}
        found = shape.definitions[name]
        while isinstance(found, shapes.Reference):
            if found.name in seen:
                raise UnsupportedTypeError("the alias is defined as itself", place=name)
            seen.add(found.name)
            found = shape.definitions[found.name]


def type_name(T: Any) -> str:
    """A type's name for people."""
    if isinstance(T, type) and not typing.get_args(T):
        return T.__name__
    try:
        return str(T).replace("typing.", "").replace("__main__.", "")
    except RecursionError:
        raise
    except Exception:  # what stands in it cannot be printed
        return type(T).__name__


class Reader:
    """Reads types into one set of definitions.

    Attributes:
      namespace: names for forward references, besides those of modules.
      allow_code: see `read_type`.
      definitions: records and aliases by name, in the order of their first use.
    """

    def __init__(self, namespace: dict[str, Any], allow_code: bool, limits: CompileLimits | None = None) -> None:
        if not isinstance(namespace, collections.abc.Mapping):
            raise ConstraintError(f"the namespace is {shown(namespace)}", fix="Give names and what they mean, such as locals().")
        self.namespace, self.allow_code = namespace, checked_flag(allow_code, "allow_code")
        self._most = self._left = (limits or CompileLimits()).max_values
        self.definitions: dict[str, Shape] = {}
        self._known: dict[Any, str] = {}

    def read(self, T: Any, place: str, scope: Scope, marks: tuple[Condition, ...] = ()) -> Shape:
        """The shape of one type. `T`: the type, or a string that names it. `marks`: conditions from an `Annotated` around it."""
        self._left -= 1
        if self._left < 0:
            raise LimitError("max_values", self._most, "the type")
        if not self._left % 256:
            check_time("reading the type")
        if T is typing.Self or type(T).__name__ == "PydanticRecursiveRef":
            T = scope.names.get("typing.Self" if T is typing.Self else T.type_ref, T)
        if isinstance(T, (str, typing.ForwardRef)):
            return self._forward(T, place, scope, marks)
        if isinstance(T, typing.TypeVar):
            return self.read(type_of_variable(T, scope), place, scope, marks)
        if hasattr(T, "__supertype__"):
            return self.read(T.__supertype__, place, scope, marks)
        origin, args = typing.get_origin(T), typing.get_args(T)
        if origin is typing.Annotated:
            inner = tuple(conditions(T.__metadata__, place, self.allow_code))
            return self.read(T.__origin__, place, scope, inner + marks)
        if getattr(origin, "_name", None) in _QUALIFIERS or getattr(origin, "__name__", None) in _QUALIFIERS:
            return self.read(args[0], place, scope, marks)
        if origin in (typing.Union, types.UnionType):
            return self._union(args, place, scope, marks)
        if origin is typing.Literal:
            return _unmarked(shapes.Options(tuple([_literal(x, place) for x in args]), scope.by_value), marks, place)
        if hasattr(T, "__value__") or hasattr(origin, "__value__"):
            return self._alias(T, origin, args, place, scope, marks)
        plain = self._plain(T, place, scope)
        if isinstance(plain, shapes.Text):
            given = {mark.name for mark in marks}
            marks += tuple([mark for mark in scope.texts if mark.name not in given])
        if plain is not None:
            return constrained(plain, marks, place)
        container = self._container(T, origin or T, args, place, scope) if isinstance(T, collections.abc.Hashable) else None
        if container is not None:
            return constrained(container, marks, place)
        tag = next((mark.value for mark in marks if mark.name == "tag"), None)
        marks = tuple([mark for mark in marks if mark.name != "tag"])
        made = records.read(self, T, origin, args, scope, tag)
        if made is None:
            raise UnsupportedTypeError(
                f"{type_name(T)} is not a type that can be enforced", place=place,
                fix="Use dataclasses, pydantic models, TypedDict, NamedTuple, Enum, Literal, unions, containers and scalars.",
            )  # fmt: skip
        return _unmarked(made, marks, place)

    def defined(self, key: Any, name: str, make: typing.Callable[[], Shape]) -> shapes.Reference:
        """A reference to a definition, which is made when it is needed first; it may refer to itself."""
        found = self._known.get(key)
        if found is None:
            found, count = name, 2
            while found in self.definitions:
                found, count = f"{name}_{count}", count + 1
            self._known[key] = found
            self.definitions[found] = shapes.Nothing()
            self.definitions[found] = make()
        return shapes.Reference(found)

    def _forward(self, T: str | typing.ForwardRef, place: str, scope: Scope, marks: tuple[Condition, ...]) -> Shape:
        """What a name stands for; an alias may stand in itself."""
        found = self._resolved(T, place, scope)
        if marks or isinstance(found, (type, str)):
            return self.read(found, place, scope, marks)
        name = T if isinstance(T, str) else T.__forward_arg__
        own = ("alias", found, scope.names.get("typing.Self"), *scope.variables.values(), *scope[2:])
        return self.defined(own, name, lambda: self.read(found, name, scope))

    def _resolved(self, T: str | typing.ForwardRef, place: str, scope: Scope) -> Any:
        text = T if isinstance(T, str) else T.__forward_arg__
        names = dict(scope.names)
        module = getattr(T, "__forward_module__", None)
        if module is not None:
            names = {**(vars(sys.modules[module]) if isinstance(module, str) else vars(module)), **names}
        try:
            return eval(text, {**vars(typing), **names})
        except Exception as error:
            raise UnsupportedTypeError(
                f"the forward reference {text!r} cannot be resolved ({error})", place=place,
                fix="Define the name in the type's module, or pass namespace={...}.",
            ) from None  # fmt: skip

    def _union(self, members: tuple[Any, ...], place: str, scope: Scope, marks: tuple[Condition, ...]) -> Shape:
        found: list[Shape] = []
        nothing = (None, type(None))
        several = sum(member not in nothing for member in members) > 1
        for member in members:
            shape = self.read(member, place, scope, () if member in nothing else marks)
            if isinstance(shape, shapes.Text) and marks and several:  # these do not take the place of the config's
                shape = constrained(shape, scope.texts, place)
            found += shape.members if isinstance(shape, shapes.Either) else (shape,)
        return shapes.Either(tuple(dict.fromkeys(found))) if len(found) > 1 else found[0]

    def _alias(
        self, T: Any, origin: Any, args: tuple[Any, ...], place: str, scope: Scope, marks: tuple[Condition, ...]
    ) -> Shape:
        """`type X = ...`, with or without parameters."""
        alias = T if origin is None else origin
        module = sys.modules.get(alias.__module__)
        names = {**(vars(module) if module else {}), **self.namespace}
        variables = dict(zip(alias.__type_params__, [substituted(x, scope) for x in args]))
        inner = scope._replace(names=names, variables=variables)
        if marks:
            return self.read(alias.__value__, place, inner, marks)
        name = type_name(T)
        own = (alias, *variables.values(), *scope[2:])
        return self.defined(own, name, lambda: self.read(alias.__value__, name, inner))

    def _plain(self, T: Any, place: str, scope: Scope) -> Shape | None:
        if T is None or T is type(None):
            return shapes.Nothing()
        if T is Any or T is object:
            return shapes.Anything()
        simple: dict[Any, Shape] = {
            bool: shapes.Truth(), int: shapes.Number("int"), float: shapes.Number("float"), str: shapes.Text(),
            bytes: shapes.Binary(), decimal.Decimal: shapes.Number("Decimal"), datetime.date: spellings.date(),
            datetime.datetime: spellings.moment(), datetime.time: spellings.time(),
            datetime.timedelta: spellings.timedelta(), uuid.UUID: spellings.identifier(),
        }  # fmt: skip
        if isinstance(T, type) and T in simple:
            return simple[T]
        if isinstance(T, type) and issubclass(T, enum.Enum):
            return dataclasses.replace(_enum(T, place), by_value=scope.by_value)
        if getattr(T, "__module__", "") == "pydantic.types" and T.__name__ in ("AwareDatetime", "NaiveDatetime"):
            return spellings.moment("aware" if T.__name__ == "AwareDatetime" else "naive")
        return None

    def _container(self, T: Any, origin: Any, args: tuple[Any, ...], place: str, scope: Scope) -> Shape | None:
        if origin is tuple:
            _check_unpacked(args, place)
            if not args:
                bare = T is tuple or T is typing.Tuple  # noqa: UP006
                return shapes.Many(shapes.Anything(), tuple) if bare else shapes.Row(())
            if len(args) == 2 and args[1] is ...:
                return shapes.Many(self.read(args[0], f"{place}[]", scope), tuple)
            return shapes.Row(tuple([self.read(x, f"{place}[{i}]", scope) for i, x in enumerate(args)]))
        if origin in _MAPPINGS:
            key = self.read(args[0], f"{place}{{key}}", scope) if args else shapes.Text()
            self._check_hashable(key, f"{place}{{key}}")
            value = self.read(args[1], f"{place}{{}}", scope) if args else shapes.Anything()
            return shapes.Mapping(key, value, build=origin if isinstance(origin, type) and issubclass(origin, dict) else dict)
        if origin in _MANY:
            build = _MANY[origin]
            item = self.read(args[0], f"{place}[]", scope) if args else shapes.Anything()
            if build in (set, frozenset):
                self._check_hashable(item, f"{place}[]")
            return shapes.Many(item, build)
        return None

    def _check_hashable(self, shape: Shape, place: str, seen: frozenset[str] = frozenset()) -> None:
        """Raises when values of the shape cannot be in a set."""
        if isinstance(shape, shapes.Reference) and shape.name not in seen:
            self._check_hashable(self.definitions[shape.name], place, seen | {shape.name})
        elif isinstance(shape, (shapes.Either, shapes.Row)):
            for part in shape.members if isinstance(shape, shapes.Either) else shape.items:
                self._check_hashable(part, place, seen)
        elif isinstance(shape, shapes.Many) and shape.build in (tuple, frozenset):
            self._check_hashable(shape.item, place, seen)
        elif not _may_hash(shape):
            raise UnsupportedTypeError(
                "its values cannot be hashed, so no set or dict can hold them", place=place,
                fix="Use a list, a tuple or a frozen dataclass.",
            )  # fmt: skip


def _check_unpacked(args: tuple[Any, ...], place: str) -> None:
    """Raises for elements that are another tuple's, as in `tuple[int, *tuple[str, ...]]`."""
    for i, arg in enumerate(args):
        if getattr(arg, "__unpacked__", False) or typing.get_origin(arg) is typing.Unpack:
            raise UnsupportedTypeError(
                f"{type_name(arg)} is an unpacked tuple", place=f"{place}[{i}]",
                fix="Write its elements one by one; of any number of them tuple[T, ...] or a list of its own.",
            )  # fmt: skip


def _may_hash(shape: Shape) -> bool:
    if isinstance(shape, (shapes.Many, shapes.Mapping, shapes.Anything)):
        return False
    if hasattr(shape, "type"):
        return shape.type.__hash__ is not None
    return True


# finite lists


def _literal(value: Any, place: str) -> shapes.Option:
    if isinstance(value, enum.Enum):
        return shapes.Option(value, _constant(value.value, place), f"{type(value).__name__}.{value.name}")
    constant = _constant(value, place) if not isinstance(value, bytes) else value
    return shapes.Option(value, constant, repr(value))


def _enum(T: type[enum.Enum], place: str) -> shapes.Options:
    if issubclass(T, enum.Flag):
        raise UnsupportedTypeError("flags combine into values without a name", place=place, fix="Use a set of an Enum.")
    if not len(T):
        raise UnsupportedTypeError(f"{T.__name__} has no members", place=place)
    return shapes.Options(tuple([shapes.Option(m, _constant(m.value, place), f"{T.__name__}.{m.name}") for m in T]))


def _constant(value: Any, place: str) -> Any:
    """What JSON writes for a value of a finite list; the value itself where JSON has no word for it."""
    if isinstance(value, str) and any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise UnsupportedTypeError(f"{value!r:.40} is no Unicode text", place=place)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        what = f"a number has more than {_MOST_DIGITS:,} digits"
        raise UnsupportedTypeError(what, place=place, fix="Use smaller numbers, or their digits as a string.")
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain(value)
    return value


# conditions


def _unmarked(shape: Shape, marks: tuple[Condition, ...], place: str) -> Shape:
    if marks:
        raise _misplaced(marks[0], place)
    return shape


def _misplaced(mark: Condition, place: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"{mark.name}={shown(mark.value, 40)} says nothing about this type", place=place,
        fix="Move it to a type that it is about.",
    )  # fmt: skip


def constrained(shape: Shape, marks: tuple[Condition, ...], place: str) -> Shape:
    """The shape with further conditions.

    Raises:
      UnsupportedTypeError: a condition is not about such values.
    """
    for mark in marks:
        if isinstance(shape, shapes.Number) and mark.name in ("gt", "ge", "lt", "le", "multiple_of"):
            shape = _bounded(shape, mark, place)
        elif isinstance(shape, (shapes.Text, shapes.Many, shapes.Mapping)) and mark.name in ("min_length", "max_length"):
            shape = _sized(shape, mark, place)
        elif isinstance(shape, shapes.Text) and mark.name == "pattern":
            shape = dataclasses.replace(shape, patterns=(*shape.patterns, mark.value))
        elif isinstance(shape, shapes.Special) and shape.name == "datetime" and mark.name == "zone":
            shape = spellings.moment(mark.value)
        elif isinstance(shape, shapes.Special) and shape.name == "UUID" and mark.name == "version":
            shape = spellings.identifier(mark.value)
        else:
            raise _misplaced(mark, place)
    return shape


def _sized(shape: shapes.Text | shapes.Many | shapes.Mapping, mark: Condition, place: str) -> Shape:
    if not isinstance(mark.value, int) or isinstance(mark.value, bool) or mark.value < 0:
        raise UnsupportedTypeError(f"{mark.name} must be an int that is not negative, not {shown(mark.value, 40)}", place=place)
    if mark.name == "min_length":
        return dataclasses.replace(shape, low=max(shape.low, mark.value))
    return dataclasses.replace(shape, high=mark.value if shape.high is None else min(shape.high, mark.value))


def _bounded(shape: shapes.Number, mark: Condition, place: str) -> shapes.Number:
    if isinstance(mark.value, bool) or not isinstance(mark.value, (int, float, decimal.Decimal)):
        raise UnsupportedTypeError(f"{mark.name} must be a number, not {shown(mark.value, 40)}", place=place)
    if not (isinstance(mark.value, decimal.Decimal) and not mark.value.is_finite()) and digits_of(mark.value) > MOST_DIGITS:
        raise UnsupportedTypeError(f"{mark.name} is a number of more than {MOST_DIGITS:,} digits", place=place)
    if mark.name == "multiple_of":
        factor = Fraction(decimal.Decimal(repr(mark.value)) if isinstance(mark.value, float) else mark.value)
        if factor <= 0:
            raise UnsupportedTypeError("multiple_of must be positive", place=place)
        return dataclasses.replace(shape, multiples=(*shape.multiples, factor))
    try:
        own: Any = mark.value  # as pydantic reads it: 0.1 is the decimal, not what the float is exactly
        if shape.kind == "Decimal" and isinstance(own, float):
            own = decimal.Decimal(repr(own))
        elif shape.kind == "float":
            own = float(own)
        bound, strict = Fraction(own), mark.name in ("gt", "lt")
        if mark.name in ("gt", "ge"):
            limit = spellings.float_low(bound, strict) if shape.kind == "float" else (bound, strict)
            if shape.low is None or limit > (shape.low, shape.low_open):
                shape = dataclasses.replace(shape, low=limit[0], low_open=limit[1])
        else:
            limit = spellings.float_high(bound, strict) if shape.kind == "float" else (bound, strict)
            if shape.high is None or (-limit[0], limit[1]) > (-shape.high, shape.high_open):
                shape = dataclasses.replace(shape, high=limit[0], high_open=limit[1])
    except (OverflowError, ValueError):
        what = f"{mark.name}={shown(mark.value)} is no finite bound"
        raise UnsupportedTypeError(what, place=place, fix="Leave it out.") from None
    return shape

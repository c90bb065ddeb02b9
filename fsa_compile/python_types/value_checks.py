"""Conditions on values that both styles check when they read and write."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeVar

from fsa_compile.python_types import shapes, spellings
from fsa_compile.python_types.shapes import Shape
from fsa_compile.python_types.type_errors import TypeTextError, UnwritableError

T = TypeVar("T")
V = TypeVar("V")
_TYPES: dict[str, type] = {"int": int, "float": float, "Decimal": Decimal}
_UNTYPED: dict[type, Shape] = {
    type(None): shapes.Nothing(), bool: shapes.Truth(), int: shapes.Number("int"), float: shapes.Number("float"),
    str: shapes.Text(), list: shapes.Many(shapes.Anything(), list), dict: shapes.Mapping(shapes.Text(), shapes.Anything()),
}  # fmt: skip


def shown(value: Any, length: int = 40) -> str:
    """A value in an error."""
    try:
        return f"{value!r:.{length}}"
    except ValueError:  # an int of more than 4,300 digits
        return f"a long {type(value).__name__}"


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def number(shape: shapes.Number, text: str, place: str, exact: bool = False) -> int | float | Decimal:
    """The number of a text; if `exact`, a float that loses none of its digits."""
    if _compiled(spellings.number_pattern(shape)).fullmatch(text) is None:
        raise TypeTextError(f"{text:.40} is not how a number of type {shape.kind} is written here", place=place)
    if not spellings.holds(shape, Fraction(text) if len(text) < 1000 else Fraction(Decimal(text))):
        raise TypeTextError(f"{text:.40} is out of bounds, or no multiple", place=place)
    value = spellings.read_number(shape, text)
    if exact and isinstance(value, float) and Decimal(repr(value)) != Decimal(text):
        raise TypeTextError(f"{text:.40} has more digits than a float", place=place)
    return value


def untyped_number(text: str, place: str, exact: bool) -> int | float | Decimal:
    """The number of a text whose type does not matter."""
    kind: Literal["int", "float"] = "int" if _compiled(spellings.INTEGER).fullmatch(text) else "float"
    return number(shapes.Number(kind), text, place, exact)


def untyped(value: Any, place: str) -> Shape:
    """The shape by which a value is written whose type does not matter."""
    for kind, shape in _UNTYPED.items():
        if isinstance(value, kind):
            return shape
    raise TypeTextError(f"{shown(value)} is none of None, bool, int, float, str, list and dict", place=place)


def is_a(value: Any, kind: type) -> bool:
    """Whether a value is an instance of a type."""
    return isinstance(value, kind)


def is_number(shape: shapes.Number, value: Any) -> bool:
    """Whether a value has the number's type; an int may stand for a float."""
    if isinstance(value, bool):
        return False
    return isinstance(value, (float, int) if shape.kind == "float" else _TYPES[shape.kind])


def number_value(shape: shapes.Number, value: Any, place: str) -> Any:
    """A number to be written, in its own type and within its bounds."""
    try:
        own = value if shape.kind == "Decimal" else _TYPES[shape.kind](value)
        written = spellings.number_text(shape, own) if Decimal(own).is_finite() else ""
    except OverflowError:
        written = ""
    if _compiled(spellings.number_pattern(shape)).fullmatch(written) is None:
        raise UnwritableError(f"{shown(value)} cannot be written", place=place)
    if isinstance(value, int) and Decimal(written) != value:
        raise UnwritableError(f"{shown(value)} has more digits than a float", place=place)
    if not spellings.holds(shape, Fraction(Decimal(written))):
        raise TypeTextError(f"{shown(value)} is out of bounds, or no multiple", place=place)
    return own


def text(shape: shapes.Text, value: str, place: str) -> str:
    """A str that keeps to length and patterns."""
    if len(value) < shape.low or (shape.high is not None and len(value) > shape.high):
        raise TypeTextError(f"a string of length {len(value)} is too long or too short", place=place)
    for pattern in shape.patterns:
        if _compiled(pattern).fullmatch(value) is None:
            raise TypeTextError(f"{shown(value)} does not match {pattern!r:.60}", place=place)
    if any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise TypeTextError(f"{shown(value)} is no Unicode text", place=place)
    return value


def special(shape: shapes.Special, value: str, place: str) -> Any:
    """The value of a special text."""
    if _compiled(shape.pattern).fullmatch(value) is None:
        raise TypeTextError(f"{shown(value)} is no {shape.name}", place=place)
    return shape.read(value)


def special_text(shape: shapes.Special, value: Any, place: str) -> str:
    """The text of a special value."""
    if type(value).__name__ != shape.name:
        raise TypeTextError(f"{shown(value)} is no {shape.name}", place=place)
    written = shape.write(value)
    if _compiled(shape.pattern).fullmatch(written) is None:
        raise UnwritableError(f"{shown(value, 60)} cannot be written", place=place)
    return written


def option(shape: shapes.Options, value: Any, place: str) -> shapes.Option:
    """The entry of a listed value."""
    for found in shape.options:
        by_value = shape.by_value and isinstance(found.value, enum.Enum)
        for own in (found.value, found.value.value) if by_value else (found.value,):
            if type(own) is type(value) and own == value:
                return found
    raise TypeTextError(f"{shown(value)} is not one of the listed values", place=place)


def first(members: Iterable[Shape], attempt: Callable[[Shape], T], place: str) -> T:
    """What the first member that fits gives."""
    error = None
    for member in members:
        try:
            return attempt(member)
        except TypeTextError as found:
            rank = len(found.place), isinstance(found, UnwritableError)
            if error is None or rank > (len(error.place), isinstance(error, UnwritableError)):
                error = found
    raise TypeTextError(f"no member of the union fits ({error.what if error else ''})", place=error.place if error else place)


class UnionReader:
    """What readers of both styles know of unions: the first member counts that keeps all digits, else the first that fits."""

    def __init__(self) -> None:
        self.exact = False
        self._inexact: set[tuple[int, int]] = set()

    def either(
        self, shape: shapes.Either, members: Iterable[Shape], attempt: Callable[[Shape], T], source: object, place: str
    ) -> T:
        """What the member gives that a union's text is read as; `source` is the text's part."""
        if self.exact:
            return self._exact(shape, members, attempt, source, place)
        self.exact = True
        try:
            return self._exact(shape, members, attempt, source, place)
        except TypeTextError:
            self.exact = False
            return first(members, attempt, place)
        finally:
            self.exact = False

    def _exact(
        self, shape: shapes.Either, members: Iterable[Shape], attempt: Callable[[Shape], T], source: object, place: str
    ) -> T:
        pair = id(shape), id(source)  # members that begin alike would read what is in them twice, at every level
        if pair in self._inexact:
            raise TypeTextError("no member of the union fits", place=place)
        try:
            return first(members, attempt, place)
        except TypeTextError:
            self._inexact.add(pair)
            raise


def collected(shape: shapes.Many | shapes.Mapping, parts: Any, place: str) -> Any:
    """A collection, or a dict, of the type that is asked for."""
    return sized(shape, shape.build(parts), place)


def sized(shape: shapes.Many | shapes.Mapping, value: Any, place: str) -> Any:
    """A collection whose size is within bounds."""
    if len(value) < shape.low or (shape.high is not None and len(value) > shape.high):
        raise TypeTextError(f"{len(value)} elements are too many or too few", place=place)
    return value


def complete(shape: shapes.Record, values: dict[str, Any], place: str) -> None:
    """Raises when a required field is missing."""
    for field in shape.fields:
        if field.required and field.key not in values:
            raise TypeTextError(f"the field {field.key!r} is missing", place=place)


def record(
    shape: shapes.Record, pairs: Iterable[tuple[Any, V]], read: Callable[[Shape, V, str], Any], place: str, what: str
) -> Any:
    """The object of named parts of a text; `what` they are called in errors."""
    fields = {f.key: f for f in shape.fields}
    values: dict[str, Any] = {}
    for key, below in pairs:
        if key not in fields or key in values:
            raise TypeTextError(f"the {what} {key!r:.40} {'comes twice' if key in values else 'is unknown'}", place=place)
        values[key] = read(fields[key].shape, below, f"{place}.{fields[key].name}")
    complete(shape, values, place)
    return built(shape.build, values, place)


def built(build: Callable[[Any], Any], values: Any, place: str) -> Any:
    """The object of checked values; its class may still refuse them."""
    try:
        return build(values)
    except TypeTextError:
        raise
    except Exception as error:
        raise TypeTextError(f"its class refuses these values ({error})", place=place) from error


def field_values(shape: shapes.Record, value: Any, place: str) -> list[tuple[shapes.Field, Any]]:
    """The fields of a value that are to be written, in order."""
    if shape.kind == "dict":
        if not isinstance(value, dict) or set(value) - {f.key for f in shape.fields}:
            raise TypeTextError(f"{shown(value)} is no {shape.name}", place=place)
        complete(shape, value, place)
        return [(f, value[f.key]) for f in shape.fields if f.key in value]
    if not isinstance(value, shape.type):
        raise TypeTextError(f"{shown(value)} is no {shape.name}", place=place)
    return [(f, getattr(value, f.name)) for f in shape.fields]

"""Conditions on values that both styles check when they read and write."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

from fsa_compile.python_types import spellings
from fsa_compile.python_types.shapes import Field, Many, Mapping, Number, Option, Options, Record, Shape, Special, Text
from fsa_compile.python_types.type_errors import TypeTextError, UnwritableError

T = TypeVar("T")
_TYPES: dict[str, type] = {"int": int, "float": float, "Decimal": Decimal}


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def number(shape: Number, text: str, place: str) -> int | float | Decimal:
    """The number of a text."""
    if _compiled(spellings.number_pattern(shape)).fullmatch(text) is None:
        raise TypeTextError(f"{text:.40} is not how a number of type {shape.kind} is written here", place=place)
    if not spellings.holds(shape, Fraction(text) if len(text) < 1000 else Fraction(Decimal(text))):
        raise TypeTextError(f"{text:.40} is out of bounds, or no multiple", place=place)
    return spellings.read_number(shape, text)


def is_a(value: Any, kind: type) -> bool:
    """Whether a value is an instance of a type."""
    return isinstance(value, kind)


def is_number(shape: Number, value: Any) -> bool:
    """Whether a value has the number's type; an int may stand for a float."""
    if isinstance(value, bool):
        return False
    return isinstance(value, (float, int) if shape.kind == "float" else _TYPES[shape.kind])


def number_value(shape: Number, value: Any, place: str) -> Any:
    """A number to be written, in its own type and within its bounds."""
    value = float(value) if shape.kind == "float" else int(value) if shape.kind == "int" else value
    finite = value.is_finite() if isinstance(value, Decimal) else value - value == 0
    written = spellings.number_text(shape, value) if finite else ""
    if _compiled(spellings.number_pattern(shape)).fullmatch(written) is None:
        raise UnwritableError(f"{value!r:.40} cannot be written", place=place)
    if not spellings.holds(shape, Fraction(Decimal(written))):
        raise TypeTextError(f"{value!r:.40} is out of bounds, or no multiple", place=place)
    return value


def text(shape: Text, value: str, place: str) -> str:
    """A str that keeps to length and patterns."""
    if len(value) < shape.low or (shape.high is not None and len(value) > shape.high):
        raise TypeTextError(f"a string of length {len(value)} is too long or too short", place=place)
    for pattern in shape.patterns:
        if _compiled(pattern).fullmatch(value) is None:
            raise TypeTextError(f"{value!r:.40} does not match {pattern!r:.60}", place=place)
    if any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise TypeTextError(f"{value!r:.40} is no Unicode text", place=place)
    return value


def special(shape: Special, value: str, place: str) -> Any:
    """The value of a special text."""
    if _compiled(shape.pattern).fullmatch(value) is None:
        raise TypeTextError(f"{value!r:.40} is no {shape.name}", place=place)
    return shape.read(value)


def special_text(shape: Special, value: Any, place: str) -> str:
    """The text of a special value."""
    if type(value).__name__ != shape.name:
        raise TypeTextError(f"{value!r:.40} is no {shape.name}", place=place)
    written = shape.write(value)
    if _compiled(shape.pattern).fullmatch(written) is None:
        raise UnwritableError(f"{value!r:.60} cannot be written", place=place)
    return written


def option(shape: Options, value: Any, place: str) -> Option:
    """The entry of a listed value."""
    for found in shape.options:
        if type(found.value) is type(value) and found.value == value:
            return found
    raise TypeTextError(f"{value!r:.40} is not one of the listed values", place=place)


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


def many(shape: Many, items: list[Any], place: str) -> Any:
    """A collection of elements."""
    return sized(shape, shape.build(items), place)


def mapping(shape: Mapping, pairs: dict[Any, Any], place: str) -> dict[Any, Any]:
    """A dict of the type that is asked for."""
    return sized(shape, shape.build(pairs), place)


def sized(shape: Many | Mapping, value: Any, place: str) -> Any:
    """A collection whose size is within bounds."""
    if len(value) < shape.low or (shape.high is not None and len(value) > shape.high):
        raise TypeTextError(f"{len(value)} elements are too many or too few", place=place)
    return value


def complete(shape: Record, values: dict[str, Any], place: str) -> None:
    """Raises when a required field is missing."""
    for field in shape.fields:
        if field.required and field.key not in values:
            raise TypeTextError(f"the field {field.key!r} is missing", place=place)


def built(build: Callable[[Any], Any], values: Any, place: str) -> Any:
    """The object of checked values; its class may still refuse them."""
    try:
        return build(values)
    except TypeTextError:
        raise
    except Exception as error:
        raise TypeTextError(f"its class refuses these values ({error})", place=place) from error


def field_values(shape: Record, value: Any, place: str) -> list[tuple[Field, Any]]:
    """The fields of a value that are to be written, in order."""
    if shape.kind == "dict":
        if not isinstance(value, dict) or set(value) - {f.key for f in shape.fields}:
            raise TypeTextError(f"{value!r:.40} is no {shape.name}", place=place)
        complete(shape, value, place)
        return [(f, value[f.key]) for f in shape.fields if f.key in value]
    if not isinstance(value, shape.type):
        raise TypeTextError(f"{value!r:.40} is no {shape.name}", place=place)
    return [(f, getattr(value, f.name)) for f in shape.fields]

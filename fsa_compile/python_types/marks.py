"""Marks for `typing.Annotated`: bounds, lengths and patterns, for those who do not have `annotated_types` or pydantic.

    age: Annotated[int, Ge(0), Le(150)]
    code: Annotated[str, Pattern(r"[A-Z]{3}[0-9]+")]

Those of `annotated_types` and pydantic's `Field(...)` are understood too.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import TypeAlias

Number: TypeAlias = int | float | Decimal


@dataclasses.dataclass(frozen=True)
class Gt:
    """The number is greater than `gt`."""

    gt: Number


@dataclasses.dataclass(frozen=True)
class Ge:
    """The number is at least `ge`."""

    ge: Number


@dataclasses.dataclass(frozen=True)
class Lt:
    """The number is less than `lt`."""

    lt: Number


@dataclasses.dataclass(frozen=True)
class Le:
    """The number is at most `le`."""

    le: Number


@dataclasses.dataclass(frozen=True)
class MultipleOf:
    """The number is a multiple of `multiple_of`."""

    multiple_of: Number


@dataclasses.dataclass(frozen=True)
class Length:
    """A string has `min_length` to `max_length` code points, a collection as many elements."""

    min_length: int = 0
    max_length: int | None = None


@dataclasses.dataclass(frozen=True)
class Pattern:
    """`re.fullmatch(pattern, text)` matches the string."""

    pattern: str

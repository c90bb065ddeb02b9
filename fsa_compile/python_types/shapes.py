"""What a type's values are, freed from how Python spells types. Readers make these, the two styles write and read them.

Shapes form a graph: records and aliases are `Reference`s into the `definitions` of a `TypeShape`, so that they may recur.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, TypeAlias


def constructor(cls: type) -> str:
    """The name by which Python calls a class; a generic model's without its arguments."""
    return cls.__name__.partition("[")[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Nothing:
    """None."""


@dataclasses.dataclass(frozen=True, slots=True)
class Truth:
    """True or False."""


@dataclasses.dataclass(frozen=True, slots=True)
class Anything:
    """None, bool, int, float, str, lists of these and dicts of these with str keys."""


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """A number.

    Attributes:
      kind: the type it becomes.
      low, high: bounds on the exact number that is written, or None.
      low_open, high_open: whether the bounds themselves are outside.
      multiples: numbers that it is a multiple of.
    """

    kind: Literal["int", "float", "Decimal"]
    low: Fraction | None = None
    low_open: bool = False
    high: Fraction | None = None
    high_open: bool = False
    multiples: tuple[Fraction, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A str of `low` to `high` code points that matches all patterns from end to end."""

    low: int = 0
    high: int | None = None
    patterns: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Binary:
    """A bytes object."""


@dataclasses.dataclass(frozen=True, slots=True)
class Special:
    """A value with a text of its own, such as a date.

    Attributes:
      name: of its type.
      pattern: of its text, in Python's dialect.
      read, write: text to value and back.
      call: the function that `style="python"` calls with that text, such as `UUID`; or "" where `python_special` knows more.
    """

    name: str
    pattern: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    call: str


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One of finitely many values.

    Attributes:
      value: the value itself.
      constant: what JSON writes for it: None, bool, int, float or str.
      source: what Python writes for it.
    """

    value: Any
    constant: Any
    source: str


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """One of a finite list: Literal and Enum. `by_value`: a member of an enum is kept as its value."""

    options: tuple[Option, ...]
    by_value: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Many:
    """`low` to `high` alike elements; `build` is list, tuple, set, frozenset or deque."""

    item: Shape
    build: type
    low: int = 0
    high: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether equal elements are one."""
        return self.build in (set, frozenset)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A tuple with a shape for every element."""

    items: tuple[Shape, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Mapping:
    """A dict of `low` to `high` pairs; `build` makes it of a dict."""

    key: Shape
    value: Shape
    low: int = 0
    high: int | None = None
    build: type[dict[Any, Any]] = dict


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    Attributes:
      name: in Python.
      key: in JSON, and as an argument of the constructor.
      required: whether it must be written.
    """

    name: str
    key: str
    shape: Shape
    required: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """Named fields.

    Attributes:
      type: the class.
      kind: "object" is an object in JSON and a constructor call in Python; "row" (NamedTuple) an array in JSON; "dict"
        (TypedDict) a dict in Python.
      build: from the fields by key.
    """

    name: str
    type: type
    kind: Literal["object", "row", "dict"]
    fields: tuple[Field, ...]
    build: Callable[[dict[str, Any]], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Wrapped:
    """A class around one value, which is written without it (pydantic's RootModel)."""

    type: type
    inner: Shape
    build: Callable[[Any], Any]

    def unwrap(self, value: Any) -> Any:
        """The value inside."""
        return value.root


@dataclasses.dataclass(frozen=True, slots=True)
class Either:
    """A value of the first member that it fits."""

    members: tuple[Shape, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """A definition by its name."""

    name: str


Shape: TypeAlias = (
    Nothing
    | Truth
    | Anything
    | Number
    | Text
    | Binary
    | Special
    | Options
    | Many
    | Row
    | Mapping
    | Record
    | Wrapped
    | Either
    | Reference
)


@dataclasses.dataclass(frozen=True, slots=True)
class TypeShape:
    """A whole type. `name`: of the type, for people. `root`: its shape. `definitions`: what its references mean."""

    name: str
    root: Shape
    definitions: dict[str, Shape]

    def resolve(self, shape: Shape) -> Shape:
        """The shape behind references."""
        while isinstance(shape, Reference):
            shape = self.definitions[shape.name]
        return shape

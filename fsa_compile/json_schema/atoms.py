"""The atomic conditions of value languages. Each is about values of one JSON type; formulas over them are `Value`s.

An atom is a plain hashable record. Its meaning within a frame changes as members are read: `Count(2, 5, 0)` becomes
`Count(2, 5, 1)`, `Items` drops its first prefix. `derivatives` does that.
"""

# No annotations as strings here: `NamedTuple` compiles each one, which takes longer than all else in loading this module.
from fractions import Fraction
from typing import Any, NamedTuple

NULL, TRUE, FALSE, NUMBER, STRING, ARRAY, OBJECT = range(7)
"""The kinds of JSON values, in the order of a `Value`'s formulas."""
KINDS = 7
KIND_NAMES = ("null", "true", "false", "number", "string", "array", "object")


class IsInteger(NamedTuple):
    """The number is an integer (1.0 is one)."""

    tag: str = "integer"


class AtLeast(NamedTuple):
    """The number is at least the bound."""

    bound: Fraction
    tag: str = "at least"


class Equals(NamedTuple):
    """The number is the bound."""

    bound: Fraction
    tag: str = "equals"


class IsMultiple(NamedTuple):
    """The number is a multiple of a positive number."""

    divisor: Fraction
    tag: str = "multiple"


class Found(NamedTuple):
    """The pattern is found in the string."""

    pattern: str
    tag: str = "found"


class HasFormat(NamedTuple):
    """The string has the format, a bound on its length aside if `length_apart`."""

    name: str
    length_apart: bool = False
    tag: str = "format"


class Spelled(NamedTuple):
    """The decoded string, or the text of the number, matches a pattern of Python's dialect from end to end."""

    pattern: str
    tag: str = "spelled"


class Length(NamedTuple):
    """The string has `low` to `high` code points."""

    low: int
    high: int | None
    tag: str = "length"


class OneOf(NamedTuple):
    """The string is one of the words."""

    words: tuple[str, ...]
    tag: str = "one of"


class Count(NamedTuple):
    """The array or object has `low` to `high` members, of which `seen` have been read.

    Keys that the schema does not name may be repeated, and then count once: `unnamed` says whether there was one, and up to
    `repeated` of those seen may be repetitions of it.
    """

    low: int
    high: int | None
    seen: int = 0
    repeated: int = 0
    unnamed: bool = False
    tag: str = "count"

    @property
    def sure(self) -> int:
        """Members that certainly differ."""
        return self.seen - self.repeated


class Items(NamedTuple):
    """The coming elements satisfy the schemas `prefix`, those after them `rest` (numbers of subschemas)."""

    prefix: tuple[int, ...]
    rest: int
    tag: str = "items"


class Contains(NamedTuple):
    """`low` to `high` elements satisfy the schema, of which `seen` have been read."""

    schema: int
    low: int
    high: int | None
    seen: int = 0
    tag: str = "contains"


class Once(NamedTuple):
    """At most one element satisfies the schema; `seen` says whether it has been read."""

    schema: int
    seen: bool = False
    tag: str = "once"


class Differ(NamedTuple):
    """No two elements are equal, of the many values (None: no finite list) that the same schema allows. See `Once`.

    place: JSON pointer.
    """

    place: str
    values: int | None
    tag: str = "differ"


class Has(NamedTuple):
    """The object has the key."""

    key: str
    tag: str = "has"


class Members(NamedTuple):
    """The coming members satisfy the schemas of table entry `table` (properties, patternProperties, additionalProperties)."""

    table: int
    tag: str = "members"


class NoneUnnamed(NamedTuple):
    """No key comes any more that the schema does not name: what such keys' values have shown so far stays."""

    tag: str = "none unnamed"


class Names(NamedTuple):
    """The coming keys satisfy the string formula."""

    formula: int
    tag: str = "names"


class Before(NamedTuple):
    """The variable's atom as it was before the member that is being read."""

    variable: int
    tag: str = "before"


class MemberTable(NamedTuple):
    """What one schema object says about members: numbers of subschemas by key, by pattern, and for other keys."""

    properties: dict[str, int]
    patterns: tuple[tuple[str, int], ...]
    additional: int


def holds_of(atom: Any, number: Fraction) -> bool:
    """Whether a number satisfies a number atom."""
    if isinstance(atom, Equals):
        return number == atom.bound
    if isinstance(atom, AtLeast):
        return number >= atom.bound
    if isinstance(atom, IsMultiple):
        return (number / atom.divisor).denominator == 1
    return number.denominator == 1

"""Types of every kind, with a hypothesis strategy for their values."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import typing
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

from hypothesis import strategies as st

from fsa_compile.python_types import Ge, Gt, Le, Length, Lt, MultipleOf, Pattern

T = TypeVar("T")


class Color(enum.Enum):
    """Members with values of several kinds."""

    RED = "red"
    BLUE = 2
    NONE = None
    HALF = 0.5


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


@dataclasses.dataclass(frozen=True)
class Address:
    street: str
    zip: Annotated[str, Pattern(r"\d{5}(-[A-Z'\"\\]+)?")] = "00000"


@dataclasses.dataclass
class Person:
    name: str
    age: Annotated[int, Ge(0), Le(150)]
    tags: list[str] = dataclasses.field(default_factory=list)
    address: Address | None = None
    children: list[Person] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Box(Generic[T]):
    inside: T
    label: Literal["small", "it's \"large\"", 3, True, None] = "small"


class Movie(TypedDict):
    title: str
    year: NotRequired[int]
    rating: Annotated[float, Ge(0), Le(10)]


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Document:
    body: Json
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


UserId = NewType("UserId", int)
Json = typing.Union[None, bool, int, str, list["Json"], dict[str, "Json"]]  # noqa: UP007

text = st.text(max_size=12)
integers = st.integers() | st.integers(-9, 9)
floats = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) < 1e307)
addresses = st.builds(Address, text, st.from_regex(r"\A[0-9]{5}(-[A-Z'\"\\]+)?\Z"))
people = st.recursive(
    st.builds(Person, text, st.integers(0, 150)),
    lambda below: st.builds(Person, text, st.integers(0, 150), st.lists(text, max_size=2), st.none() | addresses, st.lists(below, max_size=2)),
    max_leaves=4,
)
labels = st.sampled_from(["small", "it's \"large\"", 3, True, None])
moments = st.datetimes(timezones=st.none() | st.just(datetime.UTC) | st.just(datetime.timezone(datetime.timedelta(hours=-5, minutes=-30))))
json_values = st.recursive(st.none() | st.booleans() | integers | text, lambda x: st.lists(x, max_size=2) | st.dictionaries(text, x, max_size=2), max_leaves=4)

# type, strategy of values
TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "bool": (bool, st.booleans()),
    "int": (int, integers),
    "float": (float, floats),
    "str": (str, text),
    "bytes": (bytes, st.binary(max_size=8)),
    "none": (None, st.none()),
    "date": (datetime.date, st.dates()),
    "datetime": (datetime.datetime, moments),
    "time": (datetime.time, st.times()),
    "timedelta": (datetime.timedelta, st.timedeltas()),
    "uuid": (uuid.UUID, st.uuids()),
    "decimal": (decimal.Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    "enum": (Color, st.sampled_from(Color)),
    "int enum": (Level, st.sampled_from(Level)),
    "literal": (Literal["a", "a'b", 1, -2, True, None, "\n\\"], st.sampled_from(["a", "a'b", 1, -2, True, None, "\n\\"])),
    "positive": (Annotated[int, Gt(0)], st.integers(1)),
    "bounded": (Annotated[int, Ge(-17), Lt(1200), MultipleOf(3)], st.integers(-5, 399).map(lambda x: 3 * x)),
    "from a tenth": (Annotated[float, Gt(0.1)], st.floats(0.1, 1e307, exclude_min=True) | st.just(1e300)),
    "unit": (Annotated[float, Ge(0), Le(1)], st.floats(0, 1)),
    "bounded decimal": (Annotated[decimal.Decimal, Gt(0), Le(10), MultipleOf(decimal.Decimal("0.05"))], st.integers(1, 200).map(lambda x: decimal.Decimal(x) * 5 / 100)),
    "short": (Annotated[str, Length(1, 3)], st.text(min_size=1, max_size=3)),
    "long": (Annotated[str, Length(2, 70)], st.text(min_size=2, max_size=70)),
    "pattern": (Annotated[str, Pattern(r"[^b-y]{2,}(\n|')?"), Length(max_length=5)], st.from_regex(r"\A[^b-y]{2,4}'?\Z").filter(lambda x: all(not 0xD800 <= ord(c) < 0xE000 for c in x))),
    "optional": (int | None, st.none() | integers),
    "union": (int | str | list[bool] | Address, integers | text | st.lists(st.booleans(), max_size=2) | addresses),
    "list": (list[int], st.lists(integers, max_size=3)),
    "sized list": (Annotated[list[bool], Length(2, 3)], st.lists(st.booleans(), min_size=2, max_size=3)),
    "tuple": (tuple[int, str, bool], st.tuples(integers, text, st.booleans())),
    "single": (tuple[str], st.tuples(text)),
    "no elements": (tuple[()], st.just(())),
    "long tuple": (tuple[int, ...], st.lists(integers, max_size=3).map(tuple)),
    "set": (set[int], st.sets(integers, max_size=3)),
    "frozenset": (frozenset[Level], st.frozensets(st.sampled_from(Level))),
    "deque": (collections.deque[int], st.lists(integers, max_size=3).map(collections.deque)),
    "dict": (dict[str, int], st.dictionaries(text, integers, max_size=3)),
    "dict of ids": (dict[UserId, list[Point]], st.dictionaries(integers, st.lists(st.builds(Point, integers, floats), max_size=2), max_size=2)),
    "dict of dates": (dict[datetime.date, bool], st.dictionaries(st.dates(), st.booleans(), max_size=2)),
    "ordered dict": (collections.OrderedDict[str, int], st.dictionaries(text, integers, max_size=3).map(collections.OrderedDict)),
    "dict of words": (dict[Literal["a", "b"], int], st.dictionaries(st.sampled_from("ab"), integers)),
    "person": (Person, people),
    "generic": (Box[list[int]], st.builds(Box, st.lists(integers, max_size=2), labels)),
    "box of boxes": (Box[Box[str]], st.builds(Box, st.builds(Box, text, labels), labels)),
    "typed dict": (Movie, st.fixed_dictionaries({"title": text, "rating": st.floats(0, 10)}, optional={"year": integers})),
    "named tuple": (Point, st.builds(Point, integers, floats)),
    "recursive alias": (Document, st.builds(Document, json_values, st.dictionaries(text, json_values, max_size=2))),
    "anything": (Any, json_values),
}  # fmt: skip

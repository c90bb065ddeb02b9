"""Random types with strategies of their values: scalars with bounds of every size, and containers, unions and records of them."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import itertools
import math
import random
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

from hypothesis import strategies as st

from fsa_compile.python_types import Ge, Gt, Le, Length, Lt, MultipleOf, Pattern

Typed = tuple[Any, st.SearchStrategy[Any]]
_BOUNDS = [0.0, 0.1, -0.1, 1.0, 5.0, -7.25, 1e-7, 1e-300, 5e-324, 1e10, 123456.789, 1e21, 1e22, 1e100, 1e300, -1e300, -1e-5]
_text = st.text(max_size=8)
_Inside = TypeVar("_Inside")


class Tone(enum.Enum):
    RED, BLUE, NONE, HALF = "red", 2, None, 0.5


class Rank(enum.IntEnum):
    FIRST, LAST = 1, -3


class Word(enum.StrEnum):
    A, QUOTED, ACCENT = "a", 'b"c', "é"


@dataclasses.dataclass(frozen=True)
class Boxed(Generic[_Inside]):
    inside: _Inside
    more: Boxed[_Inside] | None = None


_number = itertools.count()


def random_type(rng: random.Random, depth: int = 2) -> Typed:
    """A type and a strategy of its values."""
    makers = [_float, _float, _integer, _decimal, _string, _scalar, _literal, _members]
    return rng.choice([*makers, _sequence, _mapping, _union, _record, _named] if depth else makers)(rng, depth)


def _members(rng: random.Random, depth: int) -> Typed:
    """An enum, or some of its members."""
    made = rng.choice([Tone, Rank, Word])
    some = rng.sample(list(made), rng.randint(1, len(made)))
    return (made, st.sampled_from(made)) if rng.random() < 0.5 else (Literal[*some], st.sampled_from(some))


def _named(rng: random.Random, depth: int) -> Typed:
    """A type by another name, in a generic class, or a typed dict some of whose keys may be left out."""
    T, values = random_type(rng, depth - 1)
    kind, title = rng.choice(["new", "box", "keys"]), f"Named{next(_number)}"
    if kind == "new":
        return NewType(title, T), values
    if kind == "box":
        return Boxed[T], st.builds(Boxed, values, st.none() | st.builds(Boxed, values))
    made = TypedDict(title, {"a b": T, 'q"': NotRequired[T]})  # type: ignore[operator]
    return made, st.fixed_dictionaries({"a b": values}, optional={'q"': values})


def _float(rng: random.Random, depth: int) -> Typed:
    low, high = sorted(rng.sample(_BOUNDS, 2))
    marks: list[Any] = []
    below, above = -1e307, 1e307
    if rng.random() < 0.6:
        marks.append(rng.choice([Ge, Gt])(low))
        below = low if isinstance(marks[-1], Ge) else math.nextafter(low, math.inf)
    if rng.random() < 0.4:
        marks.append(rng.choice([Le, Lt])(high))
        above = high if isinstance(marks[-1], Le) else math.nextafter(high, -math.inf)
    values = st.floats(below, above) | st.sampled_from([x for x in (below, above, *_BOUNDS) if below <= x <= above])
    return (Annotated[float, *marks] if marks else float), values


def _integer(rng: random.Random, depth: int) -> Typed:
    low = rng.choice([None, 0, -5, 17, 10**12])
    high = rng.choice([None, (low or 0) + rng.randint(1, 10**6)])
    multiple = rng.choice([None, None, 3, 10])
    marks = [mark(x) for mark, x in ((Ge, low), (Le, high), (MultipleOf, multiple)) if x is not None]
    values: st.SearchStrategy[Any] = st.integers(low, high)
    if multiple is not None:
        first, last = (None if x is None else f(x / multiple) for x, f in ((low, math.ceil), (high, math.floor)))
        if first is not None and last is not None and first > last:
            return int, st.integers()
        values = st.integers(first, last).map(lambda x: x * multiple)
    return (Annotated[int, *marks] if marks else int), values


def _decimal(rng: random.Random, depth: int) -> Typed:
    places = rng.randint(0, 6)
    if rng.random() < 0.5:
        return decimal.Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=places)
    low = decimal.Decimal(rng.randint(-1000, 1000)).scaleb(-rng.randint(0, 3))
    return Annotated[decimal.Decimal, Ge(low)], st.decimals(low, low + 10**6, places=max(places, 3))


def _string(rng: random.Random, depth: int) -> Typed:
    if rng.random() < 0.4:
        return str, _text
    if rng.random() < 0.5:
        low = rng.randint(0, 3)
        high = low + rng.randint(0, 5)
        return Annotated[str, Length(low, high)], st.text(min_size=low, max_size=high)
    pattern = rng.choice([r"[a-c]{1,3}", r"\d+(\.\d+)?", "[^\"'a]*", "(x|\\n)*y", "[é€]?z"])
    fits = st.from_regex(rf"\A(?:{pattern})\Z".replace(r"\d", "[0-9]"))
    return Annotated[str, Pattern(pattern)], fits.filter(lambda x: len(x) < 50 and not any(0xD800 <= ord(c) < 0xE000 for c in x))


def _scalar(rng: random.Random, depth: int) -> Typed:
    zones = st.none() | st.just(datetime.UTC) | st.just(datetime.timezone(datetime.timedelta(hours=5, minutes=45)))
    scalars: list[Typed] = [
        (bool, st.booleans()), (None, st.none()), (bytes, st.binary(max_size=5)), (datetime.date, st.dates()),
        (datetime.datetime, st.datetimes(timezones=zones)), (datetime.time, st.times()), (uuid.UUID, st.uuids()),
        (datetime.timedelta, st.timedeltas()), (Any, json_values()), (object, json_values()),
    ]  # fmt: skip
    return rng.choice(scalars)


def json_values() -> st.SearchStrategy[Any]:
    """What `Any` may be."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats(-1e307, 1e307) | _text
    return st.recursive(leaves, lambda x: st.lists(x, max_size=2) | st.dictionaries(_text, x, max_size=2), max_leaves=4)


def _literal(rng: random.Random, depth: int) -> Typed:
    values = rng.sample(["a", "a'b", '"', "\\n", "é", "", 1, -2, 10**20, True, None, "True"], rng.randint(1, 4))
    return Literal[*values], st.sampled_from(values)


def _key(rng: random.Random) -> Typed:
    keys: list[Typed] = [(str, _text), (int, st.integers()), (datetime.date, st.dates()), (uuid.UUID, st.uuids())]
    keys.append((Literal["a", "b c", "\""], st.sampled_from(["a", "b c", "\""])))
    keys.append((Annotated[str, Length(1, 2)], st.text(min_size=1, max_size=2)))
    return rng.choice(keys)


def _sequence(rng: random.Random, depth: int) -> Typed:
    kind = rng.choice(["list", "list", "tuple", "row", "deque", "set", "frozenset", "bare"])
    if kind == "bare":
        return list, st.lists(json_values(), max_size=2)
    if kind == "row":
        parts = [random_type(rng, depth - 1) for _ in range(rng.randint(0, 3))]
        return (tuple[*[T for T, _ in parts]] if parts else tuple[()]), st.tuples(*[values for _, values in parts])
    T, values = _key(rng) if "set" in kind else random_type(rng, depth - 1)
    low, high = rng.choice([(0, None), (0, None), (1, 3), (2, 2)])
    if "set" in kind:
        build = {"set": set, "frozenset": frozenset}[kind]
        return build[T], st.sets(values, max_size=3).map(build)
    build = {"list": list, "tuple": tuple, "deque": collections.deque}[kind]
    made = tuple[T, ...] if kind == "tuple" else build[T]
    items = st.lists(values, min_size=low, max_size=3 if high is None else high).map(build)
    return (made if (low, high) == (0, None) else Annotated[made, Length(low, high)]), items


def _mapping(rng: random.Random, depth: int) -> Typed:
    build = rng.choice([dict, dict, collections.OrderedDict])
    if rng.random() < 0.1:
        return build, st.dictionaries(_text, json_values(), max_size=2).map(build)
    (K, keys), (T, values) = _key(rng), random_type(rng, depth - 1)
    return build[K, T], st.dictionaries(keys, values, max_size=2).map(build)


def _union(rng: random.Random, depth: int) -> Typed:
    parts = [random_type(rng, depth - 1) for _ in range(rng.randint(2, 3))]
    made = parts[0][0]
    for T, _ in parts[1:]:
        made = made | T if made is not None or T is not None else None
    return made, st.one_of([values for _, values in parts])


def _record(rng: random.Random, depth: int) -> Typed:
    """A dataclass, a typed dict or a named tuple."""
    names = rng.sample(["a", "b", "name", "from_", "é"], rng.randint(1, 3))
    parts = {name: random_type(rng, depth - 1) for name in names}
    hints, values = {n: T for n, (T, _) in parts.items()}, {n: v for n, (_, v) in parts.items()}
    title, kind = f"Record{next(_number)}", rng.choice(["dataclass", "typed dict", "named tuple"])
    if kind == "typed dict":
        return TypedDict(title, hints), st.fixed_dictionaries(values)  # type: ignore[operator]
    if kind == "named tuple":
        made = NamedTuple(title, list(hints.items()))
    else:
        made = dataclasses.make_dataclass(title, list(hints.items()))
    return made, st.builds(made, **values)

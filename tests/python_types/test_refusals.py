"""What cannot be enforced is refused, with its place; limits and bounds at the edges of what can."""

from __future__ import annotations

import collections
import dataclasses
import enum
import typing
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar

import pytest
from oracles.toy import every_byte
from python_types.sample_types import Address, Person

import fsa_compile
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.python_types import (
    Ge,
    Gt,
    Le,
    Length,
    Lt,
    Pattern,
    TypeTextError,
    UnsupportedTypeError,
    compile_type,
    dump,
    json_schema,
    machine_of_type,
    parse,
    shape_of,
)

T = TypeVar("T")


def machine(given: Any, style: Any = "json", **options: Any):
    limits = CompileLimits()
    return machine_of_type(shape_of(given, **options), style, None, limits, Deadline(limits))


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass
class Checked:
    even: int

    def __post_init__(self) -> None:
        if self.even % 2:
            raise ValueError("odd")


@dataclasses.dataclass
class Deep:
    rows: list[dict[str, tuple[int, Flags]]]


@dataclasses.dataclass
class Missing:
    x: Unknown  # noqa: F821


class Bytes(enum.Enum):
    A = b"a"


class Same(enum.Enum):
    A = (1,)


REFUSED = {
    "nested": (Deep, "Deep.rows[]{}[1]"),
    "no type": (slice, "slice"),
    "code": (Checked, "Checked"),
    "unknown name": (Missing, "Missing"),
    "set of lists": (set[list[int]], "set[list[int]][]"),
    "set of records": (set[Person], "set[python_types.sample_types.Person][]"),
    "key": (dict[tuple[int, int], int], "dict[tuple[int, int], int]{key}"),
    "least size of a set": (Annotated[set[str], Length(2)], ""),
    "least size of a dict": (Annotated[dict[str, int], Length(2)], ""),
    "length of an int": (Annotated[int, Length(2)], ""),
    "bound of a str": (Annotated[str, Ge(2)], ""),
    "infinite bound": (Annotated[float, Le(float("inf"))], ""),
    "bytes in a list": (Bytes, "Bytes"),
    "tuple in a list": (Same, "Same"),
    "complex": (complex, "complex"),
    "unpacked": (tuple[int, *tuple[str, ...]], "tuple[int, *tuple[str, ...]][1]"),
    "unpacked by name": (tuple[typing.Unpack[tuple[int, str]]], "tuple[*tuple[int, str]][0]"),  # noqa: UP044
    "callable": (typing.Callable[[int], int], ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    given, place = REFUSED[name]
    with pytest.raises(UnsupportedTypeError) as error:
        compile_type(given, every_byte())
    assert error.value.place.startswith(place)
    assert f"at {error.value.place}" in str(error.value)


def test_code_runs_when_it_is_allowed():
    assert parse(Checked, '{"even": 2}', allow_code=True) == Checked(2)
    with pytest.raises(TypeTextError, match=r"odd(.|\n)*Checked"):
        parse(Checked, '{"even": 3}', allow_code=True)


def test_names_from_a_namespace():
    @dataclasses.dataclass
    class Local:
        below: list[Local]
        other: Address | None = None

    with pytest.raises(UnsupportedTypeError, match="namespace"):
        shape_of(list["Nowhere"])  # type: ignore[name-defined]  # noqa: F821
    assert parse(Local, '{"below": [{"below": []}]}') == Local([Local([])])
    found = machine(list["Local"], namespace=locals())
    assert found.accepts(b'[{"below": []}]')
    assert not found.accepts(b'[{"below": [1]}]')


class Base(TypedDict, total=False):
    a: int


class Derived(Base):
    b: str
    c: NotRequired[bool]


def test_totality_is_that_of_the_class_that_names_the_key():
    found = machine(Derived)
    assert [found.accepts(t) for t in (b'{"b": ""}', b'{"a": 1, "b": ""}', b'{"a": 1}', b'{"b": "", "c": true}')] == [True, True, False, True]


@pytest.mark.parametrize("style", ["json", "python"])
def test_bounds_hold_after_rounding(style):
    """A text just outside a bound may read as a float inside it, and one inside as a float outside."""
    cases = [
        (Annotated[float, Lt(1)], ["0.9999999999999999", "0.99999999999999994"], ["0.99999999999999999", "1.0", "0.9999999999999999444888487687421760603063553571701049804688"]),
        (Annotated[float, Ge(0.1)], ["0.1", "0.09999999999999999999"], ["0.0999999999999999", "-1.0"]),
        (Annotated[float, Gt(0)], ["1e-279", "0.5"], ["0.0", "-0.0", "1e-999", "-2.0"]),
        (Annotated[float, Gt(0.5), Le(0.5)], [], ["0.5"]),
    ]
    for given, accepted, rejected in cases[:3]:
        found = machine(given, style)
        assert [text for text in accepted if not found.accepts(text.encode())] == []
        assert [text for text in rejected if found.accepts(text.encode())] == []
    given = cases[3][0]
    with pytest.raises(fsa_compile.UnsatisfiableError):
        machine(given, style)


def test_sets_of_few_values_do_not_repeat():
    found = machine(Annotated[frozenset[Literal["a", "b", 3]], Length(2)])
    assert [found.accepts(t) for t in (b'["a", 3]', b'["a", "a"]', b'["a"]', b'["b", "a", 3]')] == [True, False, False, True]


def test_long_numbers_and_deep_values():
    digits = "9" * 5000
    for style in ("json", "python"):
        assert parse(int, digits, style=style) == 10**5000 - 1
        assert machine(int, style).accepts(digits.encode())
    with pytest.raises(TypeTextError, match="no Python expression"):
        parse(Any, "[" * 300 + "]" * 300, style="python")


def test_python_is_not_run():
    for text in ("__import__('os').getpid()", "[x for x in ()]", "1 + 1", "list()", "*a", "f'{1}'", "lambda: 1", "-True", "+1"):
        with pytest.raises(TypeTextError):
            parse(Any, text, style="python")
        with pytest.raises(TypeTextError):
            parse(list[int] | int | str, text, style="python")
    with pytest.raises(TypeTextError):
        parse(Address, "Address(**{'street': 'a'})", style="python")


def test_values_that_have_no_text():
    for given, value in ((float, float("nan")), (float, "1"), (str, "\ud800"), (int, True), (bool, 1), (Address, Person("a", 1)), (list[int], (1,))):
        for style in ("json", "python"):
            with pytest.raises(TypeTextError):
                dump(given, value, style=style)


def test_schema_is_public():
    schema = json_schema(Address)
    assert schema["$defs"]["Address"]["required"] == ["street"]
    assert schema["$defs"]["Address"]["additionalProperties"] is False


def test_unknown_style():
    with pytest.raises(fsa_compile.ConstraintError, match="style"):
        compile_type(int, every_byte(), style="yaml")  # type: ignore[arg-type]
    assert issubclass(TypeTextError, fsa_compile.ConstraintError)


def test_patterns_meet():
    given = Annotated[str, Pattern("a*b*"), Pattern("(ab|ba)*"), Length(1)]
    for style in ("json", "python"):
        found = machine(given, style)
        quoted = [dump(str, t, style=style).encode() for t in ("ab", "", "abab", "ba")]
        assert [found.accepts(t) for t in quoted] == [True, False, False, False]
    assert parse(collections.deque[int], "deque([1, 2])", style="python") == collections.deque([1, 2])

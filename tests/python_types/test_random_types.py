"""What `dump` writes of any value of any type, the constraint of the type accepts, and `parse` reads back."""

from __future__ import annotations

import collections
import dataclasses
import json
from decimal import Decimal
from typing import Annotated, Any

import pytest
from annotated_types import Gt, Lt
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from oracles.text_walks import takes
from python_types.random_types import random_type
from python_types.walks import has_type, random_text

from fsa_compile import CompileLimits, Vocabulary
from fsa_compile.errors import LimitError, UnsatisfiableError
from fsa_compile.limits import Deadline
from fsa_compile.python_types import compile_type, dump, machine_of_type, parse, shape_of
from fsa_compile.python_types.type_errors import TypeTextError, UnsupportedTypeError

BYTES = Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256))], stop_ids=[0])


def accepts(constraint, text: str) -> bool:
    return takes(constraint, [byte + 1 for byte in text.encode()])


def numbers(value):
    """The numbers in a value, as its text has them; those of an object's keys, which are strings, left out."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return [Decimal(repr(value)) if isinstance(value, float) else Decimal(value)]
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        return []
    return sorted(x for item in value for x in numbers(item))


def same_text(a, b):
    """Equal but for how numbers are written: a union's float reads 0.9560, which its Decimal wrote, as 0.956."""
    try:
        return a == b or json.loads(a, parse_float=Decimal) == json.loads(b, parse_float=Decimal)
    except ValueError:
        return False


@pytest.mark.exhaustive
def test_what_is_dumped_is_accepted_and_read_back(tally):
    for rng in tally.cases(9):
        style = rng.choice(["json", "python"])
        T, values = random_type(rng)
        try:
            constraint = compile_type(T, BYTES, style=style, limits=CompileLimits(max_seconds=20))
        except (UnsupportedTypeError, UnsatisfiableError, LimitError):
            continue
        tally["made"] += 1

        @settings(max_examples=100 if tally.in_full else 5, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @seed(rng.getrandbits(60))
        @given(st.just((T, constraint, style)), values)
        def check(made, value):
            T, constraint, style = made
            try:
                text = dump(T, value, style=style)
            except TypeTextError as error:
                if "cannot be written" in str(error):
                    return
                raise
            tally["checks"] += 1
            assert accepts(constraint, text), (T, value, text)
            back = parse(T, text, style=style)  # unions read what several members could have written as the first of them
            assert back == value or same_text(dump(T, back, style=style), text), (T, value, text)
            assert numbers(back) == numbers(value), (T, value, text)

        check()
    assert tally["made"] > 5
    assert tally["checks"] > 25


def test_what_is_derived_is_read_as_a_value_of_the_type(tally):
    """Texts along the machine that `dump` does not write, too."""
    limits = CompileLimits(max_seconds=20)
    for rng in tally.cases(12):
        style, (T, _) = rng.choice(["json", "python"]), random_type(rng, rng.choice([1, 2, 3]))
        try:
            machine = machine_of_type(shape_of(T), style, None, limits, Deadline(limits))
        except (UnsupportedTypeError, UnsatisfiableError, LimitError):
            continue
        tally["made"] += 1
        for _ in range(6):
            text = random_text(machine, rng.getrandbits(40), rng.choice([3, 10, 40, 90]), 600)
            if text is None:
                continue
            value = parse(T, text, style=style)
            assert has_type(value, T), (T, text)
            again = dump(T, value, style=style)
            assert machine.accepts(again.encode()), (T, text, again)
            assert parse(T, again, style=style) == value, (T, text, again)
            tally["checks"] += 1
    assert tally["checks"] > 2 * tally["made"]


@pytest.mark.parametrize("style", ["json", "python"])
@pytest.mark.parametrize(
    ("T", "value"),
    [
        (float | Decimal, Decimal("0.12345678901234567")),
        (Any | Decimal, Decimal("0.12345678901234567")),
        (list[float] | list[Decimal], [Decimal("0.5"), Decimal("123456789012345678.5")]),
        (dict[str, Annotated[float, Gt(0.1)] | Decimal | float], {"a": Decimal("1e16") + 1}),
        (float | int, 2**53 + 1),
        (list[float] | list[int], [1, 10**400]),
        (tuple[float, int] | tuple[Annotated[int, Gt(0)], int], (2**53 + 1, 1)),
    ],
)
def test_a_union_keeps_all_digits(T, value, style):
    text = dump(T, value, style=style)
    assert accepts(compile_type(T, BYTES, style=style), text)
    assert parse(T, text, style=style) == value


def test_unions_that_begin_alike_are_read_in_polynomial_time():
    text = "0.12345678901234567890123"
    for _ in range(40):
        text = f'{{"x": {text}}}'
    assert "_Left" in repr(parse(_Left | _Right, text))  # 2^40 ways to read it as one or the other


@dataclasses.dataclass
class _Left:
    x: _Left | _Right | float


@dataclasses.dataclass
class _Right:
    x: _Left | _Right | float


@pytest.mark.parametrize("style", ["json", "python"])
@pytest.mark.parametrize(
    ("T", "value"),
    [(float, 10**400), (float, 2**53 + 1), (list[float], [10**5000]), (Any, float("nan")), (Any, "\ud800"), (Any, [{1: 2}]), (Any, {1})],
)
def test_what_has_no_text_is_an_error(T, value, style):
    with pytest.raises(TypeTextError):
        dump(T, value, style=style)


def test_a_union_says_what_cannot_be_written():
    T = Annotated[float, Gt(1.0)] | Annotated[float, Gt(0.0), Lt(0.1)]
    with pytest.raises(TypeTextError, match="5e-324 cannot be written"):
        dump(T, 5e-324)

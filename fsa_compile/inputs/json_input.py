"""JSON that a stranger may have sent: text is parsed and decoded values are checked within named limits, before anything else.

Everything behind this module may rely on it: a value is a finite tree of dicts with str keys, lists, strings and numbers, no
deeper than `max_nesting`, and no number has more digits than `max_digits`, written without an exponent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.limits import CompileLimits

Problem = Callable[..., ConstraintError]
"""An error's class: called with a sentence, `pointer=` and `fix=`."""

_BITS_PER_DIGIT = math.log2(10)
_EXPONENT_DIGITS = 9
"""Longer exponents stand for the least of them in messages: they are beyond every limit."""


def parse_json(
    text: str | bytes,
    limits: CompileLimits,
    problem: Problem,
    *,
    pointer: str = "#",
    what: str = "the schema",
    fix: str = "",
) -> Any:
    """The value of a JSON text, with numbers kept exactly: a `Decimal` where no float prints as that number.

    Args:
      text: bytes are UTF-8.
      limits: `max_input`, `max_nesting`, `max_values` and `max_digits` are kept to.
      problem: makes the error of a text that is no JSON.
      pointer: where the text stands.
      what: what it is, for messages.
      fix: what to do about a text that is no JSON.

    Raises:
      ConstraintError: made by `problem`.
      LimitError: the text is too long, nests too deeply, or has too many values or digits.
    """
    if len(text) > limits.max_input:
        raise LimitError("max_input", limits.max_input, f"{what} at {pointer}, {len(text):,} characters long,")
    most = limits.max_digits

    def integer(number: str) -> int | Decimal:
        return int(number) if len(number) <= most + 1 else Decimal(number)

    def fraction(number: str) -> float | Decimal:
        exponent = number.lower().partition("e")[2].lstrip("+-0")
        if len(exponent) > _EXPONENT_DIGITS:
            return Decimal(f"1e{10**_EXPONENT_DIGITS}")
        value = float(number)
        return value if math.isfinite(value) and _same(value, number) else Decimal(number)

    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        value = json.loads(decoded, parse_int=integer, parse_float=fraction, parse_constant=_no_constant)
    except RecursionError:
        raise too_deep(limits, pointer, what) from None
    except ValueError as error:
        raise problem(f"{what} is not JSON: {error}", pointer=pointer, fix=fix) from None
    return check_json(value, limits, problem, pointer=pointer, what=what)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _same(value: float, number: str) -> bool:
    """Whether a float prints as the number that a text denotes."""
    return Decimal(repr(value)) == Decimal(number)


def check_json(value: Any, limits: CompileLimits, problem: Problem, *, pointer: str = "#", what: str = "the schema") -> Any:
    """A decoded value, once it is known to be JSON within the limits; the arguments are `parse_json`'s.

    What a value holds twice counts twice, as in its text.

    Raises:
      ConstraintError: made by `problem`: a value is of no JSON type, a key is no str, a container holds itself.
      LimitError: as for `parse_json`.
    """
    _Walk(limits, problem, pointer, what).run(value)
    return value


class _Walk:
    """A walk through decoded JSON that counts what it meets; what is met again is not walked again, but counts again."""

    def __init__(self, limits: CompileLimits, problem: Problem, pointer: str, what: str) -> None:
        self._limits, self._problem, self._pointer, self._what = limits, problem, pointer, what
        self._count = self._size = 0
        self._path: list[str] = []
        self._open: list[tuple[int, Iterator[tuple[str, Any]], int, int]] = []
        self._inside: set[int] = set()
        self._done: dict[int, tuple[int, int, int]] = {}
        self._heights: list[int] = []

    def run(self, value: Any) -> None:
        """Checks a whole value."""
        if not self._enter(value):
            return
        while self._open:
            for name, child in self._open[-1][1]:
                self._path.append(name)
                if self._enter(child):
                    break
                self._path.pop()
            else:
                self._leave()

    def _enter(self, value: Any) -> bool:
        """Checks and counts one value; whether it is a container that is now open."""
        self._grow(1, len(value) if isinstance(value, str) else 0)
        if isinstance(value, (int, float, Decimal)):
            self._grow(0, self._digits(value))
        if value is None or isinstance(value, (str, int, float, Decimal)):
            return False
        if not isinstance(value, (dict, list, tuple)):
            raise self._problem(f"a value of type {_kind(value)} is no JSON", pointer=self._place())
        key, depth = id(value), len(self._open) + 1
        if key in self._inside:
            raise self._problem(f"{self._what} contains itself here", pointer=self._place(), fix="Use $ref for recursion.")
        count, size, height = self._done.get(key, (0, 0, 0))
        if depth + height > self._limits.max_nesting:
            raise too_deep(self._limits, self._place(), self._what)
        if key in self._done:
            self._grow(count, size)
            self._heights[-1] = max(self._heights[-1], height + 1)
            return False
        self._inside.add(key)
        self._open.append((key, self._members(value), self._count, self._size))
        self._heights.append(0)
        return True

    def _leave(self) -> None:
        key, _, count, size = self._open.pop()
        height = self._heights.pop()
        self._inside.discard(key)
        self._done[key] = self._count - count, self._size - size, height
        if self._path:
            self._path.pop()
            self._heights[-1] = max(self._heights[-1], height + 1)

    def _members(self, value: Any) -> Iterator[tuple[str, Any]]:
        """The members of a container but for plain texts and the like, which are counted on the way."""
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict):
                if not isinstance(key, str):
                    raise self._problem(f"a key is of type {_kind(key)}, not a string", pointer=self._place())
                self._grow(0, len(key))
            if child is None or child is True or child is False or type(child) is float:
                self._grow(1, 0)
            elif type(child) is str:
                self._grow(1, len(child))
            else:
                yield str(key), child

    def _grow(self, count: int, size: int) -> None:
        self._count += count
        self._size += size
        if self._count > self._limits.max_values:
            raise LimitError("max_values", self._limits.max_values, self._what)
        if self._size > self._limits.max_input:
            raise LimitError("max_input", self._limits.max_input, self._what)

    def _digits(self, value: Any) -> int:
        """Digits of a number written without an exponent; 0 for other values."""
        if isinstance(value, Decimal) and not value.is_finite():
            raise self._problem(f"the number {value} is no JSON number", pointer=self._place())
        digits = digits_of(value)
        if digits > self._limits.max_digits:
            fix = "Write numbers with fewer digits and smaller exponents, or raise CompileLimits.max_digits."
            raise LimitError("max_digits", self._limits.max_digits, f"the number at {_cut(self._place())}", fix=fix)
        return digits

    def _place(self) -> str:
        return "/".join([self._pointer, *map(escaped, self._path)])


def digits_of(number: int | float | Decimal) -> int:
    """Digits of a finite number written without an exponent, at least about; 0 for floats and booleans, which have few."""
    if isinstance(number, Decimal):
        _, written, exponent = number.as_tuple()
        return max(len(written), len(written) + int(exponent), -int(exponent))
    return int(number.bit_length() / _BITS_PER_DIGIT) if isinstance(number, int) and not isinstance(number, bool) else 0


def escaped(name: str) -> str:
    """A name as it stands in a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def json_text(value: Any) -> str:
    """The JSON text of a checked value: values that differ have texts that differ, and a `Decimal` is the number it is."""
    try:
        return json.dumps(value)
    except TypeError:  # it holds a Decimal
        pass
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(json_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join([f"{json.dumps(key)}: {json_text(child)}" for key, child in value.items()]) + "}"
    return json.dumps(value)


def too_deep(limits: CompileLimits, pointer: str, what: str) -> LimitError:
    """The error of what is nested more deeply than `max_nesting`."""
    return LimitError("max_nesting", limits.max_nesting, f"the depth of {what} at {_cut(pointer)}")


def _kind(value: Any) -> str:
    return f"{type(value).__name__:.60}"


def _cut(pointer: str) -> str:
    """A pointer short enough for a message."""
    return pointer if len(pointer) <= 200 else pointer[:200] + "…"

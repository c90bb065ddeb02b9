"""Conditions on numbers, decided exactly on the characters of their decimal form.

Each condition is a small automaton that is run lazily over the characters of a number; their joint run becomes a `TextDfa`.
Comparing a mantissa's length with an exponent is not regular, so a condition may say `UNDECIDED` of a number with an exponent: a
bound other than 0 where the mantissa is not one digit before the point (as in `1.5e-7`) or 0, "integer" where the mantissa has
a fraction or the exponent is negative, multiples always. Where what a formula says depends on it, the spelling is not accepted;
so the result is sound under every boolean combination. The *universe* of a formula, the spellings it looks at, is that of plain
decimals where exponents would add little: all numbers are multiples, or integers with bounds, or there are many bounds. It is
that of digits, without point, exponent and `-0`, where all numbers are integers and are to be written plainly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeAlias

from fsa_compile.arrays.graphs import Numbers
from fsa_compile.automata.labelled_dfa import TextDfa, minimized
from fsa_compile.errors import LimitError
from fsa_compile.limits import check_time

Universe: TypeAlias = Literal["digits", "plain", "all"]
UNDECIDED = 2
"""What a condition says of a number where the spelling is beyond it."""
_DIGITS = "0123456789"


def exact(value: int | float | Decimal) -> Fraction:
    """The number that a JSON text of the value denotes: a float counts as the decimal that prints it."""
    return Fraction(Decimal(float.__repr__(value)) if isinstance(value, float) else value)


def is_number(value: Any) -> bool:
    """Whether a decoded JSON value is a number (booleans are not) and finite."""
    if isinstance(value, bool):
        return False
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    return isinstance(value, (int, Decimal))


class Condition(Protocol):
    """A condition as an automaton over the characters of a number; states are hashable.

    Attributes:
      start: the first state.
      digits: those from "2" on that it may tell from the digit before them, and perhaps other characters.
    """

    start: Any
    digits: str

    def step(self, state: Any, character: str) -> Any:
        """The state after one character."""

    def holds(self, state: Any) -> int:
        """What the condition says of a number that ends here."""


def _decimal_digits(value: Fraction) -> tuple[str, str]:
    """Integer and fraction digits of |value|, a finite decimal."""
    numerator, denominator = abs(value.numerator), value.denominator
    places = 0
    while denominator != 1:
        numerator, places = numerator * 10, places + 1
        value = Fraction(numerator, denominator)
        numerator, denominator = value.numerator, value.denominator
    digits = str(numerator).rjust(places + 1, "0")
    return (digits[:-places], digits[-places:]) if places else (digits, "")


class Sign:
    """The sign of a number in any spelling: -1, 0 or 1. A state is (sign, a digit of the mantissa is not 0, in the exponent)."""

    start, digits = (1, 0, 0), ""

    def step(self, state: Any, character: str) -> Any:
        sign, magnitude, exponent = state
        if character == "-" and not exponent:
            return (-1, 0, 0)
        if character in "eE":
            return (sign, magnitude, 1)
        return (sign, 1, 0) if character in "123456789" and not exponent else state

    def holds(self, state: Any) -> int:
        return int(state[0] * state[1])


class Compare:
    """The sign of (number - bound) for a bound that is not 0: -1, 0 or 1, or `UNDECIDED`.

    The state of a number without exponent is (sign, in fraction, digits read up to those of the bound, order of the magnitude so
    far, order of the mantissa); that of the exponent (sign, order of the mantissa, sign of the exponent, significant digits
    read, order of these). The mantissa's order is (digits read, order) beside the bound's own mantissa, with one digit
    before the point, `_ZERO`, or None for any other mantissa.

    Args:
      bound: a finite decimal.
      exponents: whether numbers with exponents are read; without them, the mantissa's order is never asked for.
    """

    _ZERO = (0, -1)

    def __init__(self, bound: Fraction, *, exponents: bool = True) -> None:
        self.start = (1, False, 0, 0, self._ZERO if exponents else None)
        self._sign = 1 if bound > 0 else -1
        self._whole, self._part = _decimal_digits(bound)
        digits = self._whole + self._part
        self._mantissa = digits.strip("0")
        leading = len(digits) - len(digits.lstrip("0"))
        self._exponent = len(self._whole) - 1 - leading
        self._digits = str(abs(self._exponent)) if self._exponent else ""
        self.digits = "".join(digit + chr(ord(digit) + 1) for digit in {*digits, *self._digits})

    def step(self, state: Any, character: str) -> Any:
        if len(state) == 5 and isinstance(state[1], str):
            return self._in_exponent(state, character)
        sign, fraction, read, order, mantissa = state
        if character == "-":
            return (-1, False, 0, 0, mantissa)
        if character in "eE":
            return (sign, "e", self._mantissa_order(mantissa), 1, (0, 0))
        if character == ".":
            return (sign, True, 0, self._whole_order(read, order), mantissa)
        mantissa = self._next(mantissa, character, fraction, read > 0)
        if not fraction:
            if read < len(self._whole) and order == 0:
                order = (character > self._whole[read]) - (character < self._whole[read])
            return (sign, False, min(read + 1, len(self._whole) + 1), order, mantissa)
        if order == 0:
            digit = self._part[read] if read < len(self._part) else "0"
            order = (character > digit) - (character < digit)
            return (sign, True, min(read + 1, len(self._part)), order, mantissa)
        return (sign, True, 0, order, mantissa)

    def _next(self, mantissa: Any, character: str, fraction: bool, later: bool) -> Any:
        """The order of the mantissa after one more digit, in the fraction, or in the whole part as its first or a later one."""
        if mantissa is None or (later and not fraction):
            return None
        if mantissa == self._ZERO:
            return mantissa if character == "0" else None if fraction else (1, _order(character, self._mantissa[0]))
        read, order = mantissa
        if order == 0:
            order = _order(character, self._mantissa[read] if read < len(self._mantissa) else "0")
        return (min(read + 1, len(self._mantissa)), order)

    def _mantissa_order(self, mantissa: Any) -> int | None:
        """-1, 0 or 1; -2 for a mantissa of 0; None where it is not known."""
        if mantissa is None:
            return None
        read, order = mantissa
        if mantissa == self._ZERO:
            return -2
        return -1 if order == 0 and read < len(self._mantissa) else order

    def _in_exponent(self, state: Any, character: str) -> Any:
        sign, phase, mantissa, direction, (read, order) = state
        if character in "+-":
            return (sign, phase, mantissa, -1 if character == "-" else 1, (read, order))
        if read == 0 and character == "0":
            return state
        if read < len(self._digits) and order == 0:
            order = _order(character, self._digits[read])
        return (sign, phase, mantissa, direction, (min(read + 1, len(self._digits) + 1), order))

    def _whole_order(self, read: int, order: int) -> int:
        return _order_of_lengths(read, len(self._whole), order)

    def holds(self, state: Any) -> int:
        if isinstance(state[1], str):
            return self._with_exponent(state)
        sign, fraction, read, order, _ = state
        if not fraction:
            order, read = self._whole_order(read, order), 0
        if order == 0 and self._part[read:].strip("0"):
            order = -1
        return order * sign if sign == self._sign else sign

    def _with_exponent(self, state: Any) -> int:
        sign, _, mantissa, direction, (read, order) = state
        if mantissa == -2 or sign != self._sign:
            return -self._sign
        if mantissa is None:
            return UNDECIDED
        towards = (self._exponent > 0) - (self._exponent < 0)
        if not read:  # the exponent is 0
            larger = -towards
        elif direction != towards:
            larger = direction
        else:
            larger = direction * _order_of_lengths(read, len(self._digits), order)
        return (larger or mantissa) * sign


def _order_of_lengths(read: int, length: int, order: int) -> int:
    """The order of a number's digits beside others: the longer one is larger."""
    return -1 if read < length else 1 if read > length else order


def _order(character: str, digit: str) -> int:
    return (character > digit) - (character < digit)


class MultipleOf:
    """Whether the number is a multiple of a positive decimal: the remainder of the digits, then only zeros; `UNDECIDED` where it
    has an exponent.

    Remainders that the same digits complete are one: with m = s * c, c prime to 10 and s a divisor of 10^k, those that are equal
    modulo c, and of which the same fewer than k digits make a multiple, or none. Of the remainders of 86,400 141 are left.

    Source: B. Alexeev, "Minimal DFA for testing divisibility", 2004.
    """

    _BEYOND, digits = -2, _DIGITS

    def __init__(self, divisor: Fraction, max_modulus: int, where: str) -> None:
        whole, part = _decimal_digits(divisor)
        self._places, self._modulus = len(part), int(whole + part)
        self._max_modulus, self._where = max_modulus, where
        self._prime, self._shifts = self._modulus, list[int]()
        while (common := math.gcd(self._prime, 10)) > 1:
            self._prime //= common
            self._shifts.append(10 ** len(self._shifts))
        self._known: dict[Any, int] = {}
        self._check(self._prime)  # at least these are needed
        self.start = (-1, 0)

    def _remainder(self, number: int) -> int:
        """The remainder that stands for a number's."""
        m = self._modulus
        digits = [(-number * shift) % m for shift in self._shifts]
        key = (number % self._prime, *(x if x < shift else -1 for x, shift in zip(digits, self._shifts)))
        found = self._known.setdefault(key, number % m)
        self._check(len(self._known))
        return found

    def _check(self, remainders: int) -> None:
        if remainders > self._max_modulus:
            raise LimitError(
                "max_modulus", self._max_modulus, f"multipleOf at {self._where}",
                fix="Use a rounder number, or raise SchemaOptions.max_modulus.",
            )  # fmt: skip

    def step(self, state: Any, character: str) -> Any:
        places, remainder = state
        if character in "eE" or remainder == self._BEYOND:
            return (0, self._BEYOND)
        if remainder < 0 or character == "-":
            return state
        if character == ".":
            return (0, remainder)
        if places == self._places:
            return state if character == "0" else (places, -1)
        return (places + (places >= 0), self._remainder(remainder * 10 + int(character)))

    def holds(self, state: Any) -> int:
        places, remainder = state
        if remainder == self._BEYOND:
            return UNDECIDED
        return int(remainder >= 0 and remainder * 10 ** (self._places - max(places, 0)) % self._modulus == 0)


class Integer:
    """Whether the number is an integer: its fraction digits are zeros, and its exponent is not negative; else `UNDECIDED`.

    States: 0 before the point, 1 behind it, 2 with a fraction that is not 0; 3 in the exponent of an integer, 4 in another one.
    """

    start, digits = 0, ""

    def step(self, state: int, character: str) -> int:
        if character in "eE":
            return 3 if state == 0 else 4
        if character == "-" and state == 3:
            return 4
        if character == ".":
            return 1
        return 2 if state == 1 and character in "123456789" else state

    def holds(self, state: int) -> int:
        return UNDECIDED if state == 4 else int(state != 2)


class Written:
    """Whether the number's text is one that an automaton of texts accepts."""

    start = 0

    def __init__(self, dfa: TextDfa) -> None:
        self._dfa = dfa
        self.digits = "".join(digit for digit in _DIGITS if _tells_apart(dfa, ord(digit)))

    def step(self, state: int, character: str) -> int:
        row = self._dfa.rows[state] if state >= 0 else ()
        return next((target for low, high, target in row if low <= ord(character) <= high), -1)

    def holds(self, state: int) -> int:
        return int(state >= 0 and self._dfa.labels[state] > 0)


def _tells_apart(dfa: TextDfa, code: int) -> bool:
    """Whether a state of an automaton may do something else at a character than at the one before."""
    return any(code in (low, high + 1) for row in dfa.rows for low, high, _ in row)


def _spelled(state: str, character: str, universe: Universe) -> str | None:
    """The state of the number syntax after one character, or None.

    States: s start, m minus, z zero, i integer digits, p point, f fraction digits, e exponent begun, g its sign, x its digits.
    """
    digit = character in _DIGITS
    if state in "sm":
        if digit:
            if universe == "digits" and state == "m" and character == "0":
                return None
            return "z" if character == "0" else "i"
        return "m" if character == "-" and state == "s" else None
    if state in "zi":
        if digit:
            return "i" if state == "i" else None
        if universe == "digits":
            return None
        if character == ".":
            return "p"
        return "e" if character in "eE" and universe != "plain" else None
    if state in "pf":
        if digit:
            return "f"
        return "e" if character in "eE" and state == "f" and universe != "plain" else None
    if digit:
        return "x"
    return "g" if state == "e" and character in "+-" else None


def _alike(conditions: Sequence[Condition]) -> tuple[tuple[str, str], ...]:
    """(first, last) of the runs of characters that the number syntax and all conditions take alike, ascending."""
    first = sorted({"0", "1"}.union(*(condition.digits for condition in conditions)).intersection(_DIGITS))
    last = [chr(ord(digit) - 1) for digit in first[1:]] + ["9"]
    return tuple(sorted([*zip("+-.Ee", "+-.Ee"), *zip(first, last)]))


@functools.cache
def _following(
    state: str, universe: Universe, runs: tuple[tuple[str, str], ...]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Places of the runs of characters that a number goes on with, and the states of the number syntax behind them."""
    after = [_spelled(state, first, universe) for first, _ in runs]
    return tuple(i for i, spelled in enumerate(after) if spelled), tuple(spelled for spelled in after if spelled)


class _Run:
    """A condition whose states have numbers and are worked out once; the joint states of conditions are far more than theirs."""

    def __init__(self, condition: Condition, characters: list[str]) -> None:
        self._condition, self._states, self._characters = condition, [condition.start], characters
        self._number, self._says = {condition.start: 0}, dict[int, int]()
        self._after: dict[tuple[int, tuple[int, ...]], list[int]] = {}

    def steps(self, state: int, places: tuple[int, ...]) -> list[int]:
        """The states after each of some of the characters."""
        found = self._after.get((state, places))
        if found is None:
            here, step = self._states[state], self._condition.step
            found = self._after[state, places] = [self._numbered(step(here, self._characters[place])) for place in places]
        return found

    def _numbered(self, state: Any) -> int:
        number = self._number.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def says(self, state: int) -> int:
        """What the condition says of a number that ends here."""
        found = self._says.get(state)
        if found is None:
            found = self._says[state] = self._condition.holds(self._states[state])
        return found


def number_dfa(
    conditions: Sequence[Condition],
    universe: Universe,
    label: Callable[[tuple[int, ...]], int],
    max_states: int,
    where: str,
) -> TextDfa:
    """The numbers of a universe, labelled by what conditions say of them.

    Args:
      conditions: automata run side by side.
      universe: which spellings are read.
      label: label of a number, from what each condition says.
      where: JSON pointer for the message.
    """
    alike, label = _alike(conditions), functools.cache(label)
    runs = [_Run(condition, [first for first, _ in alike]) for condition in conditions]
    codes = [(ord(first), ord(last)) for first, last in alike]
    start: tuple[Any, ...] = ("s", *(0 for _ in runs))
    number = Numbers([start])
    rows, labels = [], []
    for joint in number.order:
        check_time(f"Combining the number conditions at {where}")
        ends = joint[0] in "zifx"
        labels.append(label(tuple([run.says(q) for run, q in zip(runs, joint[1:])])) if ends else 0)
        row = []
        places, spelled = _following(joint[0], universe, alike)
        for place, after in zip(places, zip(spelled, *[run.steps(q, places) for run, q in zip(runs, joint[1:])])):
            row.append((*codes[place], number[after]))
        if len(number) > max_states:
            fix = "Use fewer conditions on one number, or raise SchemaOptions.max_product."
            raise LimitError("max_product", max_states, f"Combining the number conditions at {where}", fix=fix)
        rows.append(tuple(row))
    return minimized(TextDfa(rows, labels))

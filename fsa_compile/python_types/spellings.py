"""How values without structure are written: patterns (in Python's dialect) of numbers, dates, times, durations and ids.

Every text of a pattern reads as a value: years run from 1 to 9999, February has 29 days in leap years only, floats stay finite.
"""

from __future__ import annotations

import datetime
import functools
import math
import uuid
from decimal import Decimal
from fractions import Fraction

from fsa_compile.python_types.shapes import Number, Special

INTEGER = "(?:0|-?[1-9][0-9]*)"
DECIMAL = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
"""RFC 4648, section 4."""
_EXPONENT_UP = "(?:[0-9]{1,2}|1[0-9]{2}|2[0-7][0-9])"
_FLOAT = (
    r"-?(?:(?:0|[1-9][0-9]{0,21})(?:\.[0-9]{1,40})?(?:[eE](?:\+?%(up)s|-%(down)s))?"
    r"|[0-9](?:\.[0-9]{1,40})?[eE]\+?(?:2[89][0-9]|30[0-7]))"
)
FLOAT = _FLOAT % {"up": _EXPONENT_UP, "down": "[0-9]{1,3}"}
"""Finite floats: those up to 1e308, with at most 40 digits after the point."""
_FLOAT_NOT_TINY = _FLOAT % {"up": _EXPONENT_UP, "down": "(?:[0-9]{1,2}|1[0-9]{2}|2[0-7][0-9])"}
"""No text of a number that is not 0 reads as 0.0."""
_POSITIONAL = r"-?(?:0|[1-9]%s)(?:\.%s)?"


def number_pattern(number: Number) -> str:
    """The pattern of a number's text; its bounds and multiples are not in it.

    A float of which multiples are asked has no exponent.
    """
    if number.kind == "int":
        return INTEGER
    if number.kind == "Decimal":
        return DECIMAL
    beyond_zero = (number.low_open and number.low == 0) or (number.high_open and number.high == 0)
    if has_exponent(number):
        return _FLOAT_NOT_TINY if beyond_zero else FLOAT
    whole = "[0-9]*" if number.low is not None and number.high is not None else "[0-9]{0,39}"
    return _POSITIONAL % (whole, "[0-9]{1,40}" if beyond_zero else "[0-9]+")


def has_exponent(number: Number) -> bool:
    """Whether a float may be written with an exponent: multiples are known by their digits only."""
    return number.kind == "float" and not number.multiples


def number_text(number: Number, value: int | float | Decimal) -> str:
    """The canonical text of a number."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not has_exponent(number):
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else text + ".0"
    return format(Decimal(value), "f") if isinstance(value, int) else repr(value)  # repr stops at 4,300 digits


def read_number(number: Number, text: str) -> int | float | Decimal:
    """The value of a number's text."""
    if number.kind == "int":
        return int(Decimal(text))  # int(text) stops at 4,300 digits
    return float(text) if number.kind == "float" else Decimal(text)


def holds(number: Number, value: Fraction) -> bool:
    """Whether an exact number keeps to bounds and multiples."""
    if number.low is not None and (value < number.low or (number.low_open and value == number.low)):
        return False
    if number.high is not None and (value > number.high or (number.high_open and value == number.high)):
        return False
    return all((value / m).denominator == 1 for m in number.multiples)


# dates and times

_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_YEAR = "(?!0000)[0-9]{4}"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_ZONES = {"any": _ZONE + "?", "naive": "", "aware": _ZONE}
_MICRO = r"(?:\.[0-9]{1,6})?"
_TIMES = f"(?:(?:[01]?[0-9]|2[0-3])H)?(?:[0-5]?[0-9]M)?(?:[0-5]?[0-9]{_MICRO}S)?"
_DURATION = f"(?!-P0*999999999DT)-?P(?=[0-9T])(?:[0-9]{{1,9}}D)?(?:T(?=[0-9]){_TIMES})?"
_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-%s[0-9a-fA-F]{3}-%s[0-9a-fA-F]{3}-[0-9a-fA-F]{12}"


def _duration(text: str) -> datetime.timedelta:
    """Reads what `_DURATION` matches."""
    sign, rest = (-1, text[2:]) if text[0] == "-" else (1, text[1:])
    days, _, times = rest.partition("T")
    micro = int(days[:-1] or 0) * 86_400_000_000 if days else 0
    number = ""
    for character in times:
        if character in "HMS":
            micro += int(Decimal(number) * {"H": 3_600_000_000, "M": 60_000_000, "S": 1_000_000}[character])
            number = ""
        else:
            number += character
    return datetime.timedelta(microseconds=sign * micro)


def _duration_text(value: datetime.timedelta) -> str:
    sign, value = ("-", -value) if value.days < 0 and value != datetime.timedelta.min else ("", value)
    if value == datetime.timedelta.min:
        return "-P999999999D"
    seconds, micro = value.seconds, value.microseconds
    days = f"{value.days}D" if value.days else ""
    times = "".join(f"{n}{unit}" for n, unit in ((seconds // 3600, "H"), (seconds // 60 % 60, "M")) if n)
    if seconds % 60 or micro or not (days or times):
        times += str(seconds % 60) + (f".{micro:06}".rstrip("0") if micro else "") + "S"
    return f"{sign}P{days}" + (f"T{times}" if times else "")


def _moment_text(value: datetime.datetime | datetime.time) -> str:
    return value.isoformat()


@functools.cache
def date() -> Special:
    """datetime.date, as `2024-02-29`."""
    return Special("date", _DATE, datetime.date.fromisoformat, datetime.date.isoformat, "")


@functools.cache
def moment(zone: str = "any") -> Special:
    """datetime.datetime, as `2024-02-29T12:30:00.25+01:00`; `zone` is "any", "naive" or "aware"."""
    pattern = f"{_DATE}T{_CLOCK}{_ZONES[zone]}"
    return Special("datetime", pattern, _read_moment, _moment_text, "datetime.fromisoformat")


def _read_moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(_six_digits(text))


def _read_time(text: str) -> datetime.time:
    return datetime.time.fromisoformat(_six_digits(text))


def _six_digits(text: str) -> str:
    """A time whose fraction of a second, if it has one, has six digits."""
    whole, point, rest = text.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return whole + point + rest[:digits].ljust(6, "0") + rest[digits:] if point else text


@functools.cache
def time() -> Special:
    """datetime.time, as `12:30:00`, perhaps with a fraction and a zone."""
    return Special("time", _CLOCK + _ZONE + "?", _read_time, _moment_text, "time.fromisoformat")


@functools.cache
def timedelta() -> Special:
    """datetime.timedelta, as an ISO 8601 duration such as `-P1DT2H30M0.5S`."""
    return Special("timedelta", _DURATION, _duration, _duration_text, "")


@functools.cache
def identifier(version: int | None = None) -> Special:
    """uuid.UUID, with hyphens; of one version of RFC 9562, or any."""
    pattern = _UUID % (("[0-9a-fA-F]", "[0-9a-fA-F]") if version is None else (str(version), "[89abAB]"))
    return Special("UUID", pattern, uuid.UUID, str, "UUID")


# bounds


def float_low(bound: Fraction, strict: bool) -> tuple[Fraction, bool]:
    """The least exact number, and whether it is itself outside, whose nearest float is at least (above) a bound.

    A bound of 0 stays 0.
    """
    if bound == 0:
        return bound, strict
    least = float(bound)
    if Fraction(least) < bound or (strict and Fraction(least) == bound):
        least = math.nextafter(least, math.inf)
    below = math.nextafter(least, -math.inf)
    if not math.isfinite(least) or not math.isfinite(below):
        raise OverflowError
    middle = (Fraction(least) + Fraction(below)) / 2
    return middle, float(middle) != least


def float_high(bound: Fraction, strict: bool) -> tuple[Fraction, bool]:
    """As `float_low`, for at most (below)."""
    low, is_open = float_low(-bound, strict)
    return -low, is_open

"""How Python's own literals are written here: strings, bytes, dates and durations, as patterns and as text."""

from __future__ import annotations

import datetime

_HEX = "[0-9a-fA-F]"
_ESCAPES = (
    rf"[\\'\"abfnrtv]|x{_HEX}{{2}}|u(?:[0-9a-cA-CefEF]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}})"
    rf"|U000(?:0(?:[0-9a-cA-CefEF]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}})|[1-9a-fA-F]{_HEX}{{4}})|U0010{_HEX}{{4}}"
)
QUOTES = "'\""


def string_pattern(low: int, high: int | None) -> str:
    """A string of `low` to `high` code points, in either quotes, on one line, control characters escaped."""
    return "|".join(f"{q}{_repeated(_unit(q), low, high)}{q}" for q in QUOTES)


def _unit(quote: str) -> str:
    """One code point inside a string."""
    return rf"(?:[^{quote}\x00-\x1f\x7f\\]|\\(?:{_ESCAPES}))"


BYTES = "|".join(
    rf"b{q}(?:[ -{before}{after}-\[\]-~]|\\(?:[\\'\"abfnrtv]|x{_HEX}{{2}}))*{q}"
    for q, before, after in (("'", "&", "("), ('"', "!", "#"))
)


def _repeated(unit: str, low: int, high: int | None) -> str:
    if high is None:
        return unit + ("*" if low == 0 else f"{{{low},}}")
    return f"{unit}{{{low},{high}}}"


def escaped(code_point: int, quote: str) -> str | None:
    """The only spelling of a character that is not written as itself where a pattern holds; None where it is."""
    if code_point in (ord(quote), ord("\\")):
        return "\\" + chr(code_point)
    return repr(chr(code_point))[1:-1] if code_point < 0x20 or code_point == 0x7F else None


# constructors that take numbers

_FOURTHS = "[2468][048]|[13579][26]"
_LEAP_YEAR = f"(?:[1-9][0-9]?(?:0[48]|{_FOURTHS})|[48]|{_FOURTHS}|(?:[48]|{_FOURTHS})00)"
_YEAR = "(?:(?:[1-9][0-9]?)?(?:0[48]|[2468][048]|[13579][26])|[48]|(?:[48]|[2468][048]|[13579][26])00)"
_YEAR = "[1-9][0-9]{0,3}"
_COMMA = ", ?"
DATE_ARGUMENTS = (
    f"(?:{_YEAR}{_COMMA}(?:(?:[13578]|1[02]){_COMMA}(?:[1-9]|[12][0-9]|3[01])|(?:[469]|11){_COMMA}(?:[1-9]|[12][0-9]|30)"
    f"|2{_COMMA}(?:[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}{_COMMA}2{_COMMA}29)"
)
_DAYS = "days=(?:-?[1-9][0-9]{0,8}|0)"
_SECONDS = "seconds=(?:0|[1-9][0-9]{0,3}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2})"
_MICROSECONDS = "microseconds=(?:[1-9][0-9]{0,5}|0)"
DATE = rf"date\({DATE_ARGUMENTS}\)"
TIMEDELTA = (
    rf"timedelta\((?:{_DAYS}(?:{_COMMA}{_SECONDS})?(?:{_COMMA}{_MICROSECONDS})?"
    rf"|{_SECONDS}(?:{_COMMA}{_MICROSECONDS})?|{_MICROSECONDS}|0)\)"
)


def date_text(value: datetime.date) -> str:
    """A date as a call."""
    return f"date({value.year}, {value.month}, {value.day})"


def timedelta_text(value: datetime.timedelta) -> str:
    """A duration as a call."""
    parts = [f"{name}={getattr(value, name)}" for name in ("days", "seconds", "microseconds") if getattr(value, name)]
    return f"timedelta({', '.join(parts) or '0'})"

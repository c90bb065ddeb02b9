"""What the marks of `Annotated` and pydantic's `Field` say, as plain conditions. Knows the marks' names, imports none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fsa_compile.errors import shown
from fsa_compile.python_types import marks as constraints
from fsa_compile.python_types.type_errors import UnsupportedTypeError


class Condition(NamedTuple):
    """One condition: "gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern" (of the whole string), "zone"
    ("naive", "aware"), "version" (of a UUID), "tag" (the field that tells the members of a union apart must be there)."""

    name: str
    value: Any


_NUMERIC = ("gt", "ge", "lt", "le", "multiple_of")
_LENGTHS = ("min_length", "max_length")
_MEANINGLESS = ("strict", "coerce_numbers_to_str", "fail_fast", "union_mode", "regex_engine", "ascii_only")
"""Options of pydantic that do not make a value of the type wrong, at the values checked below."""
_IGNORED = {
    "Strict", "Doc", "DocInfo", "Unit", "FailFast", "WithJsonSchema", "PlainSerializer", "WrapSerializer", "Tag", "Examples",
}  # fmt: skip
"""Marks that say nothing about values."""
_LIBRARIES = ("annotated_types", "pydantic", "pydantic_core", "msgspec")


def conditions(metadata: Iterable[Any], place: str, allow_code: bool = False) -> Iterator[Condition]:
    """The conditions of some marks; those that no library of constraints owns say nothing (PEP 593).

    Raises:
      UnsupportedTypeError: a mark that runs code, or whose condition is not known here.
    """
    for mark in metadata:
        yield from _condition(mark, place, allow_code)


def _condition(mark: Any, place: str, allow_code: bool) -> Iterator[Condition]:
    name, library = type(mark).__name__, type(mark).__module__.split(".")[0]
    own = isinstance(
        mark, (constraints.Gt, constraints.Ge, constraints.Lt, constraints.Le, constraints.MultipleOf, constraints.Length)
    )
    if isinstance(mark, constraints.Pattern):
        yield Condition("pattern", mark.pattern)
    elif name == "FieldInfo" and library == "pydantic":
        if mark.discriminator is not None and not isinstance(mark.discriminator, str):
            raise _refused(mark, place)
        if mark.discriminator is not None:
            yield Condition("tag", mark.discriminator)
        yield from conditions(mark.metadata, place, allow_code)
    elif own or (library == "annotated_types" and name in ("Gt", "Ge", "Lt", "Le", "MultipleOf", "MinLen", "MaxLen")):
        for field in (*_NUMERIC, *_LENGTHS):
            if getattr(mark, field, None) is not None:
                yield Condition(field, getattr(mark, field))
    elif name == "Timezone" and library == "annotated_types" and mark.tz in (None, ...):
        yield Condition("zone", "naive" if mark.tz is None else "aware")
    elif name == "UuidVersion":
        yield Condition("version", mark.uuid_version)
    elif name == "AllowInfNan":
        pass  # floats are finite in any case
    elif library in _LIBRARIES and name not in _IGNORED:
        yield from _of_library(mark, name, place, allow_code)


def _of_library(mark: Any, name: str, place: str, allow_code: bool) -> Iterator[Condition]:
    """Marks that hold several options, or further marks."""
    if "GeneralMetadata" in name or name == "PydanticGeneralMetadata":
        for field, value in vars(mark).items():
            yield from _option(field, value, mark, place)
    elif name == "StringConstraints":
        for field, value in vars(mark).items():
            if value is not None and value is not False:
                yield from _option(field, value, mark, place)
    elif hasattr(mark, "__iter__"):  # annotated_types.GroupedMetadata
        yield from conditions(mark, place, allow_code)
    elif not allow_code:
        raise _refused(mark, place)


def _option(field: str, value: Any, mark: Any, place: str) -> Iterator[Condition]:
    if field == "pattern":
        if getattr(value, "flags", re.UNICODE) != re.UNICODE:
            what, fix = f"{shown(value)} has flags", "Write what they mean into the pattern, such as [Aa] for A and a."
            raise UnsupportedTypeError(what, place=place, fix=fix)
        yield Condition("pattern", searched(getattr(value, "pattern", value), place))
    elif field in _NUMERIC or field in _LENGTHS:
        yield Condition(field, value)
    elif field == "max_digits" or field == "decimal_places":
        raise UnsupportedTypeError(
            f"{field} is not supported", place=place, fix="Use multiple_of and bounds, such as multiple_of=0.01 and lt=1000."
        )
    elif field not in _MEANINGLESS and field != "allow_inf_nan" and value:
        raise _refused(mark, place)


def _refused(mark: Any, place: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"what {shown(mark, 80)} asks for is not known before the value is complete", place=place,
        fix="Use bounds, lengths, patterns or Literal; or pass allow_code=True and let parse check it.",
    )  # fmt: skip


_READER_DEPENDENT = re.compile(r"(?:\\.|[^\\])*?(?:\\[WSDBb<>]|\(\?(?!:|P?<[A-Za-z_]))", re.S)
_PARTS = re.compile(r"(\\.)|(\[\^?\]?(?:\\.|[^\]\\])*\])|\$", re.S)
"""An escape, a class, or the end."""


def searched(pattern: str, place: str) -> str:
    """A pattern that is searched for (pydantic), as one for the whole string.

    Pydantic's default engine is Rust's, whose `\\d`, `\\w` and `\\s` are Unicode's. Here they are ASCII, so that they mean the
    same or less everywhere; where less would become more, the pattern is refused. `$` is the very end of the string. Rust's
    classes have operators and classes in them.
    """
    classes = [re.sub(r"\\[^wsd]", ".", found[2]) for found in _PARTS.finditer(pattern) if found[2]]
    if _READER_DEPENDENT.match(pattern) or any(re.search(r"^\[\^.*\\|.\[|&&|--|~~", found, re.S) for found in classes):
        raise UnsupportedTypeError(
            f"the pattern {pattern!r:.60} means different things to different readers", place=place,
            fix=r"Write characters instead of \W, \S, \D, \b, \<, [^\w] and flags, such as [^a-z]; in classes \[, \& and \-.",
        )  # fmt: skip
    ends = _PARTS.sub(lambda m: m[1] or m[2] or r"\Z", pattern)
    return rf"(?s:.*)(?a:{ends})(?s:.*)"

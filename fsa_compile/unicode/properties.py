"""Which characters belong to `\\d`, `\\w`, `\\s`, to a property, or together when case is ignored.

Nothing is copied from the Unicode tables: the running Python's own `re` (and the `regex` package for properties) is asked once
about every scalar value, so the answers agree with it whatever its Unicode version. One question takes about 10 ms and is
remembered for the life of the process.
"""

from __future__ import annotations

import bisect
import functools
import re
import warnings
from typing import Any

import numpy as np

from fsa_compile.unicode.code_points import FIRST_SURROGATE, LAST, LAST_SURROGATE, CodePointSet, complement, normal, single, union

_ASCII_TEXT = "".join(map(chr, range(128)))
_DIGITS = sum(1 << ord(c) for c in "0123456789")
_SPACES = sum(1 << ord(c) for c in " \t\n\r\f\v")
_WORDS = sum(1 << c for c in range(128) if chr(c).isalnum() or c == ord("_"))
_ASCII_CATEGORIES = {"d": _DIGITS, "s": _SPACES, "w": _WORDS}


@functools.cache
def _wide_text() -> str:
    """Every scalar value from 0x80 on, in order."""
    points = np.concatenate((np.arange(0x80, FIRST_SURROGATE), np.arange(LAST_SURROGATE + 1, LAST + 1)))
    return points.astype("<u4").tobytes().decode("utf-32-le")


def matching(engine: Any, item: str, flags: int = 0) -> CodePointSet:
    """The characters that a one-character pattern matches, by trying each.

    Args:
      item: source of a pattern that matches exactly one character.
      flags: flags of the engine.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        one = engine.compile(item, flags)
        run = engine.compile(f"(?:{item})+", flags)
    ascii_ = 0
    for match in one.finditer(_ASCII_TEXT):
        ascii_ |= 1 << match.start()
    gap = FIRST_SURROGATE - 0x80  # where the text jumps over the surrogates
    beyond = LAST_SURROGATE + 1 - gap
    ranges = []
    for match in run.finditer(_wide_text()):
        low, high = match.span()
        if low < gap:
            ranges.append((low + 0x80, min(high, gap) - 1 + 0x80))
        if high > gap:
            ranges.append((max(low, gap) + beyond, high - 1 + beyond))
    return ascii_, normal(ranges)


@functools.cache
def category(letter: str, ascii_only: bool = False) -> CodePointSet:
    """The characters of `\\d`, `\\s`, `\\w` or a negation of one. `letter`: one of `dswDSW`. `ascii_only`: as under `(?a)`."""
    if letter.isupper():
        return complement(category(letter.lower(), ascii_only))
    if ascii_only:
        return _ASCII_CATEGORIES[letter], ()
    return matching(re, "\\" + letter)


@functools.cache
def named_property(name: str) -> CodePointSet | None:
    """The characters of a Unicode general category, script or binary property, or None when there is none of that name.

    Args:
      name: what stands between the braces of `\\p{...}`, for example `Lu`, `Greek`, `Script=Greek`, `Alphabetic`.
    """
    import regex

    if not re.fullmatch(r"\^?[A-Za-z0-9_ .=:&-]+", name):
        return None
    try:
        return matching(regex, r"\p{" + name + "}")
    except regex.error:
        return None


_SPECIAL_CASE = {"i": (0x130, 0x131), "s": (0x17F,), "k": (0x212A,)}


@functools.cache
def same_ignoring_case(code_point: int, ascii_only: bool = False) -> CodePointSet:
    """The characters that `re` matches for this one under IGNORECASE, itself included."""
    char = chr(code_point)
    if code_point < 128:
        if not char.isalpha():
            return 1 << code_point, ()
        ascii_ = 1 << ord(char.lower()) | 1 << ord(char.upper())
        special = () if ascii_only else _SPECIAL_CASE.get(char.lower(), ())
        return ascii_, normal((c, c) for c in special)
    if ascii_only:
        return 0, ((code_point, code_point),)
    found = re.compile(re.escape(char), re.IGNORECASE).findall(_cased_text())
    return union((0, ((code_point, code_point),)), *(single(ord(c)) for c in found))


@functools.cache
def class_ignoring_case(source: str, flags: int) -> CodePointSet:
    """The characters of a bracketed class under IGNORECASE, by asking `re` itself.

    Args:
      source: the class with its brackets, in the syntax of `re`.
      flags: flags of `re`.
    """
    return matching(re, source, flags)


@functools.cache
def close_under_case(members: CodePointSet, ascii_only: bool = False) -> CodePointSet:
    """All characters that equal a member when case is ignored."""
    ascii_, wide = members
    parts = [members]
    letters = ascii_
    while letters:
        low_bit = letters & -letters
        parts.append(same_ignoring_case(low_bit.bit_length() - 1, ascii_only))
        letters ^= low_bit
    if wide and not ascii_only:
        cased = [ord(c) for c in _cased_text()[52:]]
        for low, high in wide:
            first, last = bisect.bisect_left(cased, low), bisect.bisect_right(cased, high)
            parts += [same_ignoring_case(c) for c in cased[first:last]]
    return union(*parts)


@functools.cache
def _cased_text() -> str:
    """Every character that has another one in its case class: 52 ASCII letters, then the others in order."""
    return "".join(
        c for c in map(chr, (*range(128), *range(0x80, 0xD800), *range(0xE000, 0x20000))) if c.lower() != c or c.upper() != c
    )

"""The small print of pattern text: escapes, properties and bracketed classes. The parser calls this; nothing else does."""

from __future__ import annotations

import re
import unicodedata
from typing import NoReturn, Protocol

from fsa_compile.unicode.code_points import CodePointSet, complement, is_surrogate, union
from fsa_compile.unicode.properties import category, class_ignoring_case, close_under_case, named_property

CATEGORIES = "dswDSW"
_SIMPLE = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_OCTAL = frozenset("01234567")
_A, _I = int(re.A), int(re.I)


class Cursor(Protocol):
    """The pattern that is being read, and errors that name a place in it."""

    text: str
    flags: int

    def syntax(self, what: str, start: int, end: int | None = None, fix: str = "") -> NoReturn:
        """Refuses a malformed pattern."""

    def unsupported(self, what: str, start: int, end: int | None = None, fix: str = "") -> NoReturn:
        """Refuses what is not regular."""

    def refuse_surrogate(self, start: int, end: int) -> NoReturn:
        """Refuses a surrogate."""


def parse_escape(parser: Cursor, i: int, *, in_class: bool) -> tuple[int, int]:
    r"""The code point that the escape at offset `i` means, and the offset after it.

    Categories, anchors and properties are not handled here.
    """
    text = parser.text
    c = text[i + 1 : i + 2]
    if not c:
        parser.syntax("the pattern ends in a backslash", i, fix=r"Write \\ for a backslash.")
    if c in _SIMPLE:
        return _SIMPLE[c], i + 2
    if c in _HEX_DIGITS:
        return _hexadecimal(parser, i, _HEX_DIGITS[c])
    if c == "N":
        return _named(parser, i)
    if c.isdigit() and c.isascii():
        return _octal(parser, i, in_class)
    if in_class and c == "b":
        return 8, i + 2
    if c.isascii() and c.isalpha():
        known = {"z": r" (use \Z)", "K": "", "G": "", "Q": " (escape each character)", "h": r" (use [ \t])", "R": r" (use \r?\n)"}
        parser.syntax(f"unknown escape \\{c}{known.get(c, '')}", i, i + 2, fix=f"For the letter itself write {c}.")
    return ord(c), i + 2


def _hexadecimal(parser: Cursor, i: int, digits: int) -> tuple[int, int]:
    text = parser.text
    found = text[i + 2 : i + 2 + digits]
    good = 0
    while good < len(found) and found[good] in "0123456789abcdefABCDEF":
        good += 1
    j = i + 2 + good
    if good < digits:
        parser.syntax(f"\\{text[i + 1]} needs {digits} hexadecimal digits and has {good}", i, j)
    value = int(found, 16)
    if value > 0x10FFFF:
        parser.syntax(f"{value:#x} is beyond the last code point 0x10ffff", i, j)
    if is_surrogate(value):
        parser.refuse_surrogate(i, j)
    return value, j


def _named(parser: Cursor, i: int) -> tuple[int, int]:
    text = parser.text
    j = text.find("}", i)
    if text[i + 2 : i + 3] != "{" or j < 0:
        parser.syntax(r"\N needs a character name in braces", i, i + 2, fix=r"For example \N{EURO SIGN}.")
    name = text[i + 3 : j]
    try:
        found = unicodedata.lookup(name)
    except KeyError:
        found = ""
    if len(found) != 1:
        parser.syntax(f"there is no character named {name!r}", i, j + 1)
    return ord(found), j + 1


def _octal(parser: Cursor, i: int, in_class: bool) -> tuple[int, int]:
    """`\\0`, `\\012`, `\\123`: as `re` reads them; other numbers outside a class are back-references."""
    text = parser.text
    j = i + 1
    while j < len(text) and j < i + 4 and text[j] in _OCTAL:
        j += 1
    count = j - i - 1
    if text[i + 1] != "0" and not in_class and count < 3:
        j = i + 2 + text[i + 2 : i + 3].isdigit()
        parser.unsupported(
            f"a back-reference (\\{text[i + 1 : j]}) is not a regular language",
            i,
            j,
            fix="Write the alternatives out, or the text again.",
        )
    if count == 0:
        parser.syntax(f"unknown escape {text[i : i + 2]} in a character class", i, i + 2)
    value = int(text[i + 1 : j], 8)
    if value > 0o377:
        parser.syntax(
            f"the octal escape {text[i:j]} exceeds \\377", i, j, fix=rf"Write \x or \u for larger values: \u{value:04x}."
        )
    return value, j


def parse_property(parser: Cursor, i: int) -> tuple[CodePointSet, int]:
    r"""The set of the property escape `\p{...}` or `\P{...}` at offset `i`, and the offset after it."""
    text = parser.text
    if text[i + 2 : i + 3] == "{":
        j = text.find("}", i)
        if j < 0:
            parser.syntax(f"missing }} after \\{text[i + 1]}{{", i, len(text))
        name, j = text[i + 3 : j], j + 1
    else:
        name, j = text[i + 2 : i + 3], i + 3
        if not name.isalpha():
            parser.syntax(f"\\{text[i + 1]} needs a property name in braces", i, i + 2, fix=r"For example \p{Lu} or \p{Greek}.")
    members = named_property(name)
    if members is None:
        parser.syntax(
            f"there is no Unicode property {name!r}",
            i,
            j,
            fix=r"Use a general category (Lu), a script (Greek) or a binary property (Alphabetic).",
        )
    return (complement(members) if text[i + 1] == "P" else members), j


def parse_class(parser: Cursor, start: int) -> tuple[CodePointSet, int]:
    """The set of the bracketed class at offset `start`, and the offset after it."""
    text, n = parser.text, len(parser.text)
    ascii_only = bool(parser.flags & _A)
    negated = text.startswith("^", start + 1)
    i = first = start + 1 + negated
    ascii_ = 0
    wide: list[tuple[int, int]] = []
    whole: list[CodePointSet] = []  # categories and properties, which do not depend on case one by one
    properties: list[CodePointSet] = []
    while True:
        if i >= n:
            parser.syntax("missing ]: this character class is never closed", start, fix=r"Write \[ for the character itself.")
        c = text[i]
        if c == "]" and i > first:
            break
        at = i
        low: int | None
        if c != "\\":
            low, i = ord(c), i + 1
        else:
            low, i = _class_escape(parser, i, ascii_only, whole, properties)
        if i + 1 < n and text[i] == "-" and text[i + 1] != "]":
            if text[i + 1] != "\\":
                high: int | None = ord(text[i + 1])
                i += 2
            else:
                high, i = _class_escape(parser, i + 1, ascii_only, whole, properties)
            if low is None or high is None:
                parser.syntax(
                    f"the range {text[at:i]} begins or ends with a set",
                    at,
                    i,
                    fix=r"Put the - last or write \- for the character itself.",
                )
            if high < low:
                parser.syntax(f"the range {text[at:i]} runs backwards", at, i, fix="Exchange its ends.")
            if low < 128:
                ascii_ |= (1 << min(high, 127) + 1) - (1 << low)
            if high > 127:
                wide.append((max(low, 128), high))
        elif low is not None:
            if low < 128:
                ascii_ |= 1 << low
            else:
                wide.append((low, low))
    end = i + 1
    if parser.flags & _I:
        beyond = any(high > 0xFFFF for _, high in wide)  # there `re` ignores the case of other scripts even under (?a)
        if wide and not properties and (beyond or not ascii_only):
            return class_ignoring_case(text[start:end], parser.flags & (_I | _A)), end
        members = close_under_case(union((ascii_, tuple(wide)), *properties), ascii_only)
        members = union(members, *whole)
    elif wide or whole or properties:
        members = union((ascii_, tuple(wide)), *whole, *properties)
    else:
        members = ascii_, ()
    return (complement(members) if negated else members), end


def _class_escape(
    parser: Cursor, i: int, ascii_only: bool, whole: list[CodePointSet], properties: list[CodePointSet]
) -> tuple[int | None, int]:
    """A code point, or None when the escape is a set (which is added to a list), and the offset after it."""
    letter = parser.text[i + 1 : i + 2]
    if letter and letter in CATEGORIES:
        whole.append(category(letter, ascii_only))
        return None, i + 2
    if letter and letter in "pP":
        members, j = parse_property(parser, i)
        properties.append(members)
        return None, j
    return parse_escape(parser, i, in_class=True)

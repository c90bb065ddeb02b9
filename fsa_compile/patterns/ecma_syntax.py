"""ECMA-262 patterns as syntax trees."""

from __future__ import annotations

import re
from typing import NoReturn

from fsa_compile.errors import RegexSyntaxError, UnsupportedPatternError
from fsa_compile.limits import CompileLimits
from fsa_compile.patterns.regex_tree import Alternate, Anchor, Chars, Concat, Look, Node, Repeat, Text
from fsa_compile.unicode.code_points import NONE, CodePointSet, complement, interval, is_surrogate, single, union
from fsa_compile.unicode.properties import category, named_property

_DIGIT, _WORD = category("d", True), category("w", True)


_SPACE = union(
    *(single(c) for c in (9, 10, 11, 12, 13, 32, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF)),
    interval(0x2000, 0x200A),
)


_DOT = complement(union(*(single(c) for c in (10, 13, 0x2028, 0x2029))))


_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "D": complement(_DIGIT), "W": complement(_WORD), "S": complement(_SPACE)}


_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}


_BRACES = re.compile(r"\{(\d+)(?:(,)(\d*))?\}", re.ASCII).match


_IS_CONDITION = re.compile(r"[$^]|\\[bB]|\(\?<[=!]").match
"""Before what is repeated: conditions, but for lookahead, are so in a group only."""


_MAX_DEPTH = 100


def parse_ecma(pattern: str, limits: CompileLimits) -> Node:
    """The syntax tree of an ECMA-262 pattern.

    Raises:
      RegexSyntaxError: it is not well formed.
      UnsupportedPatternError: it is not regular, or means different things to different readers.
    """
    return _Reader(pattern, limits).read()


class _Reader:
    def __init__(self, pattern: str, limits: CompileLimits) -> None:
        self._text, self._at, self._depth, self._limits = pattern, 0, 0, limits

    def read(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            self._wrong("unbalanced ): no group is open here", self._at, fix=r"Write \) for the character itself.")
        return node

    def _wrong(self, what: str, start: int, fix: str = "") -> NoReturn:
        raise RegexSyntaxError(what, pattern=self._text, start=start, end=max(self._at, start + 1), fix=fix)

    def _refuse(self, what: str, start: int, fix: str = "") -> NoReturn:
        raise UnsupportedPatternError(what, pattern=self._text, start=start, end=max(self._at, start + 1), fix=fix)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _choice(self) -> Node:
        start = self._at
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Alternate(branches, start, self._at)

    def _sequence(self) -> Node:
        start, items = self._at, list[Node]()
        while self._peek() not in ("", "|", ")"):
            begin = self._at
            item = self._item()
            bounds = self._quantifier()
            if bounds is not None:
                if _IS_CONDITION(self._text, begin):
                    self._wrong("nothing to repeat before this quantifier", begin)
                item = Repeat(item, *bounds, begin, self._at)
                if self._quantifier() is not None:
                    self._wrong("multiple repeat: a quantifier follows another", begin)
            items.append(item)
        return items[0] if len(items) == 1 else Concat(items, start, self._at)

    def _quantifier(self) -> tuple[int, int | None] | None:
        c, start = self._peek(), self._at
        bounds: tuple[int, int | None]
        if c and c in "*+?":
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
            self._at += 1
        elif c == "{" and (match := _BRACES(self._text, self._at)):
            self._at = match.end()
            low = int(match[1])
            bounds = (low, (int(match[3]) if match[3] else None) if match[2] else low)
            if bounds[1] is not None and bounds[1] < low:
                self._wrong(f"the smallest count {low} exceeds the largest count {bounds[1]}", start)
            if max(low, bounds[1] or 0) > self._limits.max_repeat:
                self._refuse(f"a count above max_repeat={self._limits.max_repeat:,}", start)
        else:
            return None
        if self._peek() == "?":
            self._at += 1  # lazy: the same language
        return bounds

    def _item(self) -> Node:
        start, c = self._at, self._peek()
        if c == "(":
            return self._group()
        self._at += 1
        if c == "[":
            return Chars(self._class(start), start, self._at)
        if c == ".":
            return Chars(_DOT, start, self._at)
        if c in "^$":
            return Anchor("text start" if c == "^" else "text end", NONE, start, self._at)
        if c == "\\":
            if self._peek() and self._peek() in "bB":
                self._at += 1
                boundary = Anchor("word boundary", _WORD, start, self._at)
                if self._text[start + 1] == "b":
                    return boundary
                return Look(boundary, False, True, start, self._at)  # unlike Python's, in the empty text, too
            members = self._escape(start)
            if is_surrogate(_only(members) or 0):
                self._refuse("a surrogate code point is not a character and has no UTF-8 form", start)
            return Chars(members, start, self._at)
        if c in "*+?" or (c == "{" and _BRACES(self._text, start)):
            self._wrong("nothing to repeat before this quantifier", start, fix=rf"Write \{c} for the character itself.")
        return self._character(ord(c), start)

    def _character(self, code_point: int, start: int) -> Node:
        if is_surrogate(code_point):
            self._refuse("a surrogate code point is not a character and has no UTF-8 form", start)
        return Text(chr(code_point), start, self._at)

    def _group(self) -> Node:
        start, text = self._at, self._text
        kind = re.compile(r"\((\?(?::|=|!|<=|<!|<[^\W\d]\w*>))?").match(text, start)
        assert kind is not None
        mark = kind[1] or ""
        self._at = kind.end()
        if not mark and self._peek() == "?":
            self._at += 2
            what = f"the group ({text[start + 1 : start + 3]} is not one of ECMA-262"
            self._refuse(what, start, fix="Use (?:...), or change the pattern.")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse(f"groups are nested more than {_MAX_DEPTH} deep", start)
        body = self._choice()
        if self._peek() != ")":
            self._wrong("missing ): this group is never closed", start, fix=r"Write \( for the character itself.")
        self._at += 1
        self._depth -= 1
        if mark in ("?=", "?!", "?<=", "?<!"):
            return Look(body, "<" in mark, mark[-1] == "!", start, self._at)
        return body

    def _escape(self, start: int) -> CodePointSet:
        """The characters of the escape whose backslash is at `start`."""
        c = self._peek()
        self._at += 1
        if c in _CLASSES:
            return _CLASSES[c]
        if c == "":
            self._wrong("the pattern ends in a backslash", start, fix=r"Write \\ for a backslash.")
        if c in "pP":
            return self._property(start)
        if c == "0" and self._peek().isdigit():
            self._refuse("an octal escape", start, fix=r"Write \x with two digits.")
        if c in _CONTROLS:
            return single(_CONTROLS[c])
        if c in "123456789k":
            self._refuse("a back-reference is not a regular language", start, fix="Write the alternatives out.")
        if c == "x":
            return single(self._hexadecimal(2, start))
        if c == "c" and re.match("[A-Za-z]", self._peek()):
            self._at += 1
            return single(ord(self._text[self._at - 1]) % 32)
        if c == "c":
            what = r"\c without a letter stands for a backslash, or is an error"
            self._refuse(what, start, fix=r"Write \\c for both characters.")
        if c == "u":
            return single(self._unicode(start))
        if c in "AZzGQEaeU":
            self._refuse(
                rf"\{c} is the letter itself in ECMA-262 and something else in other dialects", start,
                fix="Use ^ and $ for the ends of the string, or leave the backslash out.",
            )  # fmt: skip
        return single(ord(c))

    def _hexadecimal(self, digits: int, start: int) -> int:
        found = self._text[self._at : self._at + digits]
        if not re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", found):
            self._wrong(f"an escape with {digits} hexadecimal digits was begun here", start)
        self._at += digits
        return int(found, 16)

    def _unicode(self, start: int) -> int:
        r"""The character of `\uXXXX`, of a pair of these, or of `\u{X...}`."""
        if self._peek() == "{":
            braces = re.compile(r"\{0*([0-9A-Fa-f]{1,6})\}").match(self._text, self._at)
            if braces is None or int(braces[1], 16) > 0x10FFFF:
                self._wrong(r"\u{...} needs a hexadecimal code point", start)
            self._at, code_point = braces.end(), int(braces[1], 16)
        else:
            code_point = self._hexadecimal(4, start)
            if 0xD800 <= code_point < 0xDC00 and self._text.startswith("\\u", self._at):
                self._at += 2
                low = self._hexadecimal(4, start)
                if not 0xDC00 <= low < 0xE000:
                    self._refuse("a surrogate code point is not a character and has no UTF-8 form", start)
                code_point = 0x10000 + ((code_point - 0xD800) << 10) + low - 0xDC00
        return code_point

    def _property(self, start: int) -> CodePointSet:
        negative = self._text[self._at - 1] == "P"
        braces = re.compile(r"\{([\w=]+)\}").match(self._text, self._at)
        if braces is None:
            self._wrong(r"\p needs a property in braces", start, fix=r"Write \p{L}, for example.")
        self._at = braces.end()
        members = named_property(braces[1])
        if members is None:
            self._wrong(f"unknown Unicode property {braces[1]!r}", start)
        return complement(members) if negative else members

    def _class(self, start: int) -> CodePointSet:
        negative = self._peek() == "^"
        self._at += negative
        members: list[CodePointSet] = []
        while (c := self._peek()) != "]":
            if not c:
                self._wrong("missing ]: this character class is never closed", start)
            begin = self._at
            first = self._class_member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._class_member()
                low, high = _only(first), _only(last)
                if low is None or high is None:  # a class at one end: the hyphen means itself
                    members += [first, single(ord("-")), last]
                    continue
                if high < low:
                    self._wrong("the range runs backwards", begin)
                if is_surrogate(low) or is_surrogate(high):
                    members.append(self._surrogate_range(low, high, begin))
                else:
                    members.append(interval(low, high))
            else:
                if is_surrogate(_only(first) or 0):
                    self._refuse("a surrogate code point is not a character and has no UTF-8 form", begin)
                members.append(first)
        self._at += 1
        union_ = union(*members) if members else NONE
        return complement(union_) if negative else union_

    def _surrogate_range(self, low: int, high: int, start: int) -> CodePointSet:
        """A range that ends in a surrogate holds the characters in it, and no halves of pairs."""
        if is_surrogate(low) and is_surrogate(high):
            self._refuse("a surrogate code point is not a character and has no UTF-8 form", start)
        return interval(low, high)

    def _class_member(self) -> CodePointSet:
        start, c = self._at, self._peek()
        self._at += 1
        if c != "\\":
            return single(ord(c))
        if self._peek() == "b":
            self._at += 1
            return single(8)
        return self._escape(start)


def _only(members: CodePointSet) -> int | None:
    """The only member of a set, or None."""
    ascii_, wide = members
    if wide:
        return wide[0][0] if not ascii_ and len(wide) == 1 and wide[0][0] == wide[0][1] else None
    return ascii_.bit_length() - 1 if ascii_.bit_count() == 1 else None

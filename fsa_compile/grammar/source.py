"""What both grammar syntaxes share: a grammar's text, errors that point into it, and the atoms of our own.

The atoms are `<name>` and `<[id]>` (a token of the vocabulary that is no text), `%token("name")` (the same, for names without
angle brackets) and `%until("a", "b")` (free text up to and including a trigger). Knows neither syntax.
"""

from __future__ import annotations

import re
from typing import NoReturn

from fsa_compile.errors import (
    ConstraintError,
    GrammarSyntaxError,
    LimitError,
    PatternError,
    UnsupportedGrammarError,
    UnsupportedPatternError,
)
from fsa_compile.grammar.grammar_tree import Choice, Expression, Repeat, Sequence, SpecialToken
from fsa_compile.languages.group_syntax import parse_with_groups as parse_pattern
from fsa_compile.limits import CompileLimits
from fsa_compile.patterns.regex_tree import Node

MAX_DEPTH = 50
"""Largest number of groups inside each other."""

_SURROGATE = re.compile("[\ud800-\udfff]").search
_SPECIAL = re.compile(r"<(?:\[(?P<id>[^\]>\n]*)\]|(?P<name>[^<>\s\[][^<>\s]*))>").match
_IDS = 1024
"""Most token numbers in one pair of brackets."""
_PLAIN_LOOPS: set[tuple[int, int | None]] = {(0, 1), (0, None), (1, None)}
_FLAGS = {"i": re.I, "m": re.M, "s": re.S, "x": re.X}
_HEX = frozenset("0123456789abcdefABCDEF")


class GrammarText:
    """A grammar's text, its limits, and the ways to refuse a part of it."""

    def __init__(self, text: str, limits: CompileLimits | None) -> None:
        if not isinstance(text, str):
            raise ConstraintError(f"a grammar is a str, not {type(text).__name__}", fix="Pass its text.")
        self.text, self.limits = text, limits or CompileLimits()
        if len(text) > self.limits.max_pattern:
            raise LimitError("max_pattern", self.limits.max_pattern, f"Reading a grammar of {len(text):,} characters")
        if not text.isascii() and (found := _SURROGATE(text)):
            self.refuse_surrogate(found.start(), found.end())

    def syntax(self, what: str, start: int, end: int | None = None, fix: str = "") -> NoReturn:
        """Refuses a part that is not well formed."""
        raise GrammarSyntaxError(what, text=self.text, start=start, end=end, fix=fix)

    def unsupported(self, what: str, start: int, end: int | None = None, fix: str = "") -> NoReturn:
        """Refuses a part that is well formed."""
        raise UnsupportedGrammarError(what, text=self.text, start=start, end=end, fix=fix)

    def refuse_surrogate(self, start: int, end: int) -> NoReturn:
        """Refuses half of a UTF-16 pair."""
        fix = r"Write the character itself, or \U with eight digits."
        self.unsupported("a surrogate code point is not a character and has no UTF-8 form", start, end, fix=fix)

    def too_deep(self, start: int) -> NoReturn:
        """Refuses a group inside too many others."""
        self.unsupported(f"groups are nested more than {MAX_DEPTH} deep", start, fix="Give the inner part a rule of its own.")

    def line_of(self, offset: int) -> int:
        """Line number from 1."""
        return self.text.count("\n", 0, offset) + 1

    def number(self, start: int, end: int, what: str) -> int:
        """A decimal number of the text, no larger than `max_repeat`."""
        digits = self.text[start:end]
        if len(digits.lstrip("0")) > 12 or int(digits) > self.limits.max_repeat:
            raise LimitError("max_repeat", self.limits.max_repeat, f"{what} {digits[:20]} in line {self.line_of(start)}")
        return int(digits)

    def counted(self, part: Expression, low: int, high: int | None, start: int, end: int) -> Repeat:
        """A repetition whose counts were read at `start:end`; `*`, `+` and `?` directly on one another become one."""
        if high is not None and high < low:
            self.syntax(
                f"the smallest count {low} exceeds the largest count {high}", start, end, fix=f"Swap them: {high} to {low}."
            )
        if isinstance(part, Repeat) and {(part.low, part.high), (low, high)} <= _PLAIN_LOOPS:
            most = None if part.high is None or high is None else 1
            return Repeat(part.part, part.low * low, most, part.start, end)
        return Repeat(part, low, high, part.start, end)

    def code_point(self, at: int, first: int, length: int) -> tuple[str, int]:
        """The character of an escape at `at` with `length` hexadecimal digits from `first` on, and the offset after it."""
        digits = self.text[first : first + length]
        found = next((k for k, c in enumerate(digits) if c not in _HEX), len(digits))
        if found < length:
            letter = self.text[first - 1]
            fix = f"Pad it with zeros, or write \\\\{letter} for a backslash and a letter."
            self.syntax(f"\\{letter} needs {length} hexadecimal digits and has {found}", at, first + found, fix=fix)
        value = int(digits, 16)
        if value > 0x10FFFF:
            self.syntax("an escape is beyond the last code point U+10FFFF", at, first + length, fix="Use a smaller number.")
        if 0xD800 <= value < 0xE000:
            self.refuse_surrogate(at, first + length)
        return chr(value), first + length

    def special_token(self, start: int) -> Expression:
        """The token written as `<name>` or `<[id]>` at an offset, or one of several, as in `<[3-5,9]>`."""
        found = _SPECIAL(self.text, start)
        if not found:
            fix = 'A token of the vocabulary is written <name> without spaces, or <[id]>; for the character itself write "<".'
            self.syntax("this < begins no token name", start, fix=fix)
        name, end = found["name"], found.end()
        if name is not None:
            return SpecialToken(found[0], start, end)
        parts = [re.fullmatch("([0-9]{1,9})(?:-([0-9]{1,9}))?", part) for part in found["id"].split(",")]
        ids = {k for part in parts if part for k in range(int(part[1]), min(int(part[2] or part[1]), int(part[1]) + _IDS) + 1)}
        if None in parts or not 0 < len(ids) <= _IDS:
            fix = f"Write numbers and ranges of special tokens, at most {_IDS}, as in <[7,9-12]>."
            self.unsupported(f"<[{found['id']:.30}]> is no list of token numbers", start, end, fix=fix)
        return choice([SpecialToken(token, start, end) for token in sorted(ids)], start, end)

    def pattern(self, start: int, end: int, flags: str) -> Node:
        """The syntax tree of the regular expression `text[start:end]`; its errors are shown in the grammar."""
        try:
            return parse_pattern(self.text[start:end], flag_bits(flags), self.limits)
        except PatternError as error:
            kind = UnsupportedGrammarError if isinstance(error, UnsupportedPatternError) else GrammarSyntaxError
            what = error.what.removesuffix(f" (offset {error.start})")
            shown = start + min(error.start, end - start), start + min(error.end, end - start)
            raise kind(
                f"in this regular expression, {what}", text=self.text, start=shown[0], end=shown[1], fix=error.fix
            ) from None


def flag_bits(flags: str) -> int:
    """The flags of `re` for letters out of "imsx"."""
    return sum(_FLAGS[letter] for letter in set(flags))


def class_char(c: str) -> str:
    """A character as it must be written inside a class of `re`."""
    if c in "\\]^-[&~|":
        return "\\" + c
    if c.isprintable():
        return c
    value = ord(c)
    return f"\\x{value:02x}" if value < 0x100 else f"\\u{value:04x}" if value < 0x10000 else f"\\U{value:08x}"


def sequence(parts: list[Expression], start: int, end: int) -> Expression:
    """Parts one after the other; a single one stands for itself."""
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts), start, end)


def choice(branches: list[Expression], start: int, end: int) -> Expression:
    """One of several branches; a single one stands for itself."""
    return branches[0] if len(branches) == 1 else Choice(tuple(branches), start, end)


def children(expression: Expression) -> tuple[Expression, ...]:
    """The direct parts of an expression."""
    match expression:
        case Sequence(parts=parts):
            return parts
        case Choice(branches=branches):
            return branches
        case Repeat(part=part):
            return (part,)
    return ()


def walk(expression: Expression) -> list[Expression]:
    """An expression and all expressions in it, in the order of the text."""
    out, todo = [], [expression]
    while todo:
        node = todo.pop()
        out.append(node)
        todo += reversed(children(node))
    return out

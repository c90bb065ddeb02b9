r"""Reads the regular expression of a pre-tokenizer: the small dialect that published tokenizers are written in.

Single characters (a literal, an escape, `\p{…}`, a bracket) are kept as text: which code points they match is asked of the
encoder's own engine, whose Unicode tables decide. Everything that is not known exactly is refused.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TypeAlias

from fsa_compile.errors import UnsupportedPatternError

_MAX_REPEAT = 16
_ESCAPE = re.compile(r"\\(?:[pP](?:\{[^}]*\}|\w)|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[sSdDwWrntfv]|[^\w\s])")
_BRACKET = re.compile(r"\[\^?\]?(?:\\(?:[pP]\{[^}]*\}|.)|[^\]\\\[])*\]")
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")


@dataclasses.dataclass(frozen=True)
class Character:
    """One character that the one-character pattern `item` matches."""

    item: str


@dataclasses.dataclass(frozen=True)
class Sequence:
    """Parts one after another."""

    parts: tuple[Splitting, ...]


@dataclasses.dataclass(frozen=True)
class Choice:
    """The first branch that leads to a match."""

    branches: tuple[Splitting, ...]


@dataclasses.dataclass(frozen=True)
class Repeat:
    """As many repetitions as possible, from `low` to `high` (None: no bound). Possessive ones never give any back."""

    part: Splitting
    low: int
    high: int | None
    possessive: bool


@dataclasses.dataclass(frozen=True)
class NotNext:
    """The next character is none that `item` matches; the end of the text is fine."""

    item: str


@dataclasses.dataclass(frozen=True)
class AtEnd:
    """The end of the text."""


Splitting: TypeAlias = Character | Sequence | Choice | Repeat | NotNext | AtEnd


def parse_splitter(pattern: str) -> Splitting:
    """The tree of a splitting pattern.

    Args:
      pattern: in the common dialect of tiktoken and `tokenizers`.

    Raises:
      UnsupportedPatternError: something outside the dialect, with its offset.
    """
    parser = _Parser(pattern)
    tree = parser.choice(ignore_case=False)
    if parser.at < len(pattern):
        raise parser.error("unbalanced parenthesis")
    return tree


def items_of(tree: Splitting) -> set[str]:
    """All one-character patterns of a tree."""
    match tree:
        case Character(item) | NotNext(item):
            return {item}
        case Sequence(parts) | Choice(parts):
            return set().union(*map(items_of, parts))
        case Repeat(part=part):
            return items_of(part)
    return set()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0

    def error(self, what: str) -> UnsupportedPatternError:
        fix = "Canonical tokenization knows splitters of characters, classes, groups, repetitions and (?!X)."
        return UnsupportedPatternError(f"in the splitting pattern: {what}", pattern=self.pattern, start=self.at, fix=fix)

    def take(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) * found
        return found

    def choice(self, *, ignore_case: bool) -> Splitting:
        branches = [self.sequence(ignore_case)]
        while self.take("|"):
            branches.append(self.sequence(ignore_case))
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def sequence(self, ignore_case: bool) -> Splitting:
        parts: list[Splitting] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            parts.append(self.repeated(ignore_case))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeated(self, ignore_case: bool) -> Splitting:
        part = self.single(ignore_case)
        bounds = self.bounds()
        if bounds is None:
            return part
        if isinstance(part, NotNext | AtEnd):
            raise self.error("a repeated condition")
        possessive = self.take("+")
        if self.pattern.startswith("?", self.at):
            raise self.error("a lazy repetition")
        low, high = bounds
        if max(low, high or 0) > _MAX_REPEAT or (high is not None and high < low):
            raise self.error(f"a repetition of more than {_MAX_REPEAT}, or of none")
        if self.bounds() is not None:
            raise self.error("a repetition of a repetition")
        return Repeat(part, low, high, possessive)

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("?", (0, 1)), ("*", (0, None)), ("+", (1, None))):
            if self.take(sign):
                return bounds
        count = _COUNT.match(self.pattern, self.at)
        if count is None:
            return None
        self.at = count.end()
        low = int(count[1])
        return low, low if count[2] is None else int(count[2]) if count[2] else None

    def single(self, ignore_case: bool) -> Splitting:
        if self.take("(?!"):
            inner = self.choice(ignore_case=ignore_case)
            if not isinstance(inner, Character) or not self.take(")"):
                raise self.error("a lookahead on more than one character")
            return NotNext(inner.item)
        if self.take("(?i:"):
            return self.closed(ignore_case=True)
        if self.take("(?:"):
            return self.closed(ignore_case=ignore_case)
        if self.take("$"):
            return AtEnd()
        for form in (_ESCAPE, _BRACKET):
            found = form.match(self.pattern, self.at)
            if found:
                self.at = found.end()
                return self.character(found[0], ignore_case)
        char = self.pattern[self.at]
        if char in r"()[]{}^.*+?\&":
            raise self.error(f"{char!r} is not read")
        self.at += 1
        return self.character(char, ignore_case)

    def closed(self, *, ignore_case: bool) -> Splitting:
        tree = self.choice(ignore_case=ignore_case)
        if not self.take(")"):
            raise self.error("an open parenthesis")
        return tree

    def character(self, item: str, ignore_case: bool) -> Character:
        return Character(f"(?i:{item})" if ignore_case else item)

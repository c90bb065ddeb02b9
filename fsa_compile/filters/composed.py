"""Texts in Unicode's normalization form C, exactly: runs of combining marks may be as long as they like.

A text is in form C if and only if

* none of its characters is replaced when it stands alone;
* in every run of combining marks their classes do not fall;
* no mark composes with the last starter before it. A mark is tried unless the mark just before it has its own class (then it is
  blocked), and marks of lower classes between them change nothing: what the mark is tried with is the starter's decomposition up
  to the mark's class. So it is enough to ask whether starter and mark, alone together, are in form C;
* no starter composes with a starter right before it (Hangul syllables, some Indic vowels).

So the state is what the last starter composes with, and the class of the last mark. The running Python's `unicodedata` is asked
for every pair that could compose, so the answers agree with `unicodedata.is_normalized("NFC", ...)` whatever its Unicode version.

Source: UAX 15, "Detecting Normalization Forms" and the definitions of chapter 3.11 of the Unicode Standard.
"""

from __future__ import annotations

import functools
from typing import NamedTuple
from unicodedata import combining, decomposition, normalize

import numpy as np

from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.utf8_dfa import class_dfa
from fsa_compile.errors import ConstraintError, is_whole
from fsa_compile.filters.filter_base import TextFilter
from fsa_compile.languages.language import Language
from fsa_compile.unicode.code_points import FIRST_SURROGATE, LAST, LAST_SURROGATE

_OPEN_SYLLABLES = range(0xAC00, 0xD7A4, 28)  # of Hangul, without a trailing consonant; the others compose with nothing
_MANY = 8
"""Largest `max_marks`: every one multiplies the states."""
_LEADING, _VOWELS, _TRAILING = range(0x1100, 0x1113), range(0x1161, 0x1176), range(0x11A8, 0x11C3)


def nfc(*, max_marks: int | None = None) -> Language:
    """Texts in normalization form C, which nearly all text is: exactly those that `unicodedata.is_normalized("NFC", text)`.

    Args:
      max_marks: most combining marks (of a class other than 0) in a row; None for any number. The automaton for any number has
        27,000 states, because marks of every class may come between a letter and one that composes with it; with `max_marks=1`
        it has 600, which is kinder to constraints that allow all of Unicode.

    Raises:
      ConstraintError: `max_marks` is no count.
    """
    if max_marks is not None and not is_whole(max_marks, 0, _MANY):
        raise ConstraintError(f"max_marks must be None or an int from 0 to {_MANY}, not {max_marks!r}", fix="Leave it out.")
    return TextFilter(f"nfc(max_marks={max_marks})", lambda limits, deadline: _automaton(max_marks))


class _Kind(NamedTuple):
    """What matters of a character.

    Attributes:
      mark: its combining class, 0 for starters.
      takes: number of the set of characters that compose with it; 0 for none.
      sets: the sets that it belongs to.
    """

    mark: int
    takes: int
    sets: frozenset[int]


@functools.cache
def _automaton(max_marks: int | None) -> ByteDfa:
    class_of, kinds = character_kinds()
    start = (0, 0, 0)  # set of what composes with the last starter, class of the last mark, number of marks if that matters
    number = {start: 0}
    todo, rows = [start], []
    highest: dict[int, int] = {}  # of a set, the highest class of a mark in it
    for kind in kinds:
        for takes in kind.sets:
            highest[takes] = max(highest.get(takes, 0), kind.mark)
    for takes, last, marks in todo:
        row = []
        for kind in kinds:
            blocked = last > 0 if kind.mark == 0 else kind.mark == last
            if (kind.mark and (kind.mark < last or marks == max_marks)) or (takes in kind.sets and not blocked):
                row.append(-1)
                continue
            after = (takes, kind.mark, 0 if max_marks is None else marks + 1) if kind.mark else (kind.takes, 0, 0)
            if 0 < after[1] >= highest.get(after[0], 0):
                after = (0, *after[1:])  # no mark that may still come composes
            row.append(number.setdefault(after, len(number)))
            if row[-1] == len(todo):
                todo.append(after)
        rows.append(row)
    return class_dfa(class_of, np.array(rows), np.ones(len(rows), bool))


@functools.cache
def character_kinds() -> tuple[np.ndarray, list[_Kind]]:
    """int32[0x110000], kind of every code point, -1 for those that form C replaces and for surrogates; and the kinds."""
    alone = np.zeros(0x110000, np.int32)
    second, firsts = _composing()
    alone[[point for point in firsts if normalize("NFC", chr(point)) != chr(point)]] = -1
    alone[FIRST_SURROGATE : LAST_SURROGATE + 1] = -1
    marks = np.fromiter(map(combining, map(chr, range(LAST + 1))), np.int32, LAST + 1)
    firsts = [first for first in firsts if not marks[first] and not alone[first]]
    takes: dict[int, list[int]] = {}
    for mark in second:
        pairs = [chr(first) + chr(mark) for first in firsts]
        for first, pair, normal in zip(firsts, pairs, normalize("NFC", "\n".join(pairs)).split("\n")):
            if pair != normal:
                takes.setdefault(first, []).append(mark)
    sets: dict[tuple[int, ...], int] = {(): 0}
    for composes in takes.values():
        sets.setdefault(tuple(composes), len(sets))
    kinds: dict[_Kind, int] = {_Kind(0, 0, frozenset()): 0}
    for point in sorted({*takes, *second, *np.flatnonzero(marks).tolist()}):
        if alone[point] == 0:
            member = frozenset(k for composes, k in sets.items() if point in composes)
            kind = _Kind(int(marks[point]), sets[tuple(takes.get(point, ()))], member)
            alone[point] = kinds.setdefault(kind, len(kinds))
    return alone, list(kinds)


def _composing() -> tuple[list[int], list[int]]:
    """Characters that compose with one before them; and those that have a decomposition, or that one composes with."""
    second, first = {*_VOWELS, *_TRAILING}, {*_LEADING, *_OPEN_SYLLABLES}
    for point, parts in enumerate(map(decomposition, map(chr, range(LAST + 1)))):
        if parts and parts[0] != "<":
            first.add(point)
            pair = [int(part, 16) for part in parts.split()]
            if len(pair) == 2:
                first.add(pair[0])
                second.add(pair[1])
    return sorted(second), sorted(first)

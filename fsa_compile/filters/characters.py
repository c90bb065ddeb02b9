"""Filters over text that look at characters one by one or count them: valid UTF-8, sets of characters, scripts, lengths."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from fsa_compile.automata import boolean as algebra
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.letter_dfa import LetterDfa, letter_sets
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.canonical.encoder.normal_form import nfc_inert_points
from fsa_compile.errors import ConstraintError, LimitError, is_whole, is_word
from fsa_compile.filters.filter_base import TextFilter
from fsa_compile.languages.language import Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.unicode.code_points import ANY, ASCII, CodePointSet, complement, interval, normal, single, size, union
from fsa_compile.unicode.properties import category, matching, named_property

Unit = Literal["characters", "words", "bytes"]
_MOST_GIVEN = 1 << 22
_UTF8_LENGTHS = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF))


def valid_utf8() -> Language:
    """All Unicode texts in UTF-8: no overlong forms, no surrogates, no characters cut short.

    Patterns, choices and grammars are texts by themselves; automata over bytes need not be.
    """
    return TextFilter("valid_utf8()", lambda limits, deadline: algebra.universal_text())


def ascii() -> Language:
    """Texts of ASCII characters only."""
    return _of_characters("ascii()", (ASCII, ()))


def characters(allowed: str | Iterable[str]) -> Language:
    """Texts of the given characters only.

    Args:
      allowed: one string of characters, or strings of one character each. For classes and ranges a pattern is a filter as
        well: `regex(r"[\\p{Greek} ]*")`.

    Raises:
      ConstraintError: no character at all, a surrogate, an entry that is no character.
    """
    members = _characters(allowed, "characters")
    return _of_characters(f"characters({''.join(sorted(members))!r})", _as_set(members))


def scripts(allowed_scripts: Iterable[str], *, common: bool = True, also: str | Iterable[str] = "") -> Language:
    """Texts in some writing systems only, by Unicode's property Script_Extensions.

    A character that belongs to several scripts (U+30FC, the long vowel mark of Hiragana and Katakana; most combining accents) is
    allowed if one of them is. Digits, spaces, punctuation, symbols and emoji, and marks that go with any letter, belong to no
    script in particular (Common, Inherited); `common` says whether these are allowed. Characters without a script (unassigned,
    private use) are not.

    Args:
      allowed_scripts: Unicode names such as "Latin", "Hangul", or their short forms ("Latn").
      common: whether Common and Inherited characters are allowed.
      also: further characters.

    Raises:
      ConstraintError: an unknown script.

    Source: UAX 24, "Script_Extensions"; Cognetta et al. 2025, §4.
    """
    if isinstance(allowed_scripts, (str, bytes)) or not isinstance(allowed_scripts, Iterable):
        raise ConstraintError("scripts needs a list of names, not one", fix='Write scripts(["Latin"]).')
    names = [_checked_script(name) for name in allowed_scripts]
    members = [_script(name) for name in names]
    if common:
        members += [_script("Common"), _script("Inherited")]
    extra = (0, ()) if also == "" else _as_set(_characters(also, "scripts"))
    if not size(union(extra, *members)):
        raise ConstraintError("scripts allows no character", fix='Name a script: scripts(["Latin"]).')
    description = f"scripts({sorted(set(names))}, common={bool(common)}, also={extra})"
    return _of_characters(description, union(extra, *members))


def nfc_inert() -> Language:
    """Texts of characters only that normalization form C leaves alone whatever stands beside them, as the running Python's
    Unicode tables have it: most letters of most scripts, precomposed ones and Hangul syllables among them, punctuation, symbols;
    no combining marks, so it is narrow for Thai, Arabic with vowel marks, or Devanagari.

    Every such text is in form C, so tokenizers that normalize (Qwen) take it as it is: with this filter a constraint over all of
    Unicode can be canonical, and no larger than without. `nfc()` has all texts in the form, and thousands of states.

    Source: UAX 15, property NFC_Inert.
    """
    points = nfc_inert_points()
    first = np.flatnonzero(np.append(True, np.diff(points) > 1))
    last = np.append(first[1:], len(points)) - 1
    wide = normal(zip(points[first].tolist(), points[last].tolist()))
    return _of_characters("nfc_inert()", (ASCII, wide))


def length(
    exactly: int | None = None, *, at_least: int = 0, at_most: int | None = None, unit: Unit = "characters"
) -> Language:
    """Texts of an exact, least or greatest length. For lengths in tokens see `token_count`.

    Args:
      exactly: this length, instead of bounds.
      at_least, at_most: bounds, both included.
      unit: "characters" (code points), "bytes" (of UTF-8), or "words": what white space separates, as `str.split()` counts.

    Raises:
      ConstraintError: bounds that are no lengths, or that exclude each other.
    """
    low, high = checked_bounds(exactly, at_least, at_most, "length")
    if not is_word(unit, ("characters", "words", "bytes")):
        fix = 'Write unit="characters", "words" or "bytes"; token_count(...) counts tokens.'
        raise ConstraintError(f"unknown unit of length {unit!r}", fix=fix)
    description = f"length(at_least={low}, at_most={high}, unit={unit!r})"

    def build(limits: CompileLimits, deadline: Deadline) -> ByteDfa:
        if (low if high is None else high) > limits.max_states:
            raise LimitError("max_states", limits.max_states, f"A filter {description}")
        return to_byte_dfa(_counted_words(low, high) if unit == "words" else _counted(low, high, unit), limits)

    return TextFilter(description, build)


def checked_bounds(exactly: Any, at_least: Any, at_most: Any, name: str) -> tuple[int, int | None]:
    """Bounds of a length; the upper one None where there is none."""
    for value in (exactly, 0 if at_least is None else at_least, at_most):
        if value is not None and not is_whole(value, 0, sys.maxsize):
            raise ConstraintError(f"{name} needs counts from 0, not {value!r}", fix=f"Write {name}(at_most=100).")
    if exactly is not None:
        if at_least or at_most is not None:
            raise ConstraintError(f"{name} got an exact count and bounds", fix="Give one of them.")
        return int(exactly), int(exactly)
    low, high = int(at_least or 0), None if at_most is None else int(at_most)
    if high is not None and low > high:
        raise ConstraintError(f"{name} from {low} to {high} is no length at all", fix="Exchange the bounds.")
    return low, high


def _counted(low: int, high: int | None, unit: Unit) -> LetterDfa:
    """State k: length k so far; without an upper bound the last one stands for all from `low` on."""
    last = low if high is None else high
    steps = [(ANY, 1)]
    if unit == "bytes":
        steps = [(interval(a, b), k) for k, (a, b) in enumerate(_UTF8_LENGTHS, 1)]
    sets, atoms = letter_sets([members for members, _ in steps])
    arcs: list[list[tuple[int, int]]] = []
    for k in range(last + 1):
        by_target: dict[int, int] = {}
        for letters, (_, step) in zip(sets, steps):
            target = k + step if high is not None else min(k + step, last)
            if target <= last:
                by_target[target] = by_target.get(target, 0) | letters
        arcs.append([(letters, target) for target, letters in by_target.items()])
    return LetterDfa(arcs, [k >= low for k in range(last + 1)], atoms)


def _counted_words(low: int, high: int | None) -> LetterDfa:
    """State 2k: k words, between words; 2k - 1: inside word k. Without an upper bound the last ones stand for more."""
    last = low if high is None else high
    space = category("s")
    (spaces, letters), atoms = letter_sets([space, complement(space)])
    arcs: list[list[tuple[int, int]]] = []
    for state in range(2 * last + 1):
        k, inside = (state + 1) // 2, state % 2
        after = [(spaces, 2 * k)]
        if inside:
            after.append((letters, state))
        elif k < last:
            after.append((letters, state + 1))
        elif high is None:
            after = [(spaces | letters, state)]
        arcs.append(after)
    return LetterDfa(arcs, [(state + 1) // 2 >= low for state in range(2 * last + 1)], atoms)


def _of_characters(description: str, members: CodePointSet) -> Language:
    (letters,), atoms = letter_sets([members])
    return TextFilter(description, lambda limits, deadline: to_byte_dfa(LetterDfa([[(letters, 0)]], [True], atoms), limits))


def _characters(allowed: str | Iterable[str], name: str) -> set[str]:
    if isinstance(allowed, (bytes, bytearray)) or not isinstance(allowed, Iterable):
        raise ConstraintError(f"{name} needs characters, not {type(allowed).__name__}", fix=f'Write {name}("abc").')
    members = set[str]()
    for place, one in enumerate(allowed):
        if not isinstance(one, str) or len(one) != 1 or "\ud800" <= one <= "\udfff":
            raise ConstraintError(f"{one!r:.40} is not one character", fix="Give a string of characters.")
        if place > _MOST_GIVEN:
            raise ConstraintError(f"{name} was given more than {_MOST_GIVEN:,} characters", fix="Give each of them once.")
        members.add(one)
    if not members:
        raise ConstraintError(f"{name} was given no character", fix=f'Write {name}("abc").')
    return members


def _as_set(members: set[str]) -> CodePointSet:
    return union(*(single(ord(one)) for one in members))


def _checked_script(name: Any) -> str:
    if not isinstance(name, str) or not name.replace("_", "").isalpha() or named_property(f"Script={name}") is None:
        raise ConstraintError(
            f"there is no script {name!r:.40}", fix='Use a Unicode name, such as "Latin", "Cyrillic", "Han", "Hangul".'
        )
    return name


def _script(name: str) -> CodePointSet:
    import regex

    return matching(regex, rf"\p{{Script_Extensions={name}}}")

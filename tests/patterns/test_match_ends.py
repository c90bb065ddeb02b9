"""Where matches may end within a longer text, against `re`."""

from __future__ import annotations

import itertools
import re

import pytest

from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.match_ends import END_OF_TEXT, match_ends, sees_before
from fsa_compile.patterns.python_syntax import parse
from fsa_compile.patterns.regex_tree import Node

LIMITS = CompileLimits()
PATTERNS = [
    "a", "a(?!b)", "a(?!bc)", "(?!ab)a", "(?!ab)[ab]+", r"(?!ab\b)[ab]+", "a(?=bc)b?", r"[a-]+(?a:\b)", r"[a-]+(?a:\B)", "a$", r"a\Z", "(?m)a$",
    r"(?!(?:ab|b)(?![ab]))[ab]+", "a(?!b(?=c))", "a(?=b(?<=ab)c)", "(?:a(?!bb)|ab(?=c))", "a(?!é)", "[aé]+(?=é|b)", "a(?=.c)[bc]*", "a(?!\U0010ffff)",
]  # fmt: skip


def texts(letters: str, length: int) -> list[str]:
    """All texts of letters up to a length."""
    return ["".join(t) for n in range(length + 1) for t in itertools.product(letters, repeat=n)]


def tree_of(pattern: str) -> Node:
    """The tree of a pattern."""
    return parse(pattern)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matches_end_where_those_of_re_may(pattern: str) -> None:
    whole, ends = match_ends(tree_of(pattern), LIMITS, Deadline(LIMITS))
    assert whole is not None
    every = to_byte_dfa(whole, LIMITS)
    automata = [(to_byte_dfa(end.texts, LIMITS), to_byte_dfa(end.rest, LIMITS), end.forbidden) for end in ends]
    flags = "(?m)" if pattern.startswith("(?m)") else ""
    bare = pattern.removeprefix("(?m)")
    letters = "ab\n-" if "\\" in pattern or "$" in pattern else "abcé" if "é" in pattern else "abc\U0010ffff"
    seen = set()
    for text, rest in itertools.product(texts(letters, 3), repeat=2):
        wanted = bool(re.match(rf"{flags}(?:{bare})(?=[\s\S]{{{len(rest)}}}\Z)", text + rest))
        found = [(behind, forbidden) for own, behind, forbidden in automata if own.accepts(text.encode())]
        assert len(found) == every.accepts(text.encode())  # no match is in two
        taken = any(behind.accepts(rest.encode()) for behind, _ in found)
        assert taken == wanted, (text, rest)
        for _, forbidden in found:
            if forbidden is not None:
                first = ord(rest[0]) if rest else END_OF_TEXT
                ascii_, wide = forbidden
                assert taken != bool(ascii_ >> first & 1 if first < 128 else any(low <= first <= high for low, high in wide))
        seen.add(taken)
    assert seen == {False, True}


@pytest.mark.parametrize(
    ("pattern", "seen"),
    [
        ("(?<=a)b", True), ("a(?<=a)b", False), ("a(?<=ba)b", True), (r"\bif", True), (r"i\bf", False), ("(?:x|(?<!a)b)", True),
        ("(?!a(?<=a))b", False), ("^a", True), ("a+(?<!ba)", True), ("a{2}(?<!ba)", False), ("a?(?<!b)c", True), ("a$", False),
    ],
)  # fmt: skip
def test_whether_the_text_before_matters(pattern: str, seen: bool) -> None:
    assert sees_before(tree_of(pattern), LIMITS, Deadline(LIMITS)) == seen

"""Where matches may end within a longer text, against `re`."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.match_ends import END_OF_TEXT, BeginsDiffer, matches_within
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
    whole, ends, before = matches_within(tree_of(pattern), LIMITS, Deadline(LIMITS))
    assert whole is not None
    assert before is None
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
    "pattern",
    [
        "(?<=a)b", "(?<!a)b", "a(?<=a)b", "a(?<=ba)b", r"\ba+", r"\Ba+", r"a\bb", "(?!a(?<=a))b", "^a", "a{2}(?<!ba{2})", "a{2}(?<!ba)", "a(?!b)|a(?<!-)",
        "(?=a)(?<=b)a|(?<=b)b", "(?<=a(?=bb))b", r"(?<!b)(?:\b)a", "(?<!b)$a", "(?m)^a", r"\b(?:a|b)+\b",
    ],
)  # fmt: skip
def test_matches_begin_where_those_of_re_may(pattern: str) -> None:
    found = matches_within(tree_of(pattern), LIMITS, Deadline(LIMITS))
    before = found.before and to_byte_dfa(found.before, LIMITS)
    automata = [(to_byte_dfa(end.texts, LIMITS), to_byte_dfa(end.rest, LIMITS)) for end in found.ends]
    flags, bare = ("(?m)", pattern.removeprefix("(?m)")) if pattern.startswith("(?m)") else ("", pattern)
    for first, text, rest in itertools.product(texts("ab-\n", 2), texts("ab-", 3), texts("ab-", 1)):
        if text:  # a lexeme is never empty
            judge = re.compile(rf"{flags}(?:{bare})(?=[\s\S]{{{len(rest)}}}\Z)")
            taken = any(own.accepts(text.encode()) and behind.accepts(rest.encode()) for own, behind in automata)
            taken &= before is None or before.accepts(first.encode())
            assert taken == bool(judge.match(first + text + rest, len(first))), (first, text, rest)


def random_pattern(rng: random.Random, depth: int) -> str:
    """A pattern over a, b, a hyphen and line ends, with conditions of all kinds anywhere."""
    kind = rng.random()
    if not depth or kind < 0.3:
        return rng.choice(["a", "b", "-", "[ab]", "[a-]", "[^a]", "."])
    one = random_pattern(rng, depth - 1)
    if kind < 0.55:
        return one + random_pattern(rng, depth - 1)
    if kind < 0.7:
        return f"(?:{one}){rng.choice(['?', '+', '{2}'])}"
    if kind < 0.8:
        return f"(?:{one}|{random_pattern(rng, depth - 1)})"
    if kind < 0.9:
        return rng.choice([r"\b", r"\B", "^", "$", "(?<=a)", "(?<!a)", "(?<=b(?=a))", "(?<![ab]-)", r"\Z"]) + one
    return f"(?{rng.choice('=!')}{one}){random_pattern(rng, depth - 1)}"


def test_random_patterns_match_within_texts_as_re_does(exhaustive: bool) -> None:
    texts_before, matches, rests = texts("ab-\n", 2), texts("ab-\n", 3)[1:], texts("ab-\n", 2)
    seen = {"before": 0, "differ": 0, False: 0, True: 0}
    for seed in range(3_000 if exhaustive else 120):
        rng = random.Random(seed)
        flags, bare = rng.choice(["", "(?m)"]), random_pattern(rng, 4)
        try:
            found = matches_within(tree_of(flags + bare), LIMITS, Deadline(LIMITS))
        except BeginsDiffer:
            seen["differ"] += 1
            continue
        before = found.before and to_byte_dfa(found.before, LIMITS)
        seen["before"] += before is not None
        automata = [(to_byte_dfa(end.texts, LIMITS), to_byte_dfa(end.rest, LIMITS)) for end in found.ends]
        judges = [re.compile(rf"{flags}(?:{bare})(?=[\s\S]{{{n}}}\Z)") for n in range(3)]
        for first, text, rest in rng.sample(list(itertools.product(texts_before, matches, rests)), 1_500):
            taken = any(own.accepts(text.encode()) and behind.accepts(rest.encode()) for own, behind in automata)
            taken &= before is None or before.accepts(first.encode())
            wanted = judges[len(rest)].match(first + text + rest, len(first))
            assert taken == bool(wanted), (seed, flags + bare, first, text, rest)
            seen[taken] += 1
    assert min(seen.values()) > 4


@pytest.mark.parametrize("pattern", ["(?:x|(?<!a)b)", "a+(?<!ba)", "a?(?<!b)c", r"\b[a-]+", "(?<!a)b|(?<!b)c"])
def test_what_matches_differently_behind_different_texts_is_told(pattern: str) -> None:
    with pytest.raises(BeginsDiffer):
        matches_within(tree_of(pattern), LIMITS, Deadline(LIMITS))

"""Patterns to byte automata against Python's `re` (and `regex` for what goes beyond it), from both sides."""

from __future__ import annotations

import random
import re
import time
import warnings

import numpy as np
import pynini
import pytest
import regex as regex_package
from corpus.patterns import PATTERNS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.samples import examples
from oracles.text_walks import SCALARS, accepted_characters, accepted_texts, all_texts, is_trim, mutations

from fsa_compile.automata.openfst import to_pynini
from fsa_compile.errors import LimitError, UnsatisfiableError
from fsa_compile.languages.constructors import regex
from fsa_compile.limits import CompileLimits

ALL_TEXT = "".join(map(chr, SCALARS))


def oracle(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        package = re if case.oracle == "re" else regex_package
        return package.compile(case.pattern, case.flags)


@pytest.mark.parametrize("case", PATTERNS, ids=lambda case: f"{case.feature}: {case.pattern[:40]!a}")
def test_corpus_samples(case):
    judge = oracle(case)
    dfa = regex(case.pattern, flags=case.flags).to_byte_dfa()
    for text in case.accepted:
        assert judge.fullmatch(text)
        assert dfa.accepts(text.encode()), text
    for text in case.rejected:
        assert not judge.fullmatch(text)
        assert not dfa.accepts(text.encode()), text


def test_the_corpus_is_broad():
    assert len(PATTERNS) >= 220
    assert len({case.feature for case in PATTERNS}) >= 20
    assert sum(not case.accepted for case in PATTERNS) == 0


@pytest.mark.parametrize("case", PATTERNS, ids=lambda case: f"{case.feature}: {case.pattern[:40]!a}")
def test_corpus_random_walks(case):
    judge = oracle(case)
    dfa = regex(case.pattern, flags=case.flags).to_byte_dfa()
    assert is_trim(dfa)
    rng = random.Random(case.pattern)
    longest = 60 if case.feature == "practical" else 12  # `re` backtracks exponentially on some of the others
    for text in accepted_texts(dfa, rng, 25, longest):
        assert judge.fullmatch(text), text
        for other in mutations(text, rng, 4):
            assert bool(judge.fullmatch(other)) == dfa.accepts(other.encode()), other


@pytest.mark.parametrize("case", PATTERNS, ids=lambda case: f"{case.feature}: {case.pattern[:40]!a}")
def test_corpus_automata_are_minimal(case):
    dfa = regex(case.pattern, flags=case.flags).to_byte_dfa()
    assert dfa.num_states - 1 == to_pynini(dfa).minimize().num_states()


@pytest.mark.sampled(14)
@pytest.mark.parametrize(
    "pattern",
    [
        r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", "(?s).", r"[^\W\d_]", r"[\W\d]", r"(?a)\d", r"(?a)\w", r"(?a)\s", r"(?a)\W",
        r"[^a]", r"[\x00-\u00ff]", r"[\u0800-\U00010fff]", r"[^\x80-\U0010fffe]", "(?i)[^a-z]", "(?i)[à-þ]", r"(?i)[\w-]",
        "(?i)[Ā-ſ]", "(?i)[^k]", "(?ai)[k-s]", r"(?i)[^\u0130i]", r"(?i)[\U00010400-\U00010427]", r"(?i)\W", r"(?ai)[^s-\U00010400]", r"(?i)[\u1c80-\u1c88]",
        r"\b.\b", r".\B",
    ],
)  # fmt: skip
def test_one_character_patterns_for_every_code_point(pattern):
    judge = re.compile(pattern).fullmatch
    expected = np.zeros(0x110000, bool)
    expected[SCALARS] = [judge(c) is not None for c in ALL_TEXT]
    got = accepted_characters(regex(pattern).to_byte_dfa())
    assert np.flatnonzero(got != expected).tolist() == []


def test_case_classes_of_single_characters(exhaustive):
    cased = [c for c in ALL_TEXT[:0x1F000] if c.lower() != c or c.upper() != c]
    if not exhaustive:
        cased = [*"aikszAIKSZ", *"µſKÅİıßẞΰΐςΣσǅ", *random.Random(5).sample(cased, 25)]
    for c in cased:
        expected = set(re.findall(re.escape(c), ALL_TEXT, re.IGNORECASE))
        got = accepted_characters(regex(c, flags=re.I).to_byte_dfa())
        assert {chr(p) for p in np.flatnonzero(got)} == expected, c


@pytest.mark.parametrize("name", ["Lu", "^Lu", "Greek", "Script=Han", "Alphabetic", "Nd", "P", "L&", "Cased", "Any", "IsLatin"])
def test_properties_for_every_code_point(name):
    expected = set(regex_package.findall(rf"\p{{{name}}}", ALL_TEXT))
    got = accepted_characters(regex(rf"\p{{{name}}}").to_byte_dfa())
    assert {chr(p) for p in np.flatnonzero(got)} == expected
    rest = accepted_characters(regex(rf"\P{{{name}}}|x").to_byte_dfa())
    rest[ord("x")] = got[ord("x")]
    assert (rest[SCALARS] != got[SCALARS]).sum() >= len(SCALARS) - 1


def test_only_canonical_utf8_is_accepted():
    dfa = regex("(?s).{0,2}").to_byte_dfa()
    for bad in (b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf",
                b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xe2\x82", b"\xff"):  # fmt: skip
        assert not dfa.accepts(bad)
    assert dfa.accepts("\ud7ff\ue000".encode())
    assert dfa.accepts("\U0010ffff".encode())


# Random patterns. The alphabet has a newline (anchors), two word characters and a space (boundaries).
_ATOMS = st.sampled_from(["a", "b", "ab", "[ab]", "[^a]", ".", r"\w", r"\W", r"\n", "a?", "", "(?i:A)", "(?s:.)"])
_ANCHORS = st.sampled_from(["^", "$", r"\A", r"\Z", r"\b", r"\B", "(?m:^)", "(?m:$)"])
_BEHIND = st.sampled_from(
    ["a", "b", "ab", "a|b", r"\b", "^", "(?=a)", "a(?=b)", "(?!b)[ab]", "(?<=b)a", ".", r"a\b", "(?<!a(?=b))b", "(?:a|b(?!.*b))"]
)
_COUNTS = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}", "*?", "{,3}"])


def _bigger(inner):
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, _COUNTS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda p: f"(?={p})"),
        inner.map(lambda p: f"(?!{p})"),
        _BEHIND.map(lambda p: f"(?<={p})"),
        _BEHIND.map(lambda p: f"(?<!{p})"),
        _ANCHORS,
    )


_TEXTS = all_texts("ab\n", 4) + all_texts("a b", 3)


@settings(max_examples=examples(500, 5_000), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.recursive(_ATOMS, _bigger, max_leaves=8))
def test_random_patterns_by_brute_force(pattern):
    agrees_with_re(pattern, _TEXTS)


def agrees_with_re(pattern, texts):
    judge = re.compile(pattern)
    expected = {text for text in texts if judge.fullmatch(text)}
    try:
        dfa = regex(pattern).to_byte_dfa()
    except UnsatisfiableError:
        got = set()
    else:
        assert is_trim(dfa)
        got = {text for text in texts if dfa.accepts(text.encode())}
    assert got == expected


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        (r"^(?:a|b)$", "a|b"),
        (r"\Aab?\Z", "ab?"),
        (r"(?=a)[ab]c", "ac"),
        (r"[ab](?<=a)c", "ac"),
        (r"(?:(?!b)[ab])*", "a*"),
        (r"a(?!)|b", "b"),
        (r"(?=.*a$).{2}", "[^\\n]a"),
        (r"(?<=a*b*)c", "c"),
        (r"a++b", "a+b"),
        (r"(?>ab|cd)e", "(?:ab|cd)e"),
    ],
)
def test_different_spellings_of_one_language(pattern, same):
    a, b = (to_pynini(regex(p).to_byte_dfa()).minimize() for p in (pattern, same))
    assert pynini.equivalent(a, b)
    assert a.num_states() == b.num_states()


@pytest.mark.parametrize("pattern", [r"a\bb", "(?!)", r"[^\s\S]", "a(?=b)", "(?<=b)a", r"x[^\w\W]y", "$a", r"\B"])
def test_patterns_that_match_nothing(pattern):
    if pattern == r"\B" and re.fullmatch(pattern, ""):
        pytest.skip("this Python finds no boundary in the empty text")
    with pytest.raises(UnsatisfiableError, match="the pattern matches no text at all"):
        regex(pattern).to_byte_dfa()


@pytest.mark.parametrize(
    ("pattern", "limits", "limit"),
    [
        ("((a{1000}){1000}){1000}", {}, "max_states"),
        ("a{0,200000}", {}, "max_repeat"),
        ("a{99999999999999999999}", {}, "max_repeat"),
        ("a{20}", {"max_repeat": 10}, "max_repeat"),
        ("abcdefghijk", {"max_pattern": 10}, "max_pattern"),
        ("(a|b)*a(a|b){30}", {}, "max_bytes"),
        ("(a|b)*a(a|b){30}", {"max_states": 1000}, "max_states"),
        ("(?=.*a.{12}b)(?:a|b|c)*", {"max_states": 1000}, "max_states"),
        ("x*" * 2000, {}, "max_bytes"),
        (r"(?:\w{0,50}a){20}", {}, "max_bytes"),
        (r"\w{1,500}", {"max_states": 100}, "max_states"),
        ("(?:ab?){0,5000}(?!c)", {"max_seconds": 0.05}, "max_seconds"),
    ],
)
def test_limits_are_met_soon(pattern, limits, limit):
    began = time.process_time()
    with pytest.raises(LimitError, match=limit) as caught:
        regex(pattern).to_byte_dfa(CompileLimits(**limits))
    assert caught.value.limit == limit
    assert time.process_time() - began < 20


def test_long_repetitions_are_linear():
    began = time.process_time()
    assert regex("a{0,100000}").to_byte_dfa().num_states == 100_002
    assert regex(r"(?:.|\n){0,5000}").to_byte_dfa().num_states == 40_002
    assert regex("(?:ab?|c){0,3000}").to_byte_dfa().num_states <= 6_002
    assert time.process_time() - began < 30


def test_larger_bounds_can_be_asked_for():
    limits = CompileLimits(max_repeat=150_000)
    assert regex("a{150000}", limits=limits).to_byte_dfa(limits).num_states == 150_002

"""Operators on languages against set operations and against OpenFst."""

from __future__ import annotations

import pynini
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.text_walks import all_texts, is_trim

from fsa_compile.automata import boolean as algebra
from fsa_compile.automata.openfst import to_pynini
from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError
from fsa_compile.languages.constructors import acceptor, choices, regex
from fsa_compile.languages.pattern_language import literal
from fsa_compile.limits import CompileLimits, Deadline

TEXTS = all_texts("aé1", 4)
PATTERNS = ["a*", r"\w{1,3}", "[^a]*", "(?:aé|1)+", r".*1.*", "a|é|1a", "(?!a).*", "aé1", r"\d*a?", "(?:..)*", ""]


def members(language) -> set[str]:
    try:
        dfa = language.to_byte_dfa()
    except UnsatisfiableError:
        return set()
    assert is_trim(dfa)
    return {text for text in TEXTS if dfa.accepts(text.encode())}


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.sampled_from(PATTERNS), st.sampled_from(PATTERNS))
def test_operators_are_set_operations(p, q):
    a, b = regex(p), regex(q)
    in_a, in_b = members(a), members(b)
    assert members(a | b) == in_a | in_b
    assert members(a & b) == in_a & in_b
    assert members(a - b) == in_a - in_b
    assert members(~a) == set(TEXTS) - in_a
    assert members(a + b) == {t for t in TEXTS if any(t[:i] in in_a and t[i:] in in_b for i in range(len(t) + 1))}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("p", PATTERNS)
def test_products_equal_openfst(p):
    """Two implementations of the same algebra."""
    limits = CompileLimits()
    for q in PATTERNS:
        a, b = regex(p).to_byte_dfa(), regex(q).to_byte_dfa()
        f, g = to_pynini(a), to_pynini(b)
        expected = {
            "|": pynini.union(f, g),
            "&": pynini.intersect(f, g.copy().arcsort()),
            "-": pynini.difference(f, pynini.determinize(g).arcsort()),
            "+": pynini.concat(f, g),
        }
        for operator, want in expected.items():
            got = to_pynini(algebra.combine(operator, a, b, limits, Deadline(limits)))
            want = pynini.determinize(want.rmepsilon()).minimize()
            assert pynini.equivalent(got, want), (p, operator, q)
            assert got.num_states() == want.num_states()


def test_nested_and_mixed_operands():
    language = (regex(r"[a-z]+") | choices(["X-1", "Y-2"])) - literal("no") & ~regex(".*z.*")
    dfa = language.to_byte_dfa()
    assert [dfa.accepts(t.encode()) for t in ("yes", "X-1", "no", "zoo", "X-3")] == [True, True, False, False, False]
    both = (acceptor(pynini.accep("abc")) + regex(r"\d")).to_byte_dfa()
    assert both.accepts(b"abc7")
    assert not both.accepts(b"abc")


def test_complement_holds_unicode_strings_only():
    dfa = (~regex("a")).to_byte_dfa()
    assert dfa.accepts(b"")
    assert dfa.accepts("日".encode())
    assert not dfa.accepts(b"\xff")
    assert not dfa.accepts(b"\xed\xa0\x80")
    assert members(~~regex("a|é")) == {"a", "é"}


@pytest.mark.parametrize(
    ("language", "says"),
    [
        (regex("a") & regex("b"), "no text is accepted by both sides of &"),
        (regex("a") - regex("a|b"), "every text of the left side of - is also accepted by the right side"),
        (regex("a(?!)") + regex("b"), r"one side of \+ accepts no text"),
        (regex("(?!)") | regex("a(?<=b)"), "neither side of | accepts any text"),
        (~regex("(?s).*"), "complement ~ is empty, because its operand accepts every text"),
        (regex("(?!)"), "the pattern matches no text"),
        (acceptor(pynini.Fst()), "the automaton accepts no string"),
    ],
)
def test_empty_languages_say_why(language, says):
    with pytest.raises(UnsatisfiableError, match=says.replace("| accepts", r"\| accepts")) as caught:
        language.to_byte_dfa()
    assert language.description[:20] in str(caught.value)


def test_empty_operands_are_neutral_where_they_should_be():
    nothing = regex("(?!)")
    assert members(nothing | regex("a")) == {"a"}
    assert members(regex("a") - nothing) == {"a"}
    assert members(~nothing) == set(TEXTS)


@pytest.mark.parametrize("other", ["a", b"a", None, 3])
def test_operands_must_be_languages(other):
    for operate in (
        lambda: regex("a") | other,
        lambda: regex("a") & other,
        lambda: regex("a") - other,
        lambda: regex("a") + other,
        lambda: other | regex("a"),
        lambda: other & regex("a"),
        lambda: other - regex("a"),
        lambda: other + regex("a"),
    ):
        with pytest.raises(ConstraintError, match="not a Language"):
            operate()


def test_literals():
    dfa = literal("a.b*(").to_byte_dfa()
    assert dfa.accepts(b"a.b*(")
    assert not dfa.accepts(b"axb*(")
    assert literal("").to_byte_dfa().accepts(b"")
    with pytest.raises(ConstraintError, match="surrogate at offset 1"):
        literal("a\ud800")
    with pytest.raises(ConstraintError, match="must be a str"):
        literal(b"a")


def test_descriptions():
    assert regex("a+").description == "a+"
    assert (regex("a") | ~literal("b")).description == "(a) | (~('b'))"
    assert repr(choices(["x", "y"])) == "Language(choices of 2: 'x', 'y')"
    assert len(repr(regex("a" * 1000))) < 250


def test_products_respect_limits():
    a, b = regex("(?:a{50})*"), regex("(?:a{49})*")
    assert (a & b).to_byte_dfa().num_states == 2451
    with pytest.raises(LimitError, match="max_states=1,000"):
        (a & b).to_byte_dfa(CompileLimits(max_states=1000))
    with pytest.raises(LimitError, match="max_states=500"):
        (regex("(?s).*a") + regex(".{10}")).to_byte_dfa(CompileLimits(max_states=500))
    subsets = regex("(a|ab)(c|bcd)*") + regex("[a-z ]{0,300}")  # exponentially many before minimisation
    with pytest.raises(LimitError, match="max_bytes=4,000,000"):
        subsets.to_byte_dfa(CompileLimits(max_bytes=4_000_000))
    with pytest.raises(LimitError, match="max_seconds=0"):
        subsets.to_byte_dfa(CompileLimits(max_seconds=0.2))


def test_sparse_and_dense_products_agree(monkeypatch):
    a, b = regex(r"\w{1,30}"), regex(r"[^é]{3,20}")
    dense = to_pynini((a & b).to_byte_dfa())
    monkeypatch.setattr(algebra, "_DENSE_PAIRS", 0)
    assert pynini.equivalent(to_pynini((a & b).to_byte_dfa()), dense)

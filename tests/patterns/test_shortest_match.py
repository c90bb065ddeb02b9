"""Lazy loops in lexemes against `re`: a text is a lexeme where the whole of it is what `re` matches first."""

from __future__ import annotations

import itertools
import random
import re

import lark
import pytest

from fsa_compile.errors import ConstraintError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.grammar.lexing.terminals import terminal_dfa
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.shortest_match import optional_end

TEXTS = ["".join(text) for n in range(7) for text in itertools.product("abc", repeat=n)]
HEADS = ["a.*?b", "(?:a|bc)+?c", "a(?!b).*?c", "(?:(?:ab)*?c)", "b.{1,3}?c", "(?:a|c).*?(?<!a)b"]
TAILS = ["", "(?!b)a*", "b+", "a*", "(?:ab)*", "[bc]{0,2}", "c?a*", "a{,3}(?:b)?", "(?:c(?:a|b))*"]


def dfa_of(pattern: str):
    grammar = parse_lark(f"start: A\nA: /{pattern}/s", mode="longest")
    return terminal_dfa(grammar, grammar.rules["start"].body, CompileLimits(), Deadline(CompileLimits()))


@pytest.mark.parametrize("seed", range(12))
def test_a_lexeme_is_the_first_match(seed):
    rng = random.Random(seed)
    wholes = [head + tail for head, tail in zip(rng.sample(HEADS, 2), rng.choices(TAILS, k=2))][: rng.randint(1, 2)]
    dfa, meant = dfa_of("|".join(wholes)), re.compile("|".join(wholes), re.S)
    taken = 0
    for text in TEXTS:
        expected = bool((m := meant.match(text)) and m[0] == text)
        assert accepts(dfa, text) == expected, (wholes, text)
        taken += expected
    assert taken


def test_with_lookbehind_each_alternative_counts():
    """On the page of limits: Lark takes the alternative that stands first."""
    grammar = "start: T\nT: /a.*?(?<!xx)b|a.*?(?<!xx)bc/"
    machine, judge = machine_of(parse_lark(grammar, mode="longest")), lark.Lark(grammar, parser="lalr")
    assert [machine.accepts(text) for text in (b"ab", b"abc", b"axxb")] == [True, True, False]
    assert judge.parse("ab")
    with pytest.raises(lark.exceptions.UnexpectedInput):
        judge.parse("abc")


def accepts(dfa, text: str) -> bool:
    state = dfa.start
    for byte in text.encode():
        state = dfa.step(state, byte)
    return bool(dfa.final[state])


@pytest.mark.parametrize("pattern", ["a(?!cbb).*?c(?:b)*", "a.*?c(?=bb)a*", "a(?<!ba).*?b+"])
def test_what_a_condition_sees_of_the_end_is_not_cut_off(pattern):
    with pytest.raises(ConstraintError, match=r"lazy loop and ends in a greedy one|would look at the text"):
        parse_lark(f"start: A\nA: /{pattern}/s", mode="longest")


@pytest.mark.parametrize(
    ("pattern", "end"),
    [
        ("ab*", "b*"), ("a(b|c)*d?", "(b|c)*d?"), ("a(b)*c", ""), ("a[b)*]{0,3}", "[b)*]{0,3}"), ("a{0,3}b+c*", "c*"), ("ab*?", ""),
        ("ab*+", ""), ("a(b*)", ""), (r"a\(b*", "b*"), ("a(?#x*)b*", "b*"), ("(a)*", "(a)*"), ("a{2}", ""), ("ab{,2}", "b{,2}"),
    ],
)  # fmt: skip
def test_what_may_be_left_out_at_the_end(pattern, end):
    assert pattern[optional_end(pattern, verbose=False) :] == end


def test_spaces_and_comments_are_passed_over():
    pattern = "a  # (x\n b* c ?"
    assert pattern[optional_end(pattern, verbose=True) :] == "b* c ?"

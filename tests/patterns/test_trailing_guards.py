r"""Conditions at the end of a terminal, as in `/select\b/`: against Python's `re`, Lark's lexer, and the recogniser of characters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import lark
import pytest
from oracles.earley import Recogniser
from oracles.grammar_judges import parses

from fsa_compile.errors import UnsupportedGrammarError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.patterns.trailing_guards import forbidden_bytes
from fsa_compile.unicode.code_points import NONE, interval


def texts(letters: str, longest: int) -> Iterator[str]:
    for length in range(longest + 1):
        yield from map("".join, itertools.product(letters, repeat=length))


@pytest.mark.parametrize(
    ("terminal", "rest", "letters"),
    [
        (r"if\b", r"\(|[a-z]+|_|1|-x", "if(_1-x"),
        (r"(?i:as|at)\b", "[A-Ta-t]|[.]", "aAsSt.é"),
        (r"[0-9]+(?![A-Za-z0-9_])", "[a-z]+|[.]|,", "01a.,Z"),
        (r"-(?!-)", "-|x", "-x"),
        (r"(?:x|yx)(?!x|y+|[z,])", "[xyz,]|[.]", "xyz,."),
        (r"é(?![é-ü])", "é|ê|[.]", "éê."),
        (r"a\b(?![.])", "[.]|,|b", "ab.,"),
        (r"[+*]|[?](?![a-z])", "[a-z]|[?]|,", "+?a,"),
        (r"1[01]*|0(?![1-9])", "[0-9]|[.]", "012."),
        (r"x(?:y(?!z)|z(?!y))|y(?!y)", "[xyz]|,", "xyz,"),
        (r"(?:ab|b(?!a))|a(?![bc])", "a|b|c", "abc"),
        (r"if(?=\()", r"\(|[a-z]+|_", "if(_"),
        (r"ab(?=[ac])|a+(?=b)", "[abc]", "abc"),
        (r"x(?:y(?=z)|z(?!y))", "[xyz]", "xyz"),
        (r"é(?=[é-ü])", "é|ê|[.]", "éê."),
        (r"a(?=\w)(?!b)|ab?(?=c)", "[a-c]|,", "abc,"),
    ],
)
def test_what_may_follow_is_what_re_lets_follow(terminal: str, rest: str, letters: str) -> None:
    grammar = f"start: T R?\nT: /{terminal}/\nR: /{rest}/"
    machine = machine_of(parse_lark(grammar))
    judge = re.compile(f"(?:{terminal})(?:{rest})?").fullmatch
    seen = set()
    for text in texts(letters, 4):
        assert machine.accepts(text.encode()) == bool(judge(text)), text
        seen.add(bool(judge(text)))
    assert seen == {False, True}


GRAMMARS = {
    "number": ('start: NUMBER ("and" NUMBER)* WORD?\nNUMBER: /[0-9]+(?![0-9a-z])/\nWORD: /x[a-z]*/\n%ignore " "', "1andx "),
    "keyword": ('start: (NOT | "(")* NAME ")"?\nNOT.1: /no\\b/\nNAME: /(?!no\\b)[a-z]+/\n%ignore " "', "no(x) "),
    "minus": ('start: (MINUS | "+")* "x" (MINUS "x")*\nMINUS: /-(?!-)/\n%ignore " "', "-+x "),
    "joined": ('start: (WORD | ",")+\nWORD: /a+/ _END\n_END: /(?!b)/\n%ignore " "', "ab, "),
    "demanded": ('start: (A | B | C | X)*\nA: /abc(?=x)/\nB: "a"\nC: "bc"\nX: "x"', "abcx"),
    "demanded first": ('start: (T | U | V)+\nT.1: /a(?=b)/\nU: /a/\nV: /[bc]/\n%ignore " "', "abc "),
    "demanded or not": ('start: (W | N | S)*\nW: /[a-z]+(?=:)/\nN: /[a-z]/\nS: ":"\n%ignore " "', "ab: "),
    "demanded, lazy": ('start: (T | V | C)+\nT: /a(?:.*?|bb)(?=c)/\nV: /b/\nC: "c"', "abc"),
    "at the end": ('start: "(" start ")" | T "b" | U\nT.1: /a(?=b)/\nU: /a[bc]?/\n%ignore " "', "ab() "),
    "the last one": ('start: (U | V)* LAST?\nLAST.1: /[ab]b*(?![\\s\\S])/\nU: "a"\nV: /[abc]c?/', "abc"),
    "both ends": ('start: A B? | B A\nA: /a\\b|ab\\b/\nB: /[bc-]+/\n%ignore " "', "abc- "),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_agrees_with_lark_and_the_recogniser(name: str, exhaustive: bool) -> None:
    text, letters = GRAMMARS[name]
    grammar = parse_lark(text)
    machine, recogniser = machine_of(grammar), Recogniser(grammar)
    judge = lark.Lark(text, parser="lalr", lexer="contextual")
    accepted = 0
    for sample in texts(letters, 6 if exhaustive else 5):
        expected = parses(judge, sample)
        assert machine.accepts(sample.encode()) == expected, sample
        if name not in ("joined", "demanded, lazy", "the last one"):
            assert recogniser.accepts(sample.encode()) == expected, sample
        accepted += expected
    assert accepted > 20


def test_every_live_prefix_can_go_on() -> None:
    machine = machine_of(parse_lark('start: "(" NUMBER ("and" | ")")\nNUMBER: /[0-9]+(?![a-z])/'))
    assert machine.accepts(b"(1)")
    assert not machine.run(b"(1a")


CHARACTERS = r'start: KEY REST\nKEY: /if\b/\nREST: {} | "("'.replace(r"\n", "\n")


def test_characters_beyond_ascii_are_told_apart_where_it_matters() -> None:
    inside = machine_of(parse_lark(CHARACTERS.format('"é"')))
    assert [inside.accepts(t.encode()) for t in ("if(", "ifé")] == [True, False]
    outside = machine_of(parse_lark(CHARACTERS.format('"×"')))
    assert [outside.accepts(t.encode()) for t in ("if(", "if×")] == [True, True]
    both = machine_of(parse_lark(CHARACTERS.format('"×" | "é"')))  # one first byte
    assert [both.accepts(t.encode()) for t in ("if(", "if×", "ifé")] == [True, True, False]
    ascii_only = machine_of(parse_lark(CHARACTERS.format(r"/[×é]/").replace(r"if\b", r"(?a:if\b)")))
    assert [ascii_only.accepts(t.encode()) for t in ("if×", "ifé")] == [True, True]


@pytest.mark.parametrize("terminal", ["bc?(?!a)", "bc(?![ac])|b(?!b)", "b(?:cb?)?(?!a)", "[bc]+(?!a)"])
def test_a_lexeme_that_is_forbidden_to_end_is_cut_shorter(terminal: str) -> None:
    grammar = f"start: T R?\nT: /{terminal}/\nR: /b|ca/"
    machine, judge = machine_of(parse_lark(grammar)), lark.Lark(grammar, parser="lalr")
    assert parses(judge, "bca")
    assert [text for text in texts("abc", 5) if machine.accepts(text.encode()) != parses(judge, text)] == []


def test_beside_some_conditions_alternatives_are_matched_longest() -> None:
    """On the page of limits: Lark takes the first one that matches."""
    for terminal, theirs in (("b(?!cd)|bc", False), ("bc|b(?!cd)", True)):
        grammar = f"start: T\nT: /{terminal}/"
        assert machine_of(parse_lark(grammar)).accepts(b"bc")
        assert parses(lark.Lark(grammar, parser="lalr"), "bc") == theirs


def test_a_string_is_read_where_a_pattern_with_a_condition_may_not_end() -> None:
    """On the page of grammars: Lark reads it where the pattern matches only."""
    grammar = 'start: (A | "-" | "b")+\nA: /[a-]+(?!b)/'
    assert machine_of(parse_lark(grammar)).accepts(b"-b")
    assert not parses(lark.Lark(grammar, parser="lalr"), "-b")
    grammar = 'start: A ":" "x" | "if" ":" "y"\nA: /[a-z]+(?=:)/'
    machine, judge = machine_of(parse_lark(grammar)), lark.Lark(grammar, parser="lalr")
    assert [(machine.accepts(t.encode()), parses(judge, t)) for t in ("if:x", "if:y")] == [(False, True), (True, False)]


def test_without_a_lexer_a_pattern_is_a_set_of_texts() -> None:
    """On the page of limits: Lark goes on behind the first match, and where it is told to behind shorter ones."""
    for pattern, text in (("a.*?b", "abab"), ("a|ab", "ab")):
        grammar = f"start: T\nT: /{pattern}/"
        assert machine_of(parse_lark(grammar, mode="characters")).accepts(text.encode())
        assert not parses(lark.Lark(grammar, parser="earley", lexer="dynamic_complete"), text)


def test_without_a_lexer_conditions_see_the_terminal_alone() -> None:
    """On the page of limits."""
    grammar = 'start: T "b"\nT: /(?!ab)a/'
    assert machine_of(parse_lark(grammar, mode="characters")).accepts(b"ab")
    assert not parses(lark.Lark(grammar, parser="earley"), "ab")
    assert not machine_of(parse_lark('start: T "b"?\nT: /(?!ab)a/', mode="longest")).accepts(b"ab")


def test_without_a_lexer_they_are_refused() -> None:
    with pytest.raises(UnsupportedGrammarError, match="say in the rules what may follow"):
        parse_lark(r"start: /if\b/", mode="characters")


def test_forbidden_bytes_of_wide_characters() -> None:
    # U+00E9 is c3 a9; U+00C0 to U+00FF begin with c3; U+0100 begins with c4.
    everything = [[(1 << 0xC3, 1)], [(1 << 0xA9, 2)], []]
    other = [[(1 << 0xC3, 1)], [(1 << 0xAA, 2)], []]
    assert forbidden_bytes(interval(0xE9, 0xE9), []) == 0
    assert forbidden_bytes(interval(0xE9, 0xE9), [everything]) == 1 << 0xC3
    assert forbidden_bytes(interval(0xE9, 0xE9), [other]) == 0
    assert forbidden_bytes(interval(0xE9, 0xE9), [everything, other]) is None
    assert forbidden_bytes(interval(0xC0, 0xFF), [everything, other]) == 1 << 0xC3
    assert forbidden_bytes(NONE, [everything]) == 0
    assert forbidden_bytes(interval(0x10000, 0x10FFFF), []) == sum(1 << b for b in range(0xF0, 0xF5))

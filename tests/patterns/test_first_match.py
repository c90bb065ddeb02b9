"""Ordered tries against `re`: random patterns on all short texts, and where a matcher's order decides what a lexer reads."""

from __future__ import annotations

import itertools
import random
import re

import lark
import pytest
from oracles.grammar_judges import parses

from fsa_compile.errors import UnsupportedGrammarError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.first_match import empty_rounds, first_match, order_matters
from fsa_compile.patterns.glushkov import ConditionFound
from fsa_compile.patterns.python_syntax import parse
from fsa_compile.patterns.trailing_guards import END_OF_TEXT
from fsa_compile.unicode.code_points import single, union

TEXTS = ["".join(text) for n in range(6) for text in itertools.product("abc", repeat=n)]


def random_pattern(rng: random.Random, depth: int = 3) -> str:
    """Alternatives, loops of all kinds, and conditions on the characters that follow, and the one before."""
    kind = rng.random()
    if not depth or kind < 0.3:
        return rng.choice(["a", "b", "c", "[ab]", "[^a]", "."])
    one = random_pattern(rng, depth - 1)
    if kind < 0.55:
        return one + random_pattern(rng, depth - 1)
    if kind < 0.75:
        return f"(?:{one}){rng.choice(['*', '+', '?', '{1,2}', '{2}', '{2,}', '{0,2}'])}{rng.choice(['', '?'])}"
    if kind < 0.9:
        return f"(?:{one}|{random_pattern(rng, depth - 1)})"
    if kind < 0.94:
        return f"{one}(?{rng.choice('!!=')}[{rng.choice(['a', 'b', 'ac', 'bc'])}])"
    if kind < 0.97:
        return f"{one}(?{rng.choice(['!aa', '!b[ab]', '!ab|c', '!(?:ab|bb)c', '=ab', '=.c', '![bc]{2}'])}){random_pattern(rng, depth - 1)}"
    return f"{one}(?<{rng.choice(['!a', '![bc]', '=a', '=b|c'])}){rng.choice(['', random_pattern(rng, depth - 1)])}"


def ends(dfa, text: str) -> list[int]:
    """Where an automaton of letters may end in a text."""
    out, state = [0] * dfa.final[0], 0
    for at, letter in enumerate(text):
        state = next((target for letters, target in dfa.arcs[state] if letters >> ord(letter) & 1), -1)
        if state < 0:
            break
        out += [at + 1] * dfa.final[state]
    return out


def taken(pattern: str):
    """The function from a text to the length of the first match in it; -1 without one."""
    limits = CompileLimits()
    whole, conditions = first_match(parse(pattern), limits, Deadline(limits))

    def length(text: str) -> int:
        for end in reversed(ends(whole, text) if whole else []):
            forbidden = [characters for dfa, characters in conditions if end in ends(dfa, text)]
            assert forbidden
            following = END_OF_TEXT if end == len(text) else ord(text[end])
            if not all(union(single(following), characters) == characters for characters in forbidden):
                return end
        return -1

    return length


def test_random_patterns_match_as_re_matches(exhaustive):
    read = 0
    for seed in range(5_000 if exhaustive else 200):
        pattern = random_pattern(random.Random(seed))
        if empty_rounds(parse(pattern)):
            continue
        try:
            length = taken(pattern)
        except ConditionFound:
            assert "(?" in pattern
            continue
        read += 1
        for text in TEXTS:
            found = re.match(pattern, text)
            assert length(text) == (found.end() if found else -1), (seed, pattern, text)
    assert read > 180


def empty_parts(rng: random.Random, depth: int = 3) -> str:
    """Greedy loops, in and beside one another, of alternatives of which one in the middle reads nothing."""
    if not depth or rng.random() < 0.2:
        return rng.choice(["a", "b", "b?", "(?:b||a)", "(?:a||b)", "(?:|a)"])
    one = empty_parts(rng, depth - 1)
    return one + empty_parts(rng, depth - 1) if rng.random() < 0.5 else f"(?:{one}){rng.choice(['*', '+', '?', '{2}'])}"


def test_rounds_that_read_nothing_end_as_in_re(exhaustive):
    ordered = 0
    for seed in range(3_000 if exhaustive else 300):
        pattern = empty_parts(random.Random(seed))
        if empty_rounds(parse(pattern)):
            continue
        length, judge = taken(pattern), re.compile(pattern)
        for text in TEXTS:
            found = judge.match(text)
            assert length(text) == (found.end() if found else -1), (seed, pattern, text)
        ordered += order_matters(parse(pattern), CompileLimits())
    assert ordered > 90


def test_order_matters_where_the_first_match_is_not_the_longest(exhaustive):
    seen = {False: 0, True: 0}
    for seed in range(10_000 if exhaustive else 600):
        pattern = re.sub(r"([*+?}])\?", r"\1", random_pattern(random.Random(seed), 4))  # loops are greedy
        if re.search(r"\(\?[!=<]", pattern):
            continue
        matters, judge = order_matters(parse(pattern), CompileLimits()), re.compile(pattern)
        lengths = [[end for end in range(len(text) + 1) if judge.fullmatch(text, 0, end)] for text in TEXTS]
        first = [found.end() if (found := judge.match(text)) else -1 for text in TEXTS]
        differ = [max(own, default=-1) for own in lengths] != first
        assert matters or not differ, (seed, pattern)
        seen[differ] += matters == differ
    assert min(seen.values()) >= 30


ORDERED = [
    "start: T R?\nT: /c(?:|a|ab){2}b?/\nR: /[ab]+/",
    "start: T R?\nT: /c(?:a??b?){2}/\nR: /[ab]+/",
    "start: T R?\nT: /c(?:(?:b||a)b?)*/\nR: /a[ab]*/",
    "start: T R?\nT: /c(?:(?:b||a){2})+/\nR: /a[ab]*/",
    "start: T R?\nT: /a|ab/\nR: /b+/",
    "start: T+\nT: /aa?(?:ab)?c?|b/",
    'start: T R?\nT: A B\nA: /(a|ab)/\nB: /(c|bc)/\nR: "b" | "c"',
    'start: T "b"?\nT: ("a" | "ab") "bc"?',
    'start: T "b"?\nT: "a" | "ab"',
    'start: T "b"?\nT: A | B\nA: "a"\nB: /a+b/',
    "start: (T | R)+\nT: /(a|ab)(c|cc)/\nR: /c(?!b)|cb/\n%ignore /b|bb/",
    "start: (T | R)+\nT: /[ab]|[ab]c/\nR.1: /a+|aac/",
    'start: T\nA: "cc" | "cc"+\nT: ((/([ab])/ | A) | (/((?:(?:bc|[ab])){1,2})/)+)',
    'start: T | R\nT: /(a|ab)/\nR: T "c"',
    'start: (T | R)+\nT: /(a|ab)/\nPART: T "b"\nR: PART~2 "c" | T "cb" | T T "cc"',
]


def as_in_lark(machine, judge: lark.Lark, texts) -> set[bool]:
    """Every text is read if and only if Lark reads it; the verdicts that there were."""
    read = {text: parses(judge, text) for text in texts}
    assert [text for text in read if machine.accepts(text.encode()) != read[text]] == []
    return set(read.values())


@pytest.mark.parametrize("grammar", ORDERED)
def test_terminals_are_what_re_takes_as_in_lark(grammar):
    machine, judge = machine_of(parse_lark(grammar, mode="longest")), lark.Lark(grammar, parser="lalr")
    assert as_in_lark(machine, judge, TEXTS) == {False, True}


def test_terminals_inside_terminals_are_joined_with_few_brackets():
    names = [f"T{i}" for i in range(65)]
    inner = [f'{name}: "a" | {after} "b"' for name, after in itertools.pairwise(names)]
    grammar = "\n".join(["start: T0", *inner, 'T64: "c" | "cc"'])
    assert machine_of(parse_lark(grammar, mode="longest")).accepts(b"abbb")


def test_flags_at_the_begin_of_a_part_are_those_of_the_part():
    machine = machine_of(parse_lark('start: T\nT: "c"? /(?i)a|ab/', mode="longest"))
    assert [text for text in ("a", "cA", "Ca", "aB", "b") if machine.accepts(text.encode())] == ["a", "cA"]


def test_parts_that_do_not_join_are_refused_at_their_place():
    for terminal in ('"a" | /b(?P<n>c)/ /(?P<n>c)/', "/(?i)a/ | /(?i)(?s)b/ | /c/"):
        with pytest.raises(UnsupportedGrammarError, match="the parts of this terminal do not join"):
            parse_lark(f"start: T\nT: {terminal}", mode="longest")


@pytest.mark.parametrize("pattern", [r"a.*?\Bb", "(?<!a)b*?c", "a(?!bcb).*?c", "a.*?(?<!ab)c"])
def test_what_is_not_read_in_order(pattern):
    with pytest.raises(ConditionFound):
        taken(pattern)


def test_a_round_of_a_greedy_loop_that_reads_nothing_is_its_last():
    assert re.match("a.*?b(?:c*|da)+", "abda")[0] == "ab"
    assert taken("a.*?b(?:c*|da)+")("abda") == 2
    grammar = "start: T\nT: /a.*?b(?:c*|da)+/"
    assert [machine_of(parse_lark(grammar)).accepts(text) for text in (b"abc", b"abda")] == [True, False]


LOOPS = [("!>|[^>]", "<a!>b>"), ("[^>]|!>", "<a!>"), ("!.|[^>!]", "<a!>b>")]


@pytest.mark.parametrize(("loop", "accepted"), LOOPS)
def test_a_lazy_loop_takes_the_alternative_that_stands_first(loop, accepted):
    grammar = f"start: T\nT: /<({loop})*?>/"
    machine, judge = machine_of(parse_lark(grammar)), lark.Lark(grammar, parser="lalr")
    assert machine.accepts(accepted.encode())
    as_in_lark(machine, judge, map("".join, itertools.product("<>!a", repeat=4)))


@pytest.mark.parametrize("pattern", ["(?:a??b?){1,2}c", "a(?:b*?)*c", "(?:a|b{0,2}?)+c", "(?:(?:a||b)){0,2}a", "(?:(?:(?:a||b)){2,})*"])
def test_rounds_that_prefer_to_be_empty_are_refused(pattern):
    with pytest.raises(UnsupportedGrammarError, match="a loop repeats what a lazy loop or an alternative lets be empty"):
        parse_lark(f"start: T\nT: /{pattern}/", mode="longest")


def test_terminals_that_are_joined_are_tried_widest_first_as_in_lark():
    grammar = 'start: T "!"?\nT: A | B | C\nA: /a/\nB: /a.*?b/\nC: "ab!"'
    machine, judge = machine_of(parse_lark(grammar)), lark.Lark(grammar, parser="lalr")
    texts = {"a": True, "a!": True, "ab": True, "ab!": True, "acb!": True, "ab!!": False}
    assert {text: machine.accepts(text.encode()) for text in texts} == texts
    for text, wanted in texts.items():
        assert parses(judge, text) == wanted, text


def test_a_lexeme_that_ends_by_what_follows_far_behind():
    grammar = "start: (T | WORD)+\nT: /<(!>|[^>])*?>/\nWORD: /[a!]+/"
    machine, judge = machine_of(parse_lark(grammar, mode="longest")), lark.Lark(grammar, parser="lalr")
    assert as_in_lark(machine, judge, map("".join, itertools.product("<>!a", repeat=6))) == {False, True}

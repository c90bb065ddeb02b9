"""Which of two terminals a text is that both match: as in Lark, by priority, widths, lengths and names; random pairs."""

from __future__ import annotations

import random
import warnings
from collections import Counter

import lark
import pytest
from oracles.grammar_judges import parses

from fsa_compile.errors import UnsupportedGrammarError
from fsa_compile.grammar.front.common_terminals import COMMON_LENGTHS, COMMON_TERMINALS
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.grammar.lexing.terminal_sizes import sizes_of
from fsa_compile.limits import CompileLimits

PARTS = ["/[a-cé]/", "/[^!?]/", "/[^!?]?[^a!?]/", "/[ab]+/", "/(a|b)+/i", r"/[a\x63]/", r"/\w/", "/a{1,2}/", "/[a]b?/", '"a"', '"b"i', '"a".."c"', '"b".."é"', "/[\\n\\/abé]+/", "/[ab]/is",
         '"é"', "/é?a/", "/(?:ab?|é)/x", "D", "D+", "(D | /é/)", "D~1..2", "[/é/] D", "L"]  # fmt: skip


def random_terminal(rng: random.Random) -> str:
    """One to three parts, joined in some way."""
    parts = [rng.choice(PARTS) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    one = rng.choice([" | ".join, " | ".join, "? ".join])(parts)
    return f"({one}){rng.choice('?+')} {rng.choice(PARTS)}" if rng.random() < 0.2 else one


def random_pair(rng: random.Random) -> str:
    """Two terminals behind which different digits stand; one may have no name."""
    first = second = random_terminal(rng)
    while first == second:  # equal ones are one terminal
        second = random_terminal(rng)
    names = rng.sample(["A", "B", "LONG_NAME", "_T", "Z"], 2)
    lines = [f"{name}{rng.choice(['', '', '', '', '.1', '.-1'])}: {body}" for name, body in zip(names, [first, second], strict=True)]
    if rng.random() < 0.3:
        names[0], lines[0] = rng.choice([part for part in PARTS if part[0] in '/"' and ".." not in part]), ""
    rng.shuffle(lines)
    return "\n".join([f'start: {names[0]} "!" | {names[1]} "?"', *lines, "D: /[ab]/", "%import common.LETTER -> L"])


def one_case(rng: random.Random) -> Counter:
    grammar = random_pair(rng)
    try:
        judge = lark.Lark(grammar, parser="lalr")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrammarWarning)
            machine = machine_of(parse_lark(grammar, mode="longest"))
    except (lark.exceptions.LarkError, UnsupportedGrammarError, TypeError) as error:
        return Counter([type(error).__name__])
    seen = Counter(made=1)
    for text in (letter + digit for letter in "abcéAB" for digit in "!?"):  # one letter: no terminal is cut shorter than another
        expected = parses(judge, text)
        assert machine.accepts(text.encode()) == expected, (grammar, text)
        seen[f"texts {expected}"] += 1
    return seen


def test_random_pairs_are_told_apart_as_lark_does(tally):
    for rng in tally.cases(150, least=20_000):
        tally.update(one_case(rng))
    assert tally["made"] > sum(tally.values()) / 30
    assert min(tally["texts True"], tally["texts False"]) > tally["made"]


@pytest.mark.parametrize("name", COMMON_TERMINALS)
def test_lengths_of_common_terminals_are_those_of_lark(name):
    text = f'%import common.{name}\nstart: T\nT: "x" {name}'
    pattern = next(t.pattern for t in lark.Lark(text, parser="lalr").terminals if t.name == "T")
    grammar = parse_lark(f'%import common.{name}\nstart: T\nT: "x" {name}', mode="characters")
    assert grammar.sizes["T"].length == len(pattern.value)
    assert min(grammar.sizes["T"].width, 1_000) == min(pattern.max_width, 1_000)
    assert COMMON_LENGTHS[COMMON_TERMINALS[name]] == grammar.sizes["T"].length - 1


def test_sizes_of_terminals_made_by_hand_are_those_of_their_bodies():
    grammar = parse_lark('start: A\nA: "é"i B~2\nB: /a|bc/', mode="longest")
    assert sizes_of(grammar.rules, grammar.text, CompileLimits()) == grammar.sizes


@pytest.mark.parametrize(
    ("grammar", "read", "refused"),
    [
        ('start: IF NAME | "if" "(" NAME ")"\nIF.2: "if"\nNAME: /[a-z]+/\n%ignore " "', ["if a", "if (a)"], ["if", "ifa", "if(a"]),
        ('start: NAME "x" | /[a-z]/ "y"\nNAME.1: /[a-z]/', ["ax", "ay"], ["x"]),
        ('start: V /ab?(?![.])/ | V V V\nV: /abc?/\nU.1: /ab?(?![.])/', ["abab", "aba"], ["ababab"]),
        ('start: "ab" "1" | X "2"\nX: "Ab"i', ["ab1", "AB2"], ["ab2", "AB1"]),
    ],
)
def test_a_string_in_a_rule_is_the_terminal_that_it_is_the_text_of(grammar, read, refused):
    machine, judge = machine_of(parse_lark(grammar, mode="longest")), lark.Lark(grammar, parser="lalr")
    assert all(machine.accepts(text.encode()) and judge.parse(text) for text in read)
    assert not any(machine.accepts(text.encode()) for text in refused)


def test_what_can_never_match_is_told_how_to():
    machine_of(parse_lark('start: "a" X\nX: /a/ ', mode="longest"))
    with pytest.raises(UnsupportedGrammarError) as error:
        machine_of(parse_lark('start: "a" | X\nX.2: /a/', mode="longest"))
    assert error.value.fix == "Give it a name and a priority: NAME.3: ..."

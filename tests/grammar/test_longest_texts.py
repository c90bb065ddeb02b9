"""Random grammars of programs in longest mode against Lark: its basic lexer takes the longest match, LALR parses.

The grammars are such that where a terminal may stand does not matter, so that both have one language: names and all keywords begin
statements, operators that begin alike stand in one rule, and every beginning of a lexeme is one, or can only go on as that.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter

import lark
import pytest
from oracles.grammar_judges import parses
from oracles.text_walks import written

from fsa_compile.errors import GrammarConflictError, LimitError
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

KEYWORDS = ["if", "in", "i", "fi", "for", "f"]
OPERATORS = ["=", "==", "<", "<=", "<<", "+", "+="]
LETTERS = 'fi1.=<+;,(){}[]" #o'


def random_program_grammar(rng: random.Random) -> str:
    """Statements with keywords, blocks, calls and lists; names, numbers, strings, comments."""
    keywords = rng.sample(KEYWORDS, rng.randint(1, 4))
    operators = rng.sample(OPERATORS, rng.randint(1, 4))
    parts = ["expr", "block", "NAME", '"(" expr ")"', '("," NAME)*', '[";"]', '"[" [expr ("," expr)*] "]"', "NUMBER", '"(" (NAME ";")* ")"']
    branches = [f'"{word}" {" ".join(rng.choices(parts, k=rng.randint(1, 3)))} ";"' for word in keywords]
    first = rng.choice(['NAME "(" [expr ("," expr)*] ")" ";"', 'NAME operator expr ";"', 'NAME ";"', 'NAME ("," NAME)* ";"'])
    atoms = rng.sample(["NUMBER", "STRING", '"(" expr ")"', '"[" [expr ("," expr)*] "]"', '"{" expr "}"'], rng.randint(1, 4))
    lines = [
        "start: statement*",
        f"statement: {' | '.join([first, *branches])}",
        'block: "{" statement* "}"',
        f"expr: {rng.choice(['atom (operator atom)*', 'atom [operator expr]', 'expr operator atom | atom'])}",
        f"atom: {' | '.join(['NAME', *atoms])}",
        f"operator: {' | '.join(f'{chr(34)}{o}{chr(34)}' for o in operators)}",
        "NAME: /[a-z]+/",
        f"NUMBER: {rng.choice(['/[0-9]+/', '/[0-9]+([.][0-9]*)?/', '/0|1+/'])}",
        'STRING: /"[^"]*"/',
        "%ignore / +/",
        *rng.choice([[], ["%ignore /#[^;]*;/"]]),
    ]
    return "\n".join(lines)


def parser_of(text: str) -> lark.Lark | None:
    """Lark's parser; None where LALR cannot."""
    try:
        return lark.Lark(text, parser="lalr", lexer="basic")
    except lark.exceptions.GrammarError:
        return None


def edited(text: str, rng: random.Random) -> str:
    """With a few letters more, fewer or changed."""
    for _ in range(rng.randint(0, 2)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(["", *LETTERS]) + text[at + rng.randint(0, 1) :]
    return text


def one_case(rng: random.Random) -> Counter:
    """A grammar, and texts with and without edits."""
    grammar = random_program_grammar(rng)
    parser = parser_of(grammar)
    if parser is None:
        return Counter(conflict=1)
    machine = None
    for stacks in (1, 8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrammarWarning)
            try:
                machine = machine_of(parse_lark(grammar, mode="longest"), stacks=stacks)
                break
            except (GrammarConflictError, LimitError):
                continue
    if machine is None:
        return Counter(refused=1)
    counts = Counter(made=1)
    for _ in range(60):
        text = edited(written(machine, rng, LETTERS, rng.randint(0, 40)), rng)
        ours, theirs = machine.accepts(text.encode()), parses(parser, text)
        rough = stacks > 1 and theirs and not ours  # lexemes on parallel stacks respect one another by a rough rule
        assert ours == theirs or rough, (grammar, text, ours)
        counts.update(["checks", f"texts {ours}"])
    return counts


@pytest.mark.exhaustive
def test_random_programs(tally):
    for rng in tally.cases(20, least=1_500):
        tally.update(one_case(rng))
    assert tally["made"] > tally["conflict"] + tally["refused"]
    assert min(tally["texts True"], tally["texts False"]) > 2 * tally["made"]

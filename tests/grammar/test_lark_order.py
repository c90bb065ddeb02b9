"""The mode "lark" against Lark itself: LALR with its contextual lexer, on random grammars whose terminals overlap in every way."""

from __future__ import annotations

import itertools
import random

import lark
import pytest
from lark.indenter import Indenter
from oracles.grammar_judges import parses
from oracles.lark_conflicts import larks_parser

from fsa_compile import Vocabulary, compile_grammar, parse_captures
from fsa_compile.errors import ConstraintError, GrammarConflictError, UnsatisfiableError, UnsupportedGrammarError
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

BYTES = Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256))], stop_ids=[0])


class Random:
    """A grammar of two to four terminals over three letters, words or signs, in one byte or two."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.letters = rng, rng.choice(["abc", "<=>", "aéè"])

    def grammar(self) -> str:
        rng = self.rng
        self.names = "ABCD"[: rng.choice([2, 3, 3, 4])]
        priorities = ["", "", "", ".1", ".2"]
        lines = [f"{name}{rng.choice(priorities)}: {self._string() if rng.random() < 0.5 else self._pattern()}" for name in self.names]
        if rng.random() < 0.3:
            last = self.letters[2]
            lines.append(f"%ignore {rng.choice(['/ +/', chr(34) + ' ' + chr(34), f'/ ?{last}/', f'/ {last}*/', chr(34) + last + chr(34), *self.names[:2]])}")
        rule = f"({self._rule(3)})" + (f' ("(" y? ")" ({self._rule(1)})?)?' if rng.random() < 0.5 else "")
        below = [f"x: {self._rule(2, below=True)}"] if "x" in rule else []
        return "\n".join(["start: y", f"y: {rule}", *below, *lines])

    def texts(self, grammar: str) -> list[str]:
        signs = self.letters + "()" * ("(" in grammar.split("\n")[1][5:]) + " " * ("%ignore" in grammar)
        short = ["".join(letters) for n in range(4) for letters in itertools.product(self.letters, repeat=n)]
        texts = [*short, *("".join(self.rng.choices(signs, k=self.rng.randint(3, 7))) for _ in range(160))]
        return [*texts, *(map(str.swapcase, short) if '"i' in grammar else ()), *(t.capitalize() for t in short if '"i' in grammar)]

    def _rule(self, depth: int, *, below: bool = False) -> str:
        kind = self.rng.random()
        if not depth or kind < 0.35:
            return self.rng.choice(self.names)
        parts = [self._rule(depth - 1, below=below) for _ in range(2)]
        if kind < 0.6:
            return " ".join(parts)
        if kind < 0.75:
            return f"({' | '.join(parts)})"
        return f"({parts[0]}){self.rng.choice('*+?')}" if kind < 0.9 or below else "x"

    def _string(self) -> str:
        any_case = "i" * (self.letters == "abc" and self.rng.random() < 0.2)
        return f'"{"".join(self.rng.choices(self.letters, k=self.rng.choice([1, 1, 2, 2, 3])))}"{any_case}'

    def _pattern(self) -> str:
        rng, (a, b, c) = self.rng, self.letters

        def one() -> str:
            return rng.choice([a, b, c, f"[{a}A]" if a == "a" else a, f"[{a}{b}]", f"[{b}{c}]", f"[{a}{b}{c}]"])

        body = "".join(one() + rng.choice(["", "", "+", "*", "?", "+?"]) for _ in range(rng.choice([1, 2, 3])))
        if rng.random() < 0.2:
            body = f"(?:{body}|{one()}{one()}){rng.choice(['', c])}"
        if rng.random() < 0.2:
            body += rng.choice([f"(?!{a})", f"(?={b})", f"(?!{a}{b})", f"(?={a}|{c})", f"(?!{a}+{b})"])
        return f"/{f'(?!{a}{b})' * (rng.random() < 0.1)}{body}/"


@pytest.mark.filterwarnings("ignore:. is ignored, so Lark:fsa_compile.grammar.grammar_checks.GrammarWarning")
def test_random_grammars(tally):
    for rng in tally.cases(150, least=3_000):
        made = Random(rng)
        grammar = made.grammar()
        parser = larks_parser(grammar)
        if parser is None:
            continue
        texts = made.texts(grammar)
        try:
            machine = machine_of(parse_lark(grammar, mode="lark"))
        except UnsatisfiableError:
            assert not any(parses(parser, text) for text in texts), grammar
            tally["empty"] += 1
            continue
        except (UnsupportedGrammarError, GrammarConflictError):  # conditions, or going back, that one stack does not follow
            tally["refused"] += 1
            continue
        tally["made"] += 1
        for text in texts:
            theirs = parses(parser, text)
            assert machine.accepts(text.encode()) == theirs, (grammar, text, theirs)
            tally.update(["checks", f"texts {theirs}"])
    assert tally["made"] > 4 * tally["refused"]
    assert min(tally["texts True"], tally["texts False"]) > tally["made"]


READ = {
    ('start: BIN "x" | INT "y"\nBIN: /0b[01]+/\nINT: /[0-9][0-9_]*/', "0b1x"): (True, False),
    ('start: "a" X | X "c"\nX: /[ab]+/\n%ignore " "', "a a"): (False, True),
    ('start: "return" "("? X\nX: /[a-z]+/', "returnx"): (False, True),
    ('start: A "1" | B "2"\nA: /x+/\nB: /x+/', "x2"): (True, False),
    ('start: "a" "\\n"? "b"\n%ignore /\\s+/', "a\nb"): (True, True),
    ('start: "a" "\\n" "b" | "c"\n%ignore /\\s+/', "a\nb"): (True, False),
    ("start: A (B | C)\nA: /[a-z]+/\nB: /[0-9]+/\nC: /[0-9]+[.][0-9]+/", "x1.5"): (True, True),
    ('start: A | B\nA.2: "a"\nB: /[ab]+/', "ab"): (True, False),
    ('start: "if" X | X\nX: /[a-z]+/', "iffy"): (True, True),
    ('start: X | "aéé"\nX.1: /aé(?!é)/', "aéé"): (True, True),
    ('start: "if"i "1" | X "2"\nX: /[a-zA-Z]+/', "IF1"): (True, True),
    ('start: "if"i "1" | X "2"\nX: /[a-zA-Z]+/', "iF2"): (False, False),
    ('start: "IF"i "1" | X "2"\nX: /[a-z]+/', "if2"): (False, True),
    ('start: D D\nD: "c"i\n%ignore "c"', "cc"): (False, True),
    ('start: (A | B)+\nA: "cc"\nB.1: "c"\n%ignore "c"', "ccc"): (True, True),
}


def test_what_is_read_otherwise_than_by_the_longest_match():
    """Each text in the modes "longest" and "lark"; the second is Lark's verdict."""
    for (grammar, text), verdicts in READ.items():
        found = tuple(machine_of(parse_lark(grammar, mode=mode)).accepts(text.encode()) for mode in ("longest", "lark"))
        assert (found, verdicts[1]) == (verdicts, parses(lark.Lark(grammar, parser="lalr"), text)), (grammar, text)


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        ('start: T\nT: /a|b/ "c"', "joins the alternatives"),
        ('start: T\nA: /a|[|]b/\nT: A "c"', "joins the alternatives"),
        ('start: "ab"i "1" | /[abc]+/ "2" | /[A-C]+/ "3"', "which spellings"),
        ('start: "if"i "1" | /[a-z]+/ "2"', "which spellings"),
        ('start: "-" "b"? | X\nX: /[a-]+(?!b)/', "condition of the pattern"),
        ('start: "if" | X\nX: /(?<!x)[a-z]+/', "condition of the pattern"),
        ("start: A\nA: /(?:c+|c[ab])(?!ab)/", "order of alternatives"),
        ('start: A "c"\nA: /a.*?b+(?=cc)/', "order of alternatives"),
        ('start: "a" | X\nX: /[abx]{2,}|a/\n%ignore /[a ]/', "may stand"),
        ('start: X+\nX: /[ab]/\n%ignore "a"', "may stand"),
        ('start: /a[bc]/ "x" | /[ab]b/+ "y"', "names that it makes up"),
        ('start: "_" ("_"i)* ["_" "a"]', "names that it makes up"),
    ],
)
def test_what_is_not_followed_is_refused(grammar, why):
    with pytest.raises(UnsupportedGrammarError, match=why):
        compile_grammar(grammar, BYTES, mode="lark")


def test_what_is_ignored_stands_in_no_rule():
    """It is dropped wherever it stands, but Lark looks for what may stand before it: behind an A, `b` is a B that leads nowhere."""
    grammar = 'start: (A T? x)+\nx: "c" | T B | B T | "(" start ")" | N\nA: "a"\nB: /b/\nN: /[bc]+/\nT: "t"\n%ignore T'
    with pytest.warns(GrammarWarning, match=r"T is ignored, so .* no rule: .* in start \(line 1\), x \(line 2\)"):
        machine = machine_of(parse_lark(grammar, mode="lark"))
    parser = lark.Lark(grammar, parser="lalr")
    texts = ["".join(signs) for n in range(6) for signs in itertools.product("abct()", repeat=n)]
    judged = [parses(parser, text) for text in texts]
    assert [machine.accepts(text.encode()) for text in texts] == judged
    assert 100 < sum(judged) < len(judged) / 2


def test_alternatives_in_brackets_are_joined_as_they_are():
    machine = machine_of(parse_lark('start: T\nT: /x(a|b)[|]\\|/ "c"', mode="lark"))
    assert [machine.accepts(text) for text in (b"xa||c", b"xb||c", b"xa||", b"xac")] == [True, True, False, False]


@pytest.mark.parametrize("more", ["C.-1: /[abc]+/", "C: /b/\n%ignore /b?c+/"])
def test_captures_are_where_lark_cuts(more):
    """Also where a string is always ignored, since a pattern that is ignored matches it."""
    grammar = f'start: (a | b | c)*\na[capture]: A\nb[capture]: "bc"\nc[capture]: C\nA: /a+b?/\n{more}'
    parser = lark.Lark(grammar.replace("[capture]", ""), parser="lalr", keep_all_tokens=True)
    made = 0
    for text in map("".join, itertools.product("abc", repeat=4)):
        found = parse_captures(grammar, BYTES, text, mode="lark")
        ours = sorted((c.start, c.text) for spans in found.values() for c in spans)
        assert ours == [(token.start_pos, str(token)) for token in parser.lex(text)], text
        made += len(ours) > 1
    assert made > 10


class Blocks(Indenter):
    """Of the grammar below."""

    NL_type, OPEN_PAREN_types, CLOSE_PAREN_types = "_NL", [], []
    INDENT_type, DEDENT_type, tab_len = "_INDENT", "_DEDENT", 4


def test_blocks_are_indented_as_lark_has_them():
    grammar = 'start: s+\ns: X _NL | "if" X ":" _NL _INDENT s+ _DEDENT\nX: /[a-z]+/\n_NL: /(\\n *)+/\n%ignore " "\n%declare _INDENT _DEDENT'
    parser = lark.Lark(grammar, parser="lalr", postlex=Blocks())
    machine = machine_of(parse_lark(grammar, mode="lark"))
    texts = ["a\n", "iffy\n", "if x:\n    a\nb\n", "if if:\n    a\n", "if x:\na\n", "ifx:\n    a\n", "if x:\n    if y:\n        b\nc\n"]
    judged = [parses(parser, text) for text in texts]
    assert [machine.accepts(text.encode()) for text in texts] == judged
    assert any(judged)
    assert not all(judged)


def test_gbnf_has_no_lexer():
    with pytest.raises(ConstraintError, match="GBNF describes characters"):
        compile_grammar('root ::= "a"', BYTES, mode="lark")

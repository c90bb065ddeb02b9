"""Lexemes whose conditions forbid them to end: cut shorter, or another terminal. Random grammars against a lexer with `re`.

The oracle reads lexeme by lexeme: of the terminals that may stand in the state reached, the longest match that its condition lets
end, of equal ones that of higher priority. Rules are right-linear but for brackets, so a state and a stack are all it needs.
"""

from __future__ import annotations

import dataclasses
import random
import re
import warnings
from collections import Counter

import lark
import pytest

from fsa_compile.errors import ConstraintError, GrammarConflictError, UnsatisfiableError
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

LETTERS = "<>="  # no word characters: keywords have rules of their own
Alternative = tuple[str, str]
"""A pattern, and the letters that may not follow it."""


def random_pattern(rng: random.Random, depth: int = 2) -> str:
    """A pattern over the letters."""
    kind = rng.random()
    if not depth or kind < 0.35:
        return rng.choice([*LETTERS, "[<>]", "[>=]"])
    one = random_pattern(rng, depth - 1)
    if kind < 0.65:
        return one + random_pattern(rng, depth - 1)
    if kind < 0.9:
        return f"(?:{one}){'?' if kind < 0.8 else '+'}"
    return f"(?:{one}|{random_pattern(rng, depth - 1)})"


def random_terminal(rng: random.Random) -> list[Alternative]:
    """One or two alternatives, with and without conditions; never empty."""
    while True:
        found = [
            (random_pattern(rng), "".join(sorted(rng.sample(LETTERS, rng.choice([0, 1, 1, 2]))))) for _ in range(rng.choice([1, 1, 2]))
        ]
        if not any(re.fullmatch(pattern, "") for pattern, _ in found):
            return found


@dataclasses.dataclass
class Rules:
    """A random grammar: states with lexemes, and brackets that hold a text from one state and lead to another.

    Attributes:
      terminals: in ascending priority.
      arcs: per state the next one by terminal.
      brackets: by state where the text within begins, and where it goes on behind it.
      final: states in which a text, or what stands in brackets, may end.
    """

    terminals: dict[str, list[Alternative]]
    arcs: list[dict[str, int]]
    brackets: dict[int, tuple[int, int]]
    final: list[bool]

    def written(self) -> str:
        """In Lark's syntax."""
        lines = ["start: s0"]
        for q, arcs in enumerate(self.arcs):
            ways = [f"{t} s{r}" for t, r in arcs.items()]
            ways += [f'"(" s{inner} ")" s{r}' for at, (inner, r) in self.brackets.items() if at == q]
            lines.append(f"s{q}: " + " | ".join(ways + [""] * self.final[q]))
        for priority, (name, alternatives) in enumerate(self.terminals.items()):
            shown = "|".join(pattern + (f"(?![{not_before}])" if not_before else "") for pattern, not_before in alternatives)
            lines.append(f"{name}.{priority}: /{shown}/")
        return "\n".join(lines)

    def accepts(self, text: str) -> bool:
        """Whether a lexer that takes the longest match reads a text."""
        at = state = 0
        stack: list[int] = []
        while at < len(text):
            if text[at] == "(":
                if state not in self.brackets:
                    return False
                state, after = self.brackets[state]
                stack.append(after)
                at += 1
            elif text[at] == ")":
                if not stack or not self.final[state]:
                    return False
                state, at = stack.pop(), at + 1
            else:
                found = [(end, rank, t) for rank, t in enumerate(self.terminals) for end in self.ends(t, text, at)]
                allowed = [x for x in found if x[2] in self.arcs[state]]
                if not allowed:
                    return False
                at, _, terminal = max(allowed)
                state = self.arcs[state][terminal]
        return self.final[state] and not stack

    def ends(self, terminal: str, text: str, at: int) -> list[int]:
        """Where a lexeme that begins somewhere may end."""
        return [
            end
            for end in range(at + 1, len(text) + 1)
            if any(
                re.fullmatch(pattern, text[at:end]) and text[end : end + 1] not in [*not_before]
                for pattern, not_before in self.terminals[terminal]
            )
        ]


def random_rules(rng: random.Random) -> Rules:
    """One to three terminals and states."""
    names, states = "ABC"[: rng.choice([1, 2, 2, 3])], range(rng.choice([1, 2, 3]))
    arcs = [{t: rng.choice(states) for t in names if rng.random() < 0.6} for _ in states]
    brackets = {q: (rng.choice(states), rng.choice(states)) for q in states if rng.random() < 0.3}
    final = [rng.random() < 0.6 or not (arcs[q] or q in brackets) for q in states]
    return Rules({t: random_terminal(rng) for t in names}, arcs, brackets, final)


def random_text(rng: random.Random) -> str:
    """Letters, most often in brackets that match."""
    text, depth = "", 0
    for letter in rng.choices("<>=<>=()", k=rng.randint(0, 9)):
        if letter == ")" and not depth and rng.random() < 0.9:
            continue
        depth += (letter == "(") - (letter == ")")
        text += letter
    return text + ")" * max(depth, 0)


def test_random_grammars_are_read_as_a_lexer_with_re_reads_them(exhaustive):
    seen: Counter[object] = Counter()
    for seed in range(6_000 if exhaustive else 120):
        rng = random.Random(seed)
        rules = random_rules(rng)
        texts = [random_text(rng) for _ in range(400)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GrammarWarning)
                machine = machine_of(parse_lark(rules.written(), mode="longest"))
        except UnsatisfiableError:
            assert not any(map(rules.accepts, texts)), (seed, rules.written())
            continue
        except ConstraintError as error:
            seen[type(error).__name__] += 1
            continue
        for text in texts:
            taken = machine.accepts(text.encode())
            assert rules.accepts(text) == taken, (seed, text, rules.written())
            seen[taken] += 1
    assert min(seen[True], seen[False]) > 5_000
    assert sum(count for kind, count in seen.items() if isinstance(kind, str)) < seen.total() / 4_000  # few are refused


@pytest.mark.parametrize(
    ("grammar", "texts"),
    [
        ("start: T R?\nT: /bc?(?!a)/\nR: /b|ca/", "b bca bcb bb bc ba bcca"),
        ("start: T R?\nT: /bc(?![ac])|b(?!b)/\nR: /b|ca/", "bca bcb bb b bcca bc"),
        ('start: (NAME | NUMBER)+ ";"\nNUMBER: /[0-9]+(?![a-z])/\nNAME: /[a-z]+/', "12; 1a; 12a; a12; a1b;"),
        ('start: (WORD | call)+\ncall: CALLED "(" ")"\nWORD: /[a-z]+(?![a-z(])/\nCALLED.1: /[a-z]+(?![a-z])/', "ab( ab() abcd() ab()ab() ()"),
        ('start: (SOFT | NAME) "(" ")" | SOFT NAME\nSOFT.1: /print(?![(])/\nNAME: /[a-z]+/\n%ignore " "', "print() print x prin() print( )"),
    ],
)  # fmt: skip
def test_agrees_with_lark(grammar, texts):
    machine, judge = machine_of(parse_lark(grammar, mode="longest")), lark.Lark(grammar, parser="lalr")
    for text in texts.split(" "):
        try:
            expected = bool(judge.parse(text))
        except lark.exceptions.UnexpectedInput:
            expected = False
        assert machine.accepts(text.encode()) == expected, text


def test_a_younger_lexeme_behind_the_end_of_a_call_is_refused_with_its_place():
    read = machine_of(parse_lark('start: x R\nx: "(" x ")" x | T\nT: /bc?(?!a)/\nR: "ca"', mode="longest"))
    texts = {"bca": True, "(b)bca": True, "(bc)bcca": True, "(bca)bca": False, "bc": False}
    assert {text: read.accepts(text.encode()) for text in texts} == texts
    with pytest.raises(GrammarConflictError, match=r"after '\(a\)', '!' may go on with T.*cannot go back that far"):
        machine_of(parse_lark('start: x ("!" "z")?\nx: "(" x T | "a"\nT: /[)]!?(?!z)/', mode="longest"))


TWO_RULES = """
start: s0
s0: A s1 | C s2 | "(" s1 ")" s0 |
s1: A s2 | B s0 | "(" s2 ")" s0 |
s2: A s0 | B s0 | C s2 | "(" s2 ")" s2
A.0: /[>=]/
B.1: />(?![=>])/
C.2: /<<><(?![<])|(?:=|(?:>)+)/
"""


def test_conditions_that_tell_which_of_two_rules_has_ended_are_refused_with_their_place():
    with pytest.raises(GrammarConflictError, match=r"after '\(>', '=' tells whether B or A has ended, and these end different rules"):
        machine_of(parse_lark(TWO_RULES, mode="longest"))

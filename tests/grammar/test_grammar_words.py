"""Keywords and names beside bracketed recursion: grammars of statements in longest mode against the independent recogniser."""

from __future__ import annotations

import random
import warnings

import pytest
from oracles.earley import Recogniser
from oracles.grammar_checks import check_bytes, recogniser_texts
from oracles.stack_sets import StackSets

from fsa_compile.errors import GrammarConflictError, GrammarError, UnsatisfiableError
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.grammar_tree import Choice, Expression, Grammar, Literal, Pattern, Reference, Repeat, Rule, Sequence
from fsa_compile.grammar.lark_syntax import parse_lark

DANGLING = 'start: stmt\nstmt: "if" NAME "then" stmt ["else" stmt] | NAME ";"\nNAME: /[a-z]+/\n%ignore " "'
STATEMENTS = 'start: s*\ns: NAME ";" | "if" s ["else" s]\nNAME: /[a-z]+/\n%ignore " "'
WORDS = ["if", "in", "else", "end", "begin", "i", ";", "(", ")"]


def literal(text: str) -> Literal:
    return Literal(text, 0, 0)


def random_statements(rng: random.Random) -> Grammar:
    """One or two rules whose branches open with keywords that begin like names, recur inside, and may have a tail."""
    names = ["start", "other"][: rng.randint(1, 2)]

    def part() -> Expression:
        kind = rng.random()
        if kind < 0.35:
            return Reference(rng.choice(names), 0, 0)
        return Reference("NAME", 0, 0) if kind < 0.6 else literal(rng.choice(WORDS))

    def branch() -> Expression:
        parts = [literal(rng.choice(WORDS)), *(part() for _ in range(rng.randint(0, 3)))]
        if rng.random() < 0.4:
            tail = Sequence((literal(rng.choice(WORDS)), part()), 0, 0)
            parts.append(Repeat(tail, 0, rng.choice([1, None]), 0, 0))
        return Sequence(tuple(parts), 0, 0)

    rules = {}
    for name in names:
        least = Sequence((Reference("NAME", 0, 0), literal(";")), 0, 0) if rng.random() < 0.5 else Reference("NAME", 0, 0)
        rules[name] = Rule(name, Choice((least, *(branch() for _ in range(rng.randint(1, 2)))), 0, 0), False, 0, 0, 0)
    rules["NAME"] = Rule("NAME", Pattern("[a-z]+", 0, 0), True, 0, 0, 0)
    return Grammar(rules=rules, start="start", ignore=(Pattern(" +", 0, 0),), mode="longest", text="")


@pytest.mark.exhaustive
def test_random_statements(exhaustive: bool) -> None:
    """A grammar is refused, or its machine has its language: with one stack on both sides, with more it accepts nothing else."""
    decided = parallel = 0
    for seed in range(500 if exhaustive else 32):
        grammar = random_statements(random.Random(seed))
        for stacks in (1, 4):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GrammarWarning)
                try:
                    machine = machine_of(grammar, stacks=stacks)
                except GrammarConflictError:
                    continue
                except (GrammarError, UnsatisfiableError):
                    break
            recogniser, sets, rng = Recogniser(grammar), StackSets(machine), random.Random(seed)
            texts = [*recogniser_texts(recogniser, rng, 6, 16, b"fisend;( )")]
            texts += [sets.random_text(rng, 16, b"fisend; ") for _ in range(6)]
            tally = check_bytes(sets, recogniser, texts)
            wrong = [w for w in tally.wrong if machine.deterministic or w["kind"] != "false reject"]
            assert wrong == [], (seed, stacks, grammar.rules)
            decided, parallel = decided + machine.deterministic, parallel + (not machine.deterministic)
            break
    assert decided >= 8
    assert parallel >= 4


@pytest.mark.parametrize("text", [DANGLING, STATEMENTS])
def test_a_keyword_that_opens_and_continues_is_a_conflict(text: str) -> None:
    """The frame of `if … else` and the lone `if` begin with the same word, one of them a stack deeper."""
    with pytest.raises(GrammarConflictError, match="can be read in two ways"):
        machine_of(parse_lark(text))


@pytest.mark.parametrize("n", range(1, 7))
def test_nested_if_else_with_parallel_stacks(n: int) -> None:
    machine = machine_of(parse_lark(DANGLING), stacks=2)
    for m in range(n + 2):
        text = "if a then " * n + "b;" + " else c;" * m
        assert machine.accepts(text.encode()) == (m <= n)


def test_a_start_without_text() -> None:
    for text in ('start: "a"*', 'start: [x]\nx: "(" start ")"', STATEMENTS):
        assert machine_of(parse_lark(text), stacks=2).accepts(b"")
    assert machine_of(parse_lark(STATEMENTS), stacks=2).accepts(b"  ")

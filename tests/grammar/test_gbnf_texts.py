"""Random GBNF with every construct, against a reader and a recogniser of its own: all short texts, and longer ones along both."""

from __future__ import annotations

import random
import warnings
from collections import Counter

import pytest
from oracles.gbnf_reader import Earley

from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.errors import GrammarConflictError, GrammarError, LimitError, UnsatisfiableError, UnsupportedGrammarError
from fsa_compile.grammar.gbnf_syntax import parse_gbnf
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.limits import CompileLimits, Deadline

LIMITS = CompileLimits(max_seconds=2)
LETTERS = "ab(]é\n"
_SPELLED = {
    "a": ["a", r"\x61", r"\u0061"], "b": ["b", r"\U00000062"], "(": ["("], "]": [r"\]"], "é": ["é", r"\u00e9", r"\xE9"], "\n": [r"\n", r"\x0A"],
}  # fmt: skip
_SPACES = ["", " ", "  ", "\t"]


def random_gbnf(rng: random.Random) -> str:
    """Rules over `LETTERS`: strings, classes, dots, groups over several lines, repetitions of all forms, recursion at both ends."""
    names = ["root", *rng.sample(["a", "b-1", "C", "x_y", "0"], rng.randint(0, 3))]
    rules = [f"{name}{rng.choice(_SPACES)}::={rng.choice([' ', '', chr(10), ' # a comment' + chr(10)])}{_body(rng, names, 2)}" for name in names]
    rng.shuffle(rules)
    return rng.choice(["", "\n", "# rules\n"]) + rng.choice(["\n", "\n\n", " # end\n"]).join(rules) + rng.choice(["", "\n"])


def _body(rng: random.Random, names: list[str], depth: int) -> str:
    branches = [_sequence(rng, names, depth) for _ in range(rng.choice([1, 2, 2, 3]))]
    if rng.random() < 0.4:
        branches[rng.randrange(len(branches))] = _text(rng)
    return rng.choice([" | ", "|", " |\n ", " | # or\n"]).join(branches)


def _sequence(rng: random.Random, names: list[str], depth: int) -> str:
    return " ".join(_item(rng, names, depth) + _repetition(rng) for _ in range(rng.choice([1, 1, 2, 3])))


def _repetition(rng: random.Random) -> str:
    low = rng.randint(0, 2)
    forms = ["*", "+", "?", f"{{{low}}}", f"{{{low},}}", f"{{{low},{low + rng.randint(0, 2)}}}", f"{{ {low} , {low + 1} }}"]
    return rng.choice(_SPACES[:2]) + rng.choice(forms) if rng.random() < 0.35 else ""


def _item(rng: random.Random, names: list[str], depth: int) -> str:
    kind = rng.random()
    if kind < 0.35:
        return _text(rng)
    if kind < 0.55:
        return _class(rng)
    if kind < 0.6:
        return "."
    if kind < 0.8:
        return rng.choice(names)
    if kind < 0.9 and depth:
        gap = rng.choice([" ", "\n  ", " # note\n"])
        return f"({gap}{_body(rng, names, depth - 1)}{gap})"
    return f'"(" {rng.choice(names)} "]"'


def _text(rng: random.Random) -> str:
    return '"' + "".join(rng.choice(_SPELLED[c]) for c in rng.choices(LETTERS, k=rng.choice([0, 1, 1, 2]))) + '"'


def _class(rng: random.Random) -> str:
    parts = [rng.choice(_SPELLED[c]) for c in rng.sample(LETTERS, rng.randint(1, 3))]
    if rng.random() < 0.3:
        parts.append(rng.choice(["a-b", "-", r"\-", r"\x61-\u00ff", "(-a"]))
    if "-" in parts:  # alone only at the end
        parts.remove("-")
        parts.append("-")
    return "[" + rng.choice(["", "", "^"]) + "".join(parts) + "]"


def machine_for(text: str) -> tuple[ByteMachine | None, str]:
    """The machine, with eight stacks where one does not do, or why there is none."""
    for stacks in (1, 8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrammarWarning)
            try:
                return machine_of(parse_gbnf(text), stacks=stacks, limits=LIMITS, deadline=Deadline(LIMITS)), "made"
            except GrammarConflictError:
                continue
            except UnsatisfiableError:
                return None, "empty"
            except (LimitError, UnsupportedGrammarError):
                break
            except GrammarError as error:
                if "has no finite text" not in str(error):
                    raise
                return None, "endless"
    return None, "refused"


def one_case(rng: random.Random) -> Counter:
    """A grammar, all texts of up to two letters, and a few longer ones."""
    text = random_gbnf(rng)
    machine, how = machine_for(text)
    counts, earley = Counter({how: 1}), Earley(text)
    if machine is None:
        assert how != "empty" or not earley.sets[0], text
        return counts
    letters = LETTERS + "-"

    def compare(here: set, written: str, deeper: int) -> None:
        counts["checks"] += 1
        assert bool(here) == bool(earley.sets[-1]), (text, written)
        assert machine.may_end(here) == earley.accepting, (text, written)
        if not here or not deeper:
            return
        for letter in letters:
            earley.take(letter)
            compare(machine.run(letter.encode(), here), written + letter, deeper - 1)
            earley.back()

    def wander(here: set, written: str, deeper: int) -> None:
        """One viable letter after the other; the others are compared too."""
        viable = []
        for letter in letters:
            earley.take(letter)
            compare(after := machine.run(letter.encode(), here), written + letter, 0)
            earley.back()
            if after:
                viable.append((letter, after))
        if viable and deeper:
            letter, after = rng.choice(viable)
            earley.take(letter)
            wander(after, written + letter, deeper - 1)
            earley.back()

    compare({machine.initial}, "", 2)
    for _ in range(2):
        wander({machine.initial}, "", 5)
    return counts


def test_an_empty_iteration_before_its_own_rule():
    for text in ('root ::= ( "a"? root | "d" )+ "b" | ""', 'root ::= ( "a"? root )+ "b" | ""'):
        with pytest.raises(UnsupportedGrammarError, match="may be empty and begins with the rule that it stands in"):
            machine_of(parse_gbnf(text))


@pytest.mark.exhaustive
def test_random_gbnf(tally):
    for rng in tally.cases(50, least=2_000):
        tally.update(one_case(rng))
    assert tally["made"] > 3 * (tally["refused"] + tally["empty"])
    assert tally["checks"] > 40 * tally["made"]

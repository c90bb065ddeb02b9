"""Pushdown constraints against two references that share no step with the compiler, on real vocabularies, two-sided.

The full counts are made by `benchmarks/grammar_conformance.py`; here are samples. That the references find what they are there
for is shown on a machine with planted mistakes.
"""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from oracles.earley import Recogniser
from oracles.grammar_checks import check_bytes, recogniser_texts
from oracles.stack_sets import StackSets

from fsa_compile.byte_machine import END_HERE, END_RETURN, RETURN, ByteMachine
from fsa_compile.grammar import Choice, Expression, Grammar, Literal, Pattern, Reference, Repeat, Sequence
from fsa_compile.grammar import Rule as GrammarRule


def lit(text: str) -> Literal:
    return Literal(text, 0, 0)


def pattern(text: str) -> Pattern:
    return Pattern(text, 0, 0)


def ref(name: str) -> Reference:
    return Reference(name, 0, 0)


def seq(*parts: Expression) -> Sequence:
    return Sequence(parts, 0, 0)


def either(*branches: Expression) -> Choice:
    return Choice(branches, 0, 0)


def many(part: Expression, low: int = 0, high: int | None = None) -> Repeat:
    return Repeat(part, low, high, 0, 0)


def grammar(rules: dict[str, Expression], mode: str = "characters", ignore: tuple[Expression, ...] = ()) -> Grammar:
    every = {name: GrammarRule(name, body, name.isupper(), 0, 0, 0) for name, body in rules.items()}
    return Grammar(rules=every, start="start", ignore=ignore, mode=mode, text="")


# ---------------------------------------------------------------- the references themselves

LISTS = grammar({"start": either(seq(lit("["), many(seq(ref("start"), many(seq(lit(","), ref("start")))), 0, 1), lit("]")), lit("1"))})


def lists_machine() -> ByteMachine:
    """LISTS by hand: 1 start, 2 done, 3 after '[', 4 after an item, 5 after ']', 6 after ','; symbols: 0 outermost, 1 inside."""
    byte_class = np.zeros(256, np.int32)
    byte_class[[ord(c) for c in "[],1"]] = [1, 2, 3, 4]
    action = np.zeros((7, 5), np.int32)
    entries = [(3, 1), (3, 2), (2, 0), (4, 0), (5, 0), (6, 0), (RETURN, 0)]  # actions 1..7: (next, push)
    action[1, [1, 4]] = [1, 3]
    action[3, [1, 2, 4]] = [2, 5, 4]
    action[4, [2, 3]] = [5, 6]
    action[5] = 7
    action[6, [1, 4]] = [2, 4]
    ret = np.zeros((7, 2), np.int32)
    ret[5] = [2, 4]
    end = np.zeros(7, np.int8)
    end[2], end[5] = END_HERE, END_RETURN
    return ByteMachine(
        byte_class=byte_class, specials=(), action=action, entry_offset=np.array([0, *range(8)]),
        entry_next=np.array([n for n, _ in entries]), entry_push=np.array([p for _, p in entries]),
        entry_add=np.zeros(7, np.int8), pushes=((), ((0, 0),), ((1, 0),)), ret=ret, end=end,
        bounds=np.full((7, 2), -1), start=1, stack=(),
    )  # fmt: skip


def changed(array: np.ndarray, at: tuple[int, ...], value: int) -> np.ndarray:
    out = array.copy()
    out[at] = value
    return out


def byte_tally(machine: ByteMachine, g: Grammar = LISTS, count: int = 60):
    recogniser, sets, rng = Recogniser(g), StackSets(machine), random.Random(3)
    texts = [*recogniser_texts(recogniser, rng, count, 12), *(sets.random_text(rng, 12) for _ in range(count))]
    return check_bytes(sets, recogniser, texts)


def test_the_references_agree_on_a_machine_made_by_hand() -> None:
    tally = byte_tally(lists_machine())
    assert not tally.wrong
    assert not tally.undecided
    assert tally.checks > 10_000
    assert tally.allowed > 100


@pytest.mark.parametrize(
    ("field", "at", "value", "kind"),
    [
        ("ret", (5, 1), 0, "false reject"),  # a return dropped
        ("ret", (5, 1), 2, "false"),  # a return to another frame
        ("ret", (5, 0), 4, "false"),
        ("action", (6, 2), 5, "false accept"),  # controls 3 and 6 merged: [1,]
        ("action", (3, 2), 0, "false reject"),  # the empty list forgotten
        ("action", (4, 4), 4, "false accept"),  # 11
        ("action", (5, 3), 0, "false reject"),  # a guard on the return that is too narrow
        ("end", (4,), 1, "false accept"),  # a text that ends inside a list
        ("end", (5,), 0, "false reject"),
        ("entry_push", (1,), 1, "false"),  # a push of the wrong symbol
    ],
)
def test_the_recogniser_finds_planted_mistakes(field: str, at: tuple[int, ...], value: int, kind: str) -> None:
    machine = lists_machine()
    array = getattr(machine, field)
    tally = byte_tally(dataclasses.replace(machine, **{field: changed(array, at, value)}))
    assert any(w["kind"].startswith(kind) for w in tally.wrong), tally.wrong[:3]


@pytest.mark.parametrize(
    ("g", "accepted", "refused", "prefixes"),
    [
        (LISTS, ["1", "[]", "[1,[1]]"], ["", "[1,]", "11", "[1"], ["", "[1,", "[[["]),
        # Left recursion, a nullable rule, and a unit cycle.
        (
            grammar({"start": either(seq(ref("start"), lit("+"), ref("t")), ref("t")), "t": either(pattern("[0-9]"), ref("start"))}),
            ["1", "1+2+3"], ["+", "1+", "12"], ["1+"],
        ),
        (
            grammar({"start": seq(ref("a"), ref("a"), lit("x")), "a": many(lit("y"), 0, 1)}),
            ["x", "yx", "yyx"], ["yyyx", ""], ["yy"],
        ),
        # An unproductive branch is no way on.
        (
            grammar({"start": either(lit("a"), seq(lit("b"), ref("loop"))), "loop": seq(lit("c"), ref("loop"))}),
            ["a"], ["b", "bc"], [],
        ),
        # Longest match: a keyword is no name, words do not touch, white space stands where it may.
        (
            grammar({"start": many(either(seq(lit("if"), ref("N")), seq(ref("N"), lit(";")))), "N": pattern("[a-z]+")}, "longest", (pattern(" +"),)),
            ["if a", " a ; if b ", "ifa;", ""], ["if", "if;", "if if", "ifa", "a b;"], ["if", "ifa", "a"],
        ),
        # Lookahead, lookbehind, boundaries and flags inside a terminal.
        (
            grammar({"start": ref("N"), "N": pattern(r"(?!(?i:if|of)\b)[a-zA-Z]+")}),
            ["a", "iff", "Ofx"], ["if", "IF", "oF", ""], ["if", "i"],
        ),
        (
            grammar({"start": pattern(r'"[^\n]*(?<!\\)(\\\\)*"')}),
            ['"a"', r'"\\"', r'"\""'], [r'"\"', '"'], ['"', r'"\"'],
        ),
    ],
)  # fmt: skip
def test_recogniser(g: Grammar, accepted: list[str], refused: list[str], prefixes: list[str]) -> None:
    recogniser = Recogniser(g)
    assert [t for t in accepted if not recogniser.accepts(t.encode())] == []
    assert [t for t in refused if recogniser.accepts(t.encode())] == []
    for text in prefixes:
        rest = recogniser.start.read(text.encode()).completion()
        assert rest is not None
        assert recogniser.accepts(text.encode() + rest)


def test_recogniser_inside_a_character() -> None:
    recogniser = Recogniser(grammar({"start": pattern("[aé€]+")}))
    assert recogniser.start.read(b"a\xc3").completion() == b"\xa9"
    assert not recogniser.start.read(b"\xe2\x82").accepting
    for bad in (b"\xc2", b"\xe2\x81", b"\xf0", b"\xed\xa0", b"\xc0", b"\x80", b"\xff"):
        assert recogniser.start.read(bad) is None


def test_recogniser_does_not_go_back() -> None:
    """After `1` the point begins a fraction: a lexer that looks ahead further would accept `1.x`."""
    g = grammar({"start": seq(ref("N"), many(seq(lit("."), pattern("[a-z]")))), "N": pattern(r"[0-9]+(\.[0-9]+)?")}, "longest")
    assert not Recogniser(g).accepts(b"1.x")
    assert Recogniser(g).accepts(b"1.5.x")


def test_recogniser_tells_lexemes_apart() -> None:
    """A keyword is reserved where a name may follow the same lexeme, is not glued to a name, and priority wins over it."""
    rules = {"start": many(either(seq(lit("if"), ref("N"), lit(";")), seq(ref("N"), lit(";")))), "N": pattern("[a-z]+")}
    recogniser = Recogniser(grammar(rules, "longest", (pattern(" +"),)))
    assert [t for t in ("if a;", "ifa;", "iff;", "if if;") if recogniser.accepts(t.encode())] == ["if a;", "ifa;", "iff;"]
    alone = {"start": seq(lit("if"), many(lit("x"), 0, 1), ref("N")), "N": pattern("[0-9][a-z]*|x[a-z]*")}
    assert Recogniser(grammar(alone, "longest")).accepts(b"if1")
    glued = {"start": seq(lit("if"), either(lit("1"), seq(lit("("), ref("N")))), "N": pattern("[a-z0-9]+")}
    assert not Recogniser(grammar(glued, "longest")).accepts(b"if1")
    assert Recogniser(grammar(glued, "longest")).accepts(b"if(if")

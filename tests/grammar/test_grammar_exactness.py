"""Pushdown constraints against two references that share no step with the compiler, on real vocabularies, two-sided.

The full counts are made by `benchmarks/grammar_conformance.py`; here are samples. That the references find what they are there
for is shown on a machine with planted mistakes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from oracles.earley import Recogniser
from oracles.grammar_checks import Case, TokenSampler, check_bytes, check_machine, check_recogniser, recogniser_texts
from oracles.random_grammars import random_grammar
from oracles.stack_sets import StackSets
from oracles.toy import every_byte

import fsa_compile
from fsa_compile import library
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, RETURN, ByteMachine
from fsa_compile.composition.compose import compose_machine
from fsa_compile.errors import GrammarConflictError, GrammarError, UnsatisfiableError
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.grammar_tree import Choice, Expression, Grammar, Literal, Pattern, Reference, Repeat, Sequence
from fsa_compile.grammar.grammar_tree import Rule as GrammarRule
from fsa_compile.grammar.lark_syntax import parse_lark


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


# ---------------------------------------------------------------- compiled grammars

TOKENS = [b"(a", b"((", b"))", b")(", b"[]", b"](", b"ab)", b")]", b"aa", b"ab", b"ba", b"bab", b"a b", b" (", b") ", b"1.", b".5)", b"12"]


@pytest.mark.parametrize("mode", ["characters", "longest"])
@pytest.mark.exhaustive
def test_random_grammars(mode: str, exhaustive: bool) -> None:
    """Machine against recogniser byte by byte, artifact against recogniser token by token; what one stack cannot decide gets eight."""
    vocabulary = every_byte(TOKENS)
    sampler = TokenSampler(vocabulary)
    made, parallel, refused = 0, 0, 0
    for seed in range(400 if exhaustive else 10):
        g = random_grammar(random.Random(seed), mode)
        stacks, machine = machine_and_stacks(g)
        if machine is None:
            refused += 1
            continue
        made, parallel = made + 1, parallel + (stacks > 1)
        recogniser, sets, rng = Recogniser(g), StackSets(machine), random.Random(seed)
        texts = [*recogniser_texts(recogniser, rng, 4, 10, b"([])"), *(sets.random_text(rng, 10, b"([])") for _ in range(4))]
        constraint = compose_machine(machine, vocabulary, source="random", stacks=stacks)
        for tally in (
            check_bytes(sets, recogniser, texts),
            check_recogniser(constraint, recogniser, iter(texts), sampler, rng, tokens=90, shown=5),
        ):
            # Lexemes on parallel stacks respect one another by a rough rule, which may refuse more (`fsa_compile.grammar.lexing.competing_lexemes`).
            rough = mode == "longest" and stacks > 1
            assert [w for w in tally.wrong if not (rough and w["kind"] == "false reject")] == [], (seed, g.rules)
            assert rough or tally.undecided == [], (seed, g.rules)
    assert made > refused
    assert parallel or not exhaustive


def machine_and_stacks(g: Grammar) -> tuple[int, ByteMachine | None]:
    """The machine with one stack or, where that is a conflict, with eight; None for a grammar that means nothing."""
    for stacks in (1, 8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrammarWarning)
            try:
                return stacks, machine_of(g, stacks=stacks)
            except GrammarConflictError:
                continue
            except (UnsatisfiableError, GrammarError):
                break
    return 1, None


@pytest.mark.sampled(15, every=("name", "family"))
@pytest.mark.parametrize("family", ["llama3", "gpt2"])
@pytest.mark.parametrize("name", [n for n in library.names() if n not in ("c", "go", "java", "javascript", "python", "sql", "typescript")])
def test_library(name: str, family: str, data_dir) -> None:
    """A sample of the campaign in `benchmarks/grammar_conformance.py`."""
    sampler = sampler_of(data_dir / "tokenizers" / family)
    case, rng = Case.of(name, sampler.vocabulary), random.Random(f"{name} {family}")
    for tally, least in (
        (check_machine(case.constraint, case.sets, sampler, rng, prefixes=12, tokens=300), 3000),
        (check_recogniser(case.constraint, case.recogniser, case.texts(rng, 10, 40), sampler, rng, tokens=45, shown=3), 300),
    ):
        assert tally.wrong == []
        assert tally.undecided == []
        assert tally.checks > least
        assert 0 < tally.allowed < tally.checks


@functools.cache
def sampler_of(folder: Path) -> TokenSampler:
    return TokenSampler(fsa_compile.load_tokenizer(folder).vocabulary)


@pytest.mark.parametrize("field", ["level_row", "group_next", "arc_effect", "delta"])
def test_the_checks_find_a_changed_artifact(field: str) -> None:
    """Token sets, targets, push strings or returns that changed places: each is seen by both references."""
    pairs = [bytes(pair) for pair in itertools.product(b"abcdefghijklmnopqrstuvwxyz", repeat=2)]
    sampler = TokenSampler(every_byte([*pairs, b'{"', b'":', b"],", b"[[", b'["a']))
    case = Case.of("json", sampler.vocabulary)
    array = getattr(case.constraint, field).copy()
    used = np.flatnonzero(array)
    array[used] = case.constraint.start if field == "group_next" else array[np.roll(used, 1)]
    other = dataclasses.replace(case.constraint, **{field: array})
    rng = random.Random(1)
    assert check_machine(other, case.sets, sampler, rng, prefixes=40, tokens=300).wrong
    assert check_recogniser(other, case.recogniser, case.texts(rng, 40, 40), sampler, rng, tokens=90, shown=0).wrong


COUNTED = [
    ('start: "[" ("a" ",")~0..200 "]"', "[", "a,", "]", (0, 1, 199, 200, 201)),
    ('start: "[" (item ",")~3..150 "]"\nitem: "x" | start', "[[x,x,x,],x,", "x,", "]", (0, 1, 2, 147, 148, 149)),
    ('start: (W ";")~2..120 "."\nW: /[a-cé]{1,90}/', "aé;", "b;", ".", (0, 1, 118, 119, 120)),
    ('start: W ";" | "<" start start? ">"\nW: /[a-cé]{70,130}/', "<", "é", ";>", (68, 69, 70, 129, 130, 131)),
    ('start: (("a" "b"~100..110)~90..95 ";")~1..2', "a" + "b" * 110, "a" + "b" * 100, ";", (88, 89, 94, 95)),
]
"""Grammar, beginning, repeated part, end, how often to repeat: on both sides of the bounds."""


@pytest.mark.parametrize(("text", "begin", "part", "end", "counts"), COUNTED)
def test_large_bounds(text: str, begin: str, part: str, end: str, counts: tuple[int, ...]) -> None:
    vocabulary = every_byte([b"a,", b"a,a,a,", b"a,]", b"x,", b"x,x,x,x,x,", b"x,],", b"b;", b"b;b;.", b"\xa9\xc3\xa9", b"bbbbb", b"babb"])
    g = parse_lark(text)
    machine = machine_of(g)
    recogniser, sampler = Recogniser(g), TokenSampler(vocabulary)
    texts = [(begin + part * count).encode() for count in counts]
    for data in texts:
        whole = data + end.encode()
        assert machine.accepts(whole) == recogniser.accepts(whole), len(whole)
    texts = [data for data in texts if recogniser.start.read(data)]
    assert 0 < len(texts) <= len(counts)
    constraint = compose_machine(machine, vocabulary, source=text)
    tally = check_recogniser(constraint, recogniser, iter(texts * 2), sampler, random.Random(2), tokens=400, shown=1)
    assert tally.wrong == []
    assert tally.undecided == []
    assert tally.allowed > 0

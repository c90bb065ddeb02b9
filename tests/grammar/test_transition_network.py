"""Rules to frames: which recursion becomes a loop, which a call, and that the language stays."""

from __future__ import annotations

import itertools
import random
import warnings
from functools import partial

import pytest
from oracles.derivation import derives

from fsa_compile.automata.symbol_dfa import SymbolDfa, minimised, without_empty
from fsa_compile.errors import GrammarError, LimitError, UnsatisfiableError
from fsa_compile.grammar.conflicts import control_name, find_conflict, symbol_name
from fsa_compile.grammar.frame_subsets import FrameBuilder
from fsa_compile.grammar.frame_trim import trim
from fsa_compile.grammar.gbnf_syntax import parse_gbnf
from fsa_compile.grammar.grammar_checks import GrammarWarning, check_grammar
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.grammar_tree import Choice, Expression, Grammar, Literal, Reference, Repeat, Rule, Sequence
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.grammar.lexing.terminals import Lexicon
from fsa_compile.grammar.minimize_machine import minimal_machine
from fsa_compile.grammar.outlining import WAYS, Outlining
from fsa_compile.grammar.rule_expressions import strong_components
from fsa_compile.grammar.transition_network import Network, build_network
from fsa_compile.limits import CompileLimits, Deadline


def characters(text: str) -> Grammar:
    return parse_lark(text, mode="characters")


def network(grammar: Grammar, limits: CompileLimits | None = None, way: Outlining = WAYS[0]) -> Network:
    limits = limits or CompileLimits()
    deadline = Deadline(limits)
    return build_network(grammar, Lexicon(grammar, {}, limits, deadline), limits, deadline, outlining=way)


def check_language(grammar: Grammar, alphabet: str, longest: int, *, stacks: int = 1) -> int:
    """The machine against derivations, for all texts up to a length. Returns how many are accepted."""
    machine = machine_of(grammar, stacks=stacks)
    accepted = 0
    reached = [("", {machine.initial})]
    for n in range(longest + 1):
        for text, configurations in reached:
            expected = derives(grammar, text)
            accepted += expected
            assert machine.may_end(configurations) == expected, text
            assert not machine.deterministic or len(configurations) == 1
        live = {text for text, _ in reached}
        for letters in itertools.product(alphabet, repeat=n):
            text = "".join(letters)
            assert text in live or not derives(grammar, text), text
        reached = [
            (text + c, after) for text, before in reached for c in alphabet if (after := machine.step(before, ord(c)))
        ]  # fmt: skip
    return accepted


LOOPS = {
    "left": 'start: start "a" | "b"',
    "right": 'start: "a" start | "b"',
    "both sides": 'start: start "a" | "b" start | "a"',
    "operator between": 'start: start "a" start | "b"',
    "operator, sign and mark": 'start: start "a" start | "(" start | start ")" | "b"',
    "concatenation": 'start: start start | "a" | "b"',
    "mutual, left": 'start: x "a" | "b"\nx: start "b" | "a"',
    "mutual, right": 'start: "a" x | "b"\nx: "b" start | "a"',
    "left through a sign": 'start: start "a" x | x\nx: "(" start | "b"',
    "unit cycle": 'start: x | "a"\nx: start | "b" start',
    "left behind what may be empty": 'start: x start "a" | "b"\nx:',
    "loop over itself": 'start: start* "a"',
    "separated list of itself": 'start: "b" ("a" start)*',
}


@pytest.mark.filterwarnings("ignore::fsa_compile.grammar.grammar_checks.GrammarWarning")
@pytest.mark.parametrize("name", LOOPS)
def test_one_sided_recursion_needs_no_stack(name: str) -> None:
    grammar = characters(LOOPS[name])
    assert len(network(grammar).frames) == 1 or name == "loop over itself"
    assert check_language(grammar, "ab()", 5, stacks=1 if name != "loop over itself" else 3)


EMBEDDING = {
    "brackets": 'start: "(" start ")" | "a"',
    "brackets, left": 'start: start "a" "(" start ")" | "b"',
    "list": 'start: "(" [start ("a" start)*] ")" | "b"',
    "nullable": 'start: ["(" start ")"]',
    "two brackets": 'start: "(" start ")" start | "a" start "b" |',
    "several in a row": 'start: "(" start "a" start ")" | "b"',
    "behind what may be empty": 'start: ["a"] "(" start ")" | "b"',
    "mutual": 'start: "(" x ")" | "a"\nx: start "b" start | "b"',
    "no bracket but a middle": 'start: "a" start "b" |',
}


@pytest.mark.filterwarnings("ignore::fsa_compile.grammar.grammar_checks.GrammarWarning")
@pytest.mark.parametrize("name", EMBEDDING)
def test_embedding_is_called(name: str) -> None:
    grammar = characters(EMBEDDING[name])
    assert len(network(grammar).frames) > 1
    assert check_language(grammar, "ab()", 6) > 1


def test_the_call_is_the_bracketed_group() -> None:
    frames = network(characters('start: start "+" x | x\nx: "(" start ")" | "a"')).frames
    assert [frame.name for frame in frames] == ["start", "x#1"]
    opening, closing = frames[1].dfa.arcs[0], [q for q, final in enumerate(frames[1].dfa.final) if final]
    assert len(opening) == 1
    assert min(opening) >= 0
    assert all(not frames[1].dfa.arcs[q] for q in closing)  # and nothing after ")"


def test_a_call_waits_until_its_opening_word_is_known() -> None:
    """`case` begins like a name, so the frame is entered behind it and one stack is enough."""
    grammar = parse_lark('start: NAME | "case" start "end"\nNAME: /(?!end)[a-z]+/\n%ignore " "')
    machine = machine_of(grammar)
    assert machine.accepts(b"case case cased end end")
    assert not machine.accepts(b"case x")


IGNORING = '\nNAME: /[a-z]+/\n%ignore " "'
BESIDE = {
    "empty brackets": ('start: "x" | "(" ")" | "(" start ")"', ["()", "((()))", "(x)"], ["", "(", "(()x)"]),
    "tuples": (
        'start: "x" | "(" ")" | "(" start ")" | "(" start "," ")" | "(" start ("," start)+ ")"',
        ["()", "(x,)", "(x,(),x)", "((x))"], ["(,)", "(x,x,)"],
    ),
    "casts": (
        'start: "(" "int" ")" start | "(" start ")" | NAME | start "*" start' + IGNORING,
        ["(int) (a * b)", "(inte)", "((int)a)"], ["(int)", "(a)b"],
    ),
    "keywords around": ('start: NAME | "begin" start "end"' + IGNORING, ["begin begin a end end", "beginner"], ["begin end", "a end"]),
    "empty tags": ('start: ("t" | "<b>" start "</b>" | "<br/>")*', ["", "<b>t<br/></b>t", "<b></b>"], ["<br></br>", "</b>"]),
    "a cut before the bracket that closes": ('start: "x" | "[" start ";" "]"', ["[[x;];]"], ["[x]", "[x;"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_calls_beside_what_begins_alike(name: str) -> None:
    text, accepted, refused = BESIDE[name]
    machine = machine_of(parse_lark(text, mode="longest" if "NAME" in text else "characters"))
    assert machine.deterministic
    assert [t for t in accepted if not machine.accepts(t.encode())] == []
    assert [t for t in refused if machine.accepts(t.encode())] == []


def test_what_brackets_leave_without_recursion_is_not_called() -> None:
    text = 'start: x | start "and" x\nx: y | y "between" y "and" y\ny: NAME | "(" start ")" | "case" start "end"'
    assert [frame.name for frame in network(parse_lark(text + IGNORING)).frames] == ["start", "y#1", "y#2"]
    every = network(parse_lark(text + IGNORING), way=Outlining(sparing=False)).frames
    assert [frame.name for frame in every] == ["start", "x#1", "y#1", "y#2"]


@pytest.mark.parametrize("way", WAYS)
def test_every_choice_of_calls_keeps_the_language(way: Outlining) -> None:
    limits, done = CompileLimits(), 0
    for seed in range(30):
        grammar = random_rules(random.Random(seed))
        deadline = Deadline(limits)
        lexicon = Lexicon(grammar, {}, limits, deadline)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrammarWarning)
            try:
                check_grammar(grammar)
                frames = build_network(grammar, lexicon, limits, deadline, outlining=way)
                builder = FrameBuilder(frames, longest=False, stacks=3, limits=limits, deadline=deadline)
                tables = builder.build()
                trim(tables, builder, grammar.text)
            except (GrammarError, UnsatisfiableError):
                continue
        if find_conflict(tables, builder, 3):
            continue
        machine = minimal_machine(tables, lexicon.byte_class, (), partial(control_name, builder), partial(symbol_name, builder))
        for n in range(4):
            for letters in itertools.product("ab()", repeat=n):
                text = "".join(letters)
                assert machine.accepts(text.encode()) == derives(grammar, text), (seed, text)
        done += 1
    assert done >= 8


def random_expression(rng: random.Random, depth: int, names: list[str]) -> Expression:
    kind = rng.random()
    if depth == 0 or kind < 0.25:
        return Reference(rng.choice(names), 0, 1) if rng.random() < 0.4 else Literal(rng.choice(["a", "b", "(", ")", "ab"]), 0, 1)
    parts = tuple(random_expression(rng, depth - 1, names) for _ in range(rng.randint(2, 3)))
    if kind < 0.65:
        return Sequence(parts, 0, 1)
    if kind < 0.85:
        return Choice((*parts, Sequence((), 0, 1)) if rng.random() < 0.2 else parts, 0, 1)
    low = rng.randint(0, 1)
    return Repeat(parts[0], low, rng.choice([None, low + 1]), 0, 1)


def random_rules(rng: random.Random) -> Grammar:
    names = ["r", "s", "t"][: rng.randint(1, 3)]
    rules = {
        n: Rule(n, Choice(tuple(random_expression(rng, 2, names) for _ in range(rng.randint(1, 3))), 0, 1), False, 0, 0, 1)
        for n in names
    }
    return Grammar(rules=rules, start="r", ignore=(), mode="characters", text="x")


@pytest.mark.parametrize("stacks", [1, 3])
def test_random_rules(stacks: int, exhaustive: bool) -> None:
    """Every grammar is refused with an error, or its machine has its language."""
    done = 0
    for seed in range(70 if exhaustive else 20):
        grammar = random_rules(random.Random(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrammarWarning)
            try:
                check_language(grammar, "ab()", 4, stacks=stacks)
            except (GrammarError, UnsatisfiableError):
                continue
        done += 1
    assert done >= (20 if exhaustive else 5)


def test_gbnf_right_recursion() -> None:
    grammar = parse_gbnf('root ::= ws "a" root | "b" ws\nws ::= | "(" ws')
    check_language(grammar, "ab(", 5, stacks=2)


def test_no_finite_text() -> None:
    with pytest.raises(UnsatisfiableError, match="start has no finite text: start needs x needs start"):
        machine_of(characters('start: "a" x\nx: start "b"'))
    with pytest.raises(GrammarError, match=r"rule x has no finite text.*\(line 2, column 1\)"):
        machine_of(characters('start: "a" | x\nx: "b" x'))


def test_warnings() -> None:
    with pytest.warns(GrammarWarning, match=r"start does not need these rules: x \(line 2\)"):
        machine_of(characters('start: "a"\nx: "b"'))
    with pytest.warns(GrammarWarning, match=r"start → x → start \(line 1\) is a circle"):
        machine_of(characters('start: x | "a"\nx: start'))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine_of(characters('start: x | "a"\nx: "b" start'))


def test_rules_that_multiply_meet_a_limit() -> None:
    text = "\n".join(["start: r0", *(f"r{i}: r{i + 1} r{i + 1}" for i in range(20)), 'r20: "a" | "b"'])
    with pytest.raises(LimitError, match="max_states"):
        machine_of(characters(text), limits=CompileLimits(max_states=500))


def test_components_come_after_what_they_need() -> None:
    assert strong_components({"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}) == [{"d"}, {"b", "c"}, {"a"}]


def test_symbol_automata() -> None:
    loop = SymbolDfa([{7: 1}, {7: 0, 8: 2}, {}], [True, True, False])
    assert minimised(loop) == SymbolDfa([{7: 0}], [True])
    assert without_empty(SymbolDfa([{7: 0}], [True])) == SymbolDfa([{7: 1}, {7: 1}], [False, True])

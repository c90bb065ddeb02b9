"""Automata in which names are written out are those of subsets of states for each letter of all names."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import tracemalloc

import numpy as np
import pytest
from protocols.test_known_parts import NEAR
from protocols.test_sketches import random_protocol, random_vocabulary
from protocols.turns import small_vocabulary

from fsa_compile import PROTOCOLS, ConstraintError, LimitError, compile_response
from fsa_compile import protocols as turns
from fsa_compile.formats import format_machines, known_forms, text_automaton
from fsa_compile.formats.tree import FreeText, Joined, Named, OneOf, Parts, Regex, Repeated, Text, Token, Value
from fsa_compile.json_schema import schema_machine
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.protocols import Section


@pytest.fixture
def ways(monkeypatch):
    """Compares both ways to make each automaton; of each, whether names were written out in it."""
    known_forms._FORMS.clear()
    monkeypatch.setattr(turns, "_KEPT", type(turns._KEPT)(1 << 20, lambda made: 1 << 20))
    make, write = text_automaton.text_automaton, text_automaton.written_out
    found, written = [], []

    def noted(*given):
        made = write(*given)
        written.append(made is not None)
        return made

    def both(*given, **asked):
        written.clear()
        made = make(*given, **asked)
        found.append(written == [True])
        with monkeypatch.context() as patched:
            patched.setattr(text_automaton, "one_name", lambda root: None)
            check_equal(made, make(*given, **asked))
        return made

    monkeypatch.setattr(text_automaton, "written_out", noted)
    monkeypatch.setattr(format_machines, "text_automaton", both)
    return found


def check_equal(made, whole):
    for name in ("table", "byte_class", "final", "left"):
        one, other = getattr(made, name), getattr(whole, name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other), name
    for name in ("start", "specials", "labels", "is_sketch"):
        assert getattr(made, name) == getattr(whole, name), name
    assert list(made.calls.items()) == list(whole.calls.items())
    schemas = [[(id(value.machine), value.start) for value in one.schemas] for one in (made, whole)]
    assert schemas[0] == schemas[1]


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda protocol: protocol.name)
def test_names_of_published_protocols_are_written_out(protocol, ways):
    vocabulary = small_vocabulary(protocol, special=True)
    compile_response(vocabulary, protocol=protocol, tools=NEAR)
    compile_response(vocabulary, protocol=protocol, tools=NEAR[:3], tool_choice="required", parallel_tool_calls=False)
    assert ways == [True, True]


def test_builtin_tools_and_answers_are_beside_names(ways):
    vocabulary = small_vocabulary(PROTOCOLS["llama3"], special=True)
    compile_response(vocabulary, protocol="llama3", tools=[*NEAR, "brave_search"], tool_choice="required")
    compile_response(vocabulary, protocol="llama3", tools=["code_interpreter", *NEAR])
    compile_response(vocabulary, protocol="llama3", tools=NEAR, response="[a-g]{2}")
    assert ways[0]
    assert len(ways) == 3


def test_states_are_bounded(ways):
    vocabulary = small_vocabulary(PROTOCOLS["mistral"], special=True)
    with pytest.raises(ConstraintError, match="max_states"):
        compile_response(vocabulary, protocol="mistral", tools=NEAR, limits=CompileLimits(max_states=100))


MACHINES = [schema_machine({"enum": [value]}) for value in range(3)]
VALUES = [Value(machine, start, "#") for machine in MACHINES for start in (machine.start, machine.start + 1)]


def random_tree(rng):
    """A tree with names: several places of the same ones, other ways to go on beside them, answers that may not begin like calls."""
    names = rng.sample(["a", "b", "ab", "aba", "ba", "\u00e9"], rng.randint(1, 4))
    middles = [rng.choice(["", "(", "<", "b", "<b", "\x01"]) for _ in range(2)]
    values = rng.sample(VALUES, len(names)) if rng.random() < 0.8 else rng.choices(VALUES, k=len(names))

    def behind(value):
        middle = middles[rng.random() < 0.1]
        optional = rng.choice([(), (Repeated(Text(rng.choice("#a")), 0, 1),)])
        return (*optional, Text(middle)), value

    def named():
        same, _ = behind(None)
        others = rng.sample(VALUES, len(names)) if rng.random() < 0.1 else values
        branches = [(name, Parts((*(behind(None)[0] if rng.random() < 0.03 else same), value))) for name, value in zip(names, others)]
        return Named(tuple(branches[: len(names) - (rng.random() < 0.1)] or branches))

    def leads():
        before, after = rng.choice(["<", "<<", "a", ""]), middles[0] + rng.choice("{(")
        some = names if rng.random() < 0.8 else names[:1]
        return tuple((before if rng.random() < 0.97 else "b", name, after) for name in some) if rng.random() < 0.8 else ()

    def some(depth):
        kind = rng.randrange(9 if depth else 4)
        if kind < 2:
            return Parts((Text(rng.choice(["", "<", "<<", "a"])), named(), Text(rng.choice(["", ">", "}"]))))
        if kind == 2:
            return rng.choice([Text(rng.choice(["<a", "b", "\x01", ""])), Regex(rng.choice(["[ab]*", "\x01", "[^<]", "<?"]), "#")])
        if kind == 3:
            return rng.choice([FreeText(rng.choice([(), (), ("ab",)]), "#", leads()), FreeText(("<",), "#"), VALUES[0], Token(frozenset({rng.randrange(2)}))])
        parts = tuple(some(depth - 1) for _ in range(rng.randint(1, 3)))
        if kind < 6:
            return OneOf(parts)
        return Parts(parts) if kind == 6 else Joined(parts[0], Text(",")) if kind == 7 else Repeated(parts[0], 0, rng.choice([2, None]))

    if rng.random() < 0.03:
        return OneOf((Text("x"), Parts((named(), OneOf(())))))  # no name leads to an end
    return OneOf((some(2), named(), FreeText(rng.choice([(), (), ("ab",)]), "#", leads()))) if rng.random() < 0.5 else Parts((some(2), some(1)))


@pytest.mark.sampled(60)
@pytest.mark.parametrize("seed", range(300))
def test_random_trees(seed, monkeypatch):
    rng = random.Random(seed)
    for _ in range(10):
        root, sketch, found = random_tree(rng), rng.random() < 0.6, []
        for reader in (text_automaton.one_name, lambda root: None):
            monkeypatch.setattr(text_automaton, "one_name", reader)
            limits = CompileLimits()
            found.append(text_automaton.text_automaton(root, limits, Deadline(limits), sketch=sketch))
            monkeypatch.undo()
        check_equal(*found)


@pytest.mark.exhaustive
@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", range(1000))
def test_names_of_random_protocols(seed, ways):
    rng = random.Random(seed)
    protocol = random_protocol(rng)
    if seed % 2:  # a token marks its calls
        each = rng.random() < 0.5
        begins = {"all_begin": "", "begin": "<t>" + protocol.calls.begin} if each else {"all_begin": "<t>"}
        calls = dataclasses.replace(protocol.calls, preamble=rng.choice([None, Section()]), **begins)
        protocol = dataclasses.replace(protocol, calls=calls)
    names = ["a", "ax", "a-x", "x", "xa.a", "aaa", "a-"]
    if protocol.calls.arguments.is_call:
        names = [name.replace("-", "_") for name in names]
    names = rng.sample(list(dict.fromkeys(names)), rng.randint(1, 5))
    tools = [{"name": name, "parameters": rng.choice(NEAR)["parameters"]} for name in names]
    with contextlib.suppress(ConstraintError):  # of what follows the automaton
        compile_response(random_vocabulary(protocol, names, rng), protocol=protocol, tools=tools)
    assert ways or seed % 2


def test_states_are_counted_before_memory_is_taken():
    names = [f"n{number}" for number in range(1000)]
    root = Named(tuple((name, Parts((Text("-" * 3000), VALUES[0]))) for name in names))
    limits = CompileLimits(max_states=100_000)
    tracemalloc.start()
    with pytest.raises(LimitError, match="max_states"):
        text_automaton.text_automaton(root, limits, Deadline(limits))
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 32 << 20

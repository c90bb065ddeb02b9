"""Classes of stacks, and machines whose counters are written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fsa_compile import CompileLimits, compile_grammar
from fsa_compile.artifact.bitmask import words_of
from fsa_compile.automata.pushdown import UNCOUNTED
from fsa_compile.automata.unfold_counters import without_registers
from fsa_compile.canonical.stacks.stack_classes import EMPTY, StackClasses, alike, classified
from fsa_compile.canonical.stacks.stack_edges import StackEdges
from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.errors import LimitError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary import Vocabulary

LIMITS = CompileLimits()
COUNTING = 'start: "(" item~40..60 ")"\nitem: "a" | "[" [start] "b"~30..50 "]"'


def test_splitting() -> None:
    """Cells of one class that agree stay together, and a new class inherits what may lie on top of the one that it was part of."""
    classes = StackClasses(["x", "y", "x"])
    first, second = classes.of((0, EMPTY)), classes.of((1, EMPTY))
    assert (classes.count, classes.of((2, EMPTY))) == (3, first)
    assert first != second
    cells = [(0, EMPTY), (1, first), (0, first), (0, second)]
    for cell in cells:
        classes.of(cell)
    assert classes.split(cells, ["low", None, "high", "high"])
    new = classes.of((0, first))
    assert (classes.count, new, classes.of((0, second))) == (4, 3, new)
    assert classes.of((0, EMPTY)) == first
    assert classes.of((1, new)) == classes.of((1, first)) == second
    assert classes.of((0, new)) == classes.of((0, first))
    assert not classes.split(cells, ["low", None, "high", "high"])


def test_splitting_further() -> None:
    """By one more of the topmost cells; where that is the same, one by one; where there is one cell only, the classes below."""
    classes = StackClasses(["x", "y"])
    x, y = classes.of((0, EMPTY)), classes.of((1, EMPTY))
    cells = [(0, x), (0, y), (1, x), (0, EMPTY)]
    assert classes.split_further(cells, {x})
    assert len({classes.of(cell) for cell in cells}) == 4  # over x, over y, over nothing; and the other symbol
    alone = classes.of((0, y))
    assert [cell for cell in cells if classes.of(cell) == alone] == [(0, y)]
    cells.append((1, EMPTY))
    before = classes.count
    assert classes.split_further(cells, {alone})  # of y, which lies below
    assert classes.count > before
    assert classes.of((1, x)) != classes.of((1, EMPTY))
    assert not classes.split_further(cells, {EMPTY})


@pytest.mark.parametrize("grammar", ['start: "[" [start ("," start)*] "]" | "a"', 'start: "(" start ")" | "[" start "]" | "a"'])
def test_what_nodes_know_is_so(grammar: str) -> None:
    """Every node of a classified constraint is one of the constraint, in one class; its tokens and pops are the same."""
    letters = sorted({ord(ch) for ch in "[](),a"})
    tokens = [bytes([b]) for b in range(256)] + [b"[[", b"]]", b"],[", b"))", b"]],", b""]
    vocabulary = Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1])
    constraint = compile_grammar(grammar, vocabulary)
    classes = StackClasses(alike(StackEdges(constraint), words_of(np.array(letters), constraint.vocab_size)))
    for _ in range(3):
        found = classified(constraint, classes, 10_000, Deadline(LIMITS))
        assert found is not None
        own = found.constraint
        walk = [(constraint.walk(), own.start, [])]
        (first,) = walk[0][0].configurations
        assert len(found.classes) == own.num_nodes
        stack = own.push_symbol[own.push_offset[own.initial_push] : own.push_offset[own.initial_push + 1]].tolist()
        assert [found.cells[symbol][0] for symbol in stack] == [symbol for symbol, _ in first.stack]
        below = EMPTY
        for symbol in stack:
            assert found.cells[symbol][1] == below
            below = classes.of(found.cells[symbol])
        assert found.classes[own.start] == below
        edges = StackEdges(own)
        for node in range(1, own.num_nodes):
            for symbol in range(len(found.cells)):
                inner = edges.after_pop(node, symbol)
                if inner:
                    assert classes.of(found.cells[symbol]) == found.classes[node]
                    assert found.cells[symbol][1] == found.classes[inner]
            for target in edges.links[node]:
                of = found.classes[node]
                for symbol in edges.strings[int(edges.push_of[target])]:
                    assert found.cells[symbol][1] == of
                    of = classes.of(found.cells[symbol])
                assert found.classes[int(edges.base[target])] == of
        assert classes.split_further(found.cells, set(found.classes) - {EMPTY})
    assert classified(constraint, classes, 3, Deadline(LIMITS)) is None


def test_counters_written_out() -> None:
    machine = machine_of(parse_grammar(COUNTING), stacks=1, specials={}, limits=LIMITS, deadline=Deadline(LIMITS))
    assert (machine.bounds != UNCOUNTED).any()
    written_out = without_registers(machine, LIMITS, Deadline(LIMITS))
    assert (written_out.bounds == UNCOUNTED).all()
    assert not written_out.entry_add.any()
    inner = b"[" + b"b" * 30 + b"]"
    nested = b"[(" + b"a" * 39 + inner + b")" + b"b" * 49 + b"]"
    for items, item in itertools.product((38, 39, 40, 58, 59, 60), (b"a", inner, nested, b"[" + b"b" * 29 + b"]", nested + b"b")):
        text = b"(" + b"a" * items + item + b")"
        assert written_out.accepts(text) == machine.accepts(text), text
    assert written_out.accepts(b"(" + b"a" * 39 + nested + b")")
    plain = machine_of(parse_grammar('start: "(" start ")" | "a"'), stacks=1, specials={}, limits=LIMITS, deadline=Deadline(LIMITS))
    assert without_registers(plain, LIMITS, Deadline(LIMITS)) is plain
    with pytest.raises(LimitError, match="max_states"):
        without_registers(machine, CompileLimits(max_states=50), Deadline(LIMITS))

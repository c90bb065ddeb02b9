"""Three ways to the minimal automaton: merging from the back, refinement, OpenFst."""

from __future__ import annotations

import pynini
import pytest

from fsa_compile.automata import minimize as module
from fsa_compile.automata.minimize import letter_classes, minimize
from fsa_compile.automata.openfst import to_pynini
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.glushkov import Positions
from fsa_compile.patterns.python_syntax import parse
from fsa_compile.patterns.subset_construction import determinize

LIMITS = CompileLimits()
PATTERNS = ["(?:ab|cb)*", "(?:a{2}|a{3})+", r"\w+( \w+)*", "(?:[ab]c|dc){1,9}", "x*(?:yx*)*", "(?:red|bed|fed)+", "[a-z ]{5,}",
            "(?:é|è)x|êx", "(?:(?:a|b)(?:c|d)?)*", "a{0,30}b|b", "(?:.a|b)*"]  # fmt: skip


def automaton(pattern):
    positions = Positions(parse(pattern), LIMITS, Deadline(LIMITS))
    return determinize(positions, LIMITS, Deadline(LIMITS)), positions.acyclic


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("passes", "refined"), [(4, 48), (4, 0), (1, 48), (0, 1000), (0, 0)])
def test_every_way_gives_the_minimal_automaton(pattern, passes, refined, monkeypatch):
    dfa, acyclic = automaton(pattern)
    monkeypatch.setattr(module, "_MAX_PASSES", passes)
    monkeypatch.setattr(module, "_MAX_REFINED", refined)
    small = to_pynini(to_byte_dfa(minimize(dfa, acyclic=acyclic), LIMITS))
    full = to_pynini(to_byte_dfa(dfa, LIMITS))
    assert pynini.equivalent(small, full)
    assert small.num_states() == full.minimize().num_states()


def test_acyclic_is_known():
    assert automaton("a{2,5}|b?")[1]
    assert not automaton("a{2,}|b?")[1]


def test_letter_classes():
    has, letters = letter_classes([0b0110, 0b1100, 1 << 130 | 0b1000], 4)
    assert sorted(letters) == [0b0010, 0b0100, 0b1000, 1 << 130]
    for mask, row in zip([0b0110, 0b1100, 1 << 130 | 0b1000], has):
        assert sum(c for c, inside in zip(letters, row) if inside) == mask

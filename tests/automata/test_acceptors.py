"""Automata made elsewhere: the same language after conversion, and a sentence for each thing that cannot be converted."""

from __future__ import annotations

import random

import interegular
import numpy as np
import pynini
import pytest
from oracles.text_walks import accepted_texts, all_texts, is_trim, mutations

from fsa_compile.automata.openfst import to_pynini
from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError
from fsa_compile.languages.constructors import acceptor, regex
from fsa_compile.limits import CompileLimits


def test_pynini_bytes():
    dfa = acceptor((pynini.accep("abc") | pynini.accep("aé")).closure()).to_byte_dfa()
    assert [dfa.accepts(t.encode()) for t in ("", "abc", "aéabc", "ab", "é")] == [True, True, True, False, False]
    assert is_trim(dfa)
    assert dfa.num_states == to_pynini(dfa).minimize().num_states() + 1


def test_pynini_byte_zero_is_label_256():
    fst = pynini.Fst()
    for _ in range(3):
        fst.add_state()
    fst.set_start(0)
    fst.add_arc(0, pynini.Arc(256, 256, 0, 1))
    fst.add_arc(1, pynini.Arc(255, 255, 0, 2))
    fst.add_arc(0, pynini.Arc(0, 0, 0, 2))  # epsilon
    fst.set_final(2)
    dfa = acceptor(fst).to_byte_dfa()
    assert [dfa.accepts(b) for b in (b"\x00\xff", b"", b"\xff", b"\x00")] == [True, True, False, False]


def test_pynini_code_points():
    fst = pynini.accep("日x", token_type="utf8") | pynini.accep("é", token_type="utf8").closure(1)
    dfa = acceptor(fst, "code points").to_byte_dfa()
    assert [dfa.accepts(t.encode()) for t in ("日x", "ééé", "", "日")] == [True, True, False, False]


def test_weights_are_refused_and_nothing_is_changed():
    """They would say which texts are preferred, and a constraint says what is allowed; the way out that the error names works."""
    weighted = pynini.accep("a", weight=3) | pynini.accep("ab", weight=1)
    with pytest.raises(ConstraintError, match="rmweight"):
        acceptor(weighted)
    fst = pynini.arcmap(weighted, map_type="rmweight")
    before = fst.num_states()
    dfa = acceptor(fst).to_byte_dfa()
    assert dfa.accepts(b"a")
    assert dfa.accepts(b"ab")
    assert fst.num_states() == before
    # Two readings of one text with loops of different weight cannot be determinised as weighted automata.
    loops = pynini.accep("a", weight=1).closure() | pynini.accep("a", weight=2).closure()
    assert acceptor(pynini.arcmap(loops, map_type="rmweight")).to_byte_dfa().num_states == 2


@pytest.mark.parametrize("pattern", [r"[^a]*(ab|é)", r"\d{2,3}[a-c]?", "(a|b)*abb", "x.y", "[^日]+"])
def test_interegular(pattern):
    machine = interegular.parse_pattern(pattern).to_fsm()
    dfa = acceptor(machine, "code points").to_byte_dfa()
    rng = random.Random(1)
    seen = 0
    for text in accepted_texts(dfa, rng, 150, 12):
        seen += 1
        assert machine.accepts(text)
        for other in mutations(text, rng, 5):
            assert machine.accepts(other) == dfa.accepts(other.encode())
    assert seen > 5


def test_interegular_needs_code_points():
    with pytest.raises(ConstraintError, match="reads characters, not bytes"):
        acceptor(interegular.parse_pattern("a").to_fsm())


def test_tables():
    table = {"s": {"a": ["s", "t"], "é": "s", None: "u"}, "t": {"日": "u"}, "u": {}}
    dfa = acceptor(("s", ["u"], table), "code points").to_byte_dfa()
    judge = regex("[aé]*(?:a日)?").to_byte_dfa()
    for text in all_texts("aé日", 4):
        assert dfa.accepts(text.encode()) == judge.accepts(text.encode())
    numbers = acceptor((0, [1], {0: {0: 1, 255: 0, b"\x80": 1, "a": 0}})).to_byte_dfa()
    assert [numbers.accepts(b) for b in (b"\0", b"\xff\xff\x80", b"a\0", b"a")] == [True, True, True, False]


def test_arrays():
    table = np.full((2, 256), -1)
    table[0, 0] = 1
    table[1, 255] = 0
    dfa = acceptor((0, [0], table)).to_byte_dfa()
    assert [dfa.accepts(b) for b in (b"", b"\0\xff", b"\0", b"\0\xff\0\xff")] == [True, True, False, True]
    assert acceptor(dfa).to_byte_dfa().num_states == dfa.num_states


def test_raw_bytes_are_kept():
    dfa = acceptor((0, [1], {0: dict.fromkeys(range(256), 1)})).to_byte_dfa()
    assert all(dfa.accepts(bytes((b,))) for b in range(256))


@pytest.mark.parametrize(
    ("automaton", "alphabet", "says"),
    [
        (3, "bytes", "a int is no automaton"),
        ((0, [0]), "bytes", "a tuple is no automaton"),
        (pynini.accep("a"), "letters", "unknown alphabet 'letters'"),
        (pynini.cross("a", "b"), "bytes", "is a transducer"),
        (pynini.accep("日", token_type="utf8"), "bytes", r"label 26085 is not one of the bytes \(byte 0 is label 256\)"),
        ((0, [0], {0: {0xD800: 0}}), "code points", "U.D800 is a surrogate"),
        ((0, [0], {0: {0x110000: 0}}), "code points", "symbol 1114112 is not one of the code points"),
        ((0, [9], {0: {"a": 0}}), "bytes", "final state 9 occurs in no transition"),
        ((0, [0], {0: {"ab": 0}}), "bytes", "state 0 has the symbol 'ab'"),
        ((0, [0], {0: {-4: 0}}), "bytes", "state 0 has the symbol -4"),
        ((0, [0], {0: {"é": 0}}), "bytes", "symbol 'é' of state 0 does not fit the alphabet bytes"),
        ((0, [0], {0: [1]}), "bytes", "transitions of state 0 are a list"),
        ((0, [0], [[0]]), "bytes", "transition table is a list"),
        ((0, [0], np.zeros((2, 2))), "bytes", "shape .2, 2. and dtype float64"),
        ((0, [0], np.full((2, 3), 5)), "bytes", "leads to state 5 of 2"),
        ((0, [7], np.full((2, 3), -1)), "bytes", "state 7 is not one of the 2 states"),
        ((0, [0], np.zeros((1, 300), int)), "bytes", "symbol 256 is not one of the bytes"),
    ],
)
def test_bad_automata(automaton, alphabet, says):
    with pytest.raises(ConstraintError, match=says):
        acceptor(automaton, alphabet)


def test_automata_without_members():
    for automaton in (pynini.Fst(), (0, [], {0: {"a": 0}}), (0, [1], {0: {"a": 0}, 1: {"b": 1}})):
        with pytest.raises(UnsatisfiableError, match="the automaton accepts no string"):
            acceptor(automaton).to_byte_dfa()


def test_determinization_is_limited():
    table = {0: {"a": [0, 1], "b": 0}, **{i: {"a": i + 1, "b": i + 1} for i in range(1, 25)}, 25: {}}
    with pytest.raises(LimitError, match="max_states=5,000"):
        acceptor((0, [25], table)).to_byte_dfa(CompileLimits(max_states=5000))
    with pytest.raises(LimitError, match="max_states=3"):
        acceptor(pynini.accep("abcdef")).to_byte_dfa(CompileLimits(max_states=3))


@pytest.mark.parametrize(("finals", "says"), [(1, "final states are 1, not a list"), ([[1]], r"final state \[1\] occurs in no")])
def test_final_states_that_are_no_list(finals, says):
    with pytest.raises(ConstraintError, match=says):
        acceptor((0, finals, {0: {"a": 1}}))

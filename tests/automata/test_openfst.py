"""Binary conversion against arc-by-arc construction."""

from __future__ import annotations

import numpy as np
import pynini
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsa_compile.automata import labels
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.openfst import (
    Arcs,
    arcs_from_fst,
    byte_dfa_from_arcs,
    determinize,
    fst_from_arcs,
    to_pynini,
    ways_to_compile,
)
from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.languages.constructors import regex
from fsa_compile.limits import CompileLimits


def by_hand(dfa: ByteDfa) -> pynini.Fst:
    fst = pynini.Fst()
    for _ in range(dfa.num_states - 1):
        fst.add_state()
    fst.set_start(dfa.start - 1)
    for q in range(1, dfa.num_states):
        if dfa.final[q]:
            fst.set_final(q - 1)
        for byte in range(256):
            if t := dfa.step(q, byte):
                label = labels.byte_label(byte)
                fst.add_arc(q - 1, pynini.Arc(label, label, 0, t - 1))
    return fst


@pytest.mark.parametrize("pattern", ["abc|abd", r"\x00*\xff?", "(?s).*", "[a-c]{2,5}x*", "", "é|日|a"])
def test_to_pynini_and_back(pattern):
    dfa = regex(pattern).to_byte_dfa()
    fst = to_pynini(dfa)
    assert fst == by_hand(dfa)
    back = byte_dfa_from_arcs(arcs_from_fst(determinize(fst, CompileLimits())))
    assert pynini.equivalent(to_pynini(back), fst)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 5)), max_size=20),
    st.integers(0, 63),
)
def test_arrays_survive(states, arcs, finals):
    arcs = sorted((s % states, a, t % states) for s, a, t in arcs)
    source, label, target = np.array(arcs, np.int64).reshape(-1, 3).T
    final = np.array([bool(finals >> q & 1) for q in range(states)])
    fst = fst_from_arcs(Arcs(0, final, source, label, target))
    assert fst.verify()
    assert fst.num_states() == states
    assert [(q, a.ilabel, a.nextstate) for q in fst.states() for a in fst.arcs(q)] == arcs
    back = arcs_from_fst(fst)
    assert back.start == 0
    for got, want in zip(back[1:], (final, source, label, target)):
        np.testing.assert_array_equal(got, want)


def test_nothing():
    nothing = ByteDfa(np.zeros((1, 256), np.int32), np.arange(256, dtype=np.uint8), np.zeros(1, bool), 0)
    assert to_pynini(nothing).num_states() == 0


def test_refusals():
    with pytest.raises(LimitError, match="max_states=2"):
        determinize(pynini.accep("abc"), CompileLimits(max_states=2))
    with pytest.raises(ConstraintError, match="over b'log'"):
        arcs_from_fst(pynini.Fst("log"))


def test_label_space():
    assert labels.EPSILON == 0
    assert {labels.label_byte(labels.byte_label(b)) for b in range(256)} == set(range(256))
    assert min(map(labels.byte_label, range(256))) == labels.FIRST_BYTE
    assert max(map(labels.byte_label, range(256))) == labels.LAST_BYTE
    assert labels.label_token(labels.token_label(128_000)) == 128_000
    assert labels.token_label(0) == labels.FIRST_TOKEN


def test_what_to_do_without_pynini():
    """In the words of each platform."""
    assert "conda install -c conda-forge pynini" in ways_to_compile("darwin")
    assert "WSL" in ways_to_compile("win32")
    assert all("CompiledConstraint.load(path)" in ways_to_compile(platform) for platform in ("linux", "darwin", "win32"))

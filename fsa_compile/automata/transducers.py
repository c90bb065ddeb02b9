"""Transducers over bytes, and the image of a byte automaton under one. Which step needs which is told elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import pynini
import pywrapfst

from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.labels import EPSILON, byte_label
from fsa_compile.automata.openfst import arcs_from_fst, byte_dfa_from_arcs, determinize, to_pynini
from fsa_compile.automata.utf8_classes import BAD, utf8_classes
from fsa_compile.limits import CompileLimits, Deadline

NOTHING = ByteDfa(np.zeros((1, 256), np.int32), np.arange(256, dtype=np.uint8), np.zeros(1, bool), 0)
"""The automaton that accepts no text."""


def image(dfa: ByteDfa, transducer: pynini.Fst, limits: CompileLimits, deadline: Deadline, *, inverse: bool = False) -> ByteDfa:
    """What a transducer makes of the texts of an automaton; with `inverse`, the texts of which it makes these."""
    deadline.check("Applying a normalizer")
    accepted = to_pynini(dfa)
    if inverse:
        composed = pynini.compose(transducer.copy().arcsort("olabel"), accepted).project("input")
    else:
        composed = pynini.compose(accepted, transducer).project("output")
    small = determinize(composed, limits, deadline)
    return byte_dfa_from_arcs(arcs_from_fst(small)) if small.num_states() else NOTHING


class _Builder:
    """An FST whose arcs are written one by one; state 0 is the start."""

    def __init__(self, states: int) -> None:
        self.fst = pynini.Fst()
        self.fst.add_states(states)
        self.fst.set_start(0)

    def arc(self, source: int, read: int | None, write: bytes, target: int) -> None:
        """Reads a byte or nothing, writes any number of bytes."""
        first = EPSILON if read is None else byte_label(read)
        for byte in write[:-1]:
            between = self.fst.add_state()
            self.fst.add_arc(source, pywrapfst.Arc(first, byte_label(byte), 0, between))
            source, first = between, EPSILON
        self.fst.add_arc(source, pywrapfst.Arc(first, byte_label(write[-1]) if write else EPSILON, 0, target))

    def copied(self, source: int, nodes: np.ndarray, target: int, *, write: bool = True) -> None:
        """Reads one character of an automaton of characters (see `utf8_classes`), and writes it or not."""
        number = [source] + [self.fst.add_state() for _ in range(len(nodes) - 1)]
        for node, row in enumerate(nodes):
            for byte in np.flatnonzero(row != BAD).tolist():
                after = int(row[byte])
                self.arc(number[node], byte, bytes([byte]) if write else b"", target if after < 0 else number[after])

    def done(self) -> pynini.Fst:
        return self.fst.arcsort("ilabel")


def _nodes(chosen: np.ndarray) -> np.ndarray:
    """The automaton of the characters that are chosen, bool[0x110000]."""
    chosen = chosen.copy()
    chosen[0xD800:0xE000] = False
    return utf8_classes(np.where(chosen, 0, -1))


def character_map(changed: Mapping[int, str]) -> pynini.Fst:
    """Replaces some characters by texts, each by itself, and keeps the others."""
    builder = _Builder(1)
    kept = np.ones(0x110000, bool)
    kept[list(changed)] = False
    builder.copied(0, _nodes(kept), 0)
    inside: dict[bytes, int] = {b"": 0}
    for point, text in changed.items():
        data = chr(point).encode()
        for end in range(1, len(data)):
            if data[:end] not in inside:
                inside[data[:end]] = builder.fst.add_state()
                builder.arc(inside[data[: end - 1]], data[end - 1], b"", inside[data[:end]])
        builder.arc(inside[data[:-1]], data[-1], text.encode(), 0)
    builder.fst.set_final(0)
    return builder.done()


def replacement(old: bytes, new: bytes) -> pynini.Fst:
    """Replaces every occurrence of a byte string from the left, none of which overlap.

    State k has read, and not yet written, the first k bytes of `old` (Knuth, Morris and Pratt 1977).
    """
    builder = _Builder(len(old))
    end = builder.fst.add_state()
    builder.fst.set_final(end)
    for k in range(len(old)):
        builder.arc(k, None, old[:k], end)
        for byte in range(256):
            held = old[:k] + bytes([byte])
            if held == old:
                builder.arc(k, byte, new, 0)
                continue
            keep = next(n for n in range(len(held), -1, -1) if n < len(old) and held.endswith(old[:n]))
            builder.arc(k, byte, held[: len(held) - keep], keep)
    return builder.done()


@functools.cache
def stripped(characters: frozenset[int], left: bool, right: bool, *, joined: bool = False) -> pynini.Fst:
    """Removes some characters at the ends of a text; with `joined`, also all but one of every run of them inside it.

    States: 0 the start, 1 behind a character that stays, 2 behind removable ones that stay, 3 in those removed at the end.
    """
    start, behind, gap, tail = range(4)
    removable = np.zeros(0x110000, bool)
    removable[sorted(characters)] = True
    builder = _Builder(4)
    space, other = _nodes(removable), _nodes(~removable)
    builder.copied(start, other, behind)
    builder.copied(start, space, start if left else gap, write=not left)
    builder.copied(behind, other, behind)
    builder.copied(behind, space, gap)
    builder.copied(gap, other, behind)
    builder.copied(gap, space, gap, write=not joined)
    finals = [start, behind]
    if right:
        builder.copied(behind, space, tail, write=False)
        if not left:
            builder.copied(start, space, tail, write=False)
        builder.copied(tail, space, tail, write=False)
        finals.append(tail)
    else:
        finals.append(gap)
    for state in finals:
        builder.fst.set_final(state)
    return builder.done()


def prepended(text: bytes) -> Callable[[ByteDfa, CompileLimits, Deadline], ByteDfa]:
    """Puts a text before all others but the empty one."""

    def of(dfa: ByteDfa, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
        builder = _Builder(2)
        builder.fst.set_final(0)
        builder.fst.set_final(1)
        builder.copied(1, _nodes(np.ones(0x110000, bool)), 1)
        before = builder.fst.add_state()
        builder.arc(0, None, text, before)
        builder.copied(before, _nodes(np.ones(0x110000, bool)), 1)
        return image(dfa, builder.done(), limits, deadline)

    return of

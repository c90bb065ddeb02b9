"""Ten constraints of every kind over one vocabulary size, to be decoded side by side."""

from __future__ import annotations

import dataclasses

import numpy as np
from oracles import hand_made
from oracles import hand_pushdown as by_hand

from fsa_compile.artifact import CompiledConstraint

SIZE = len(by_hand.BRACKET_TOKENS)
TWIN_TOKENS = [b"", b"a", b"b", b"c", b"aa", b"ab", b"bb", b"cc", b"abb", b"aabb", b"aaa", b"ccc", b"ac", b"aac"]


def padded(c: CompiledConstraint, fingerprint: str) -> CompiledConstraint:
    """The constraint over `SIZE` ids, those it does not know forbidden."""
    rows = np.zeros((c.num_rows, (SIZE + 31) // 32), np.uint32)
    rows[:, : c.rows.shape[1]] = c.rows
    table = np.zeros((len(c.increments), SIZE), np.uint16)
    table[:, : c.vocab_size] = c.increments
    return dataclasses.replace(c, vocab_size=SIZE, rows=rows, increments=table, fingerprint=fingerprint)


def regular() -> list[CompiledConstraint]:
    """Random automata, a trie with long single paths, and a bounded repetition."""
    words = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 11], [12, 13], [12, 13, 14, 15, 16, 17]]
    found = [hand_made.random_constraint(seed, SIZE) for seed in (0, 1, 3)]
    return [*found, hand_made.one_of(words, SIZE), hand_made.repeated(range(1, 20), 3, 9, SIZE)]


def with_stacks() -> list[CompiledConstraint]:
    """Brackets, and counters with and without ladders."""
    brackets = by_hand.composed(by_hand.brackets(), by_hand.BRACKET_TOKENS)
    counted = [by_hand.counted(low, high) for low, high in ((1, 3), (2, 5), (40, 60))]
    return [brackets, *(padded(c, brackets.fingerprint) for c in counted)]


def ambiguous() -> list[CompiledConstraint]:
    """Followed on two stacks."""
    twins = by_hand.composed(by_hand.twins(), TWIN_TOKENS, stacks=2)
    return [padded(twins, regular()[0].fingerprint)]

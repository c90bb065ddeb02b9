"""Joint runs of `TextDfa`s, as arrays: code points that no automaton tells apart are one class, a level of states one step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from fsa_compile.arrays.graphs import refined_table
from fsa_compile.arrays.integers import distinct, equal_tuples, exampled, known_numbers
from fsa_compile.arrays.ranges import ranges
from fsa_compile.automata.labelled_dfa import Row, TextDfa, minimized, trimmed
from fsa_compile.errors import LimitError
from fsa_compile.unicode.code_points import FIRST_SURROGATE, LAST, LAST_SURROGATE

_SMALL = 256
"""Automata up to this size are minimised by the slower, thorough way."""
_ROUNDS = 64
"""Refinement of larger ones that takes more rounds than this is given up: long chains are minimal already."""


def product(dfas: Sequence[TextDfa], label: Callable[[tuple[int, ...]], int], max_states: int, where: str) -> TextDfa:
    """The joint run of several automata with labels of its own.

    Args:
      dfas: components; one that gets stuck stays stuck, with label 0.
      label: the label of a joint state, from the labels of its components.
      where: what is being combined, for the message.
    """
    starts = _class_starts(dfas)
    table, said = _table(dfas[0], starts)
    for dfa in dfas[1:]:
        other, other_said = _table(dfa, starts)
        pairs, table = _pairs(table, other, max_states, where)
        said = np.column_stack((said[pairs // len(other)], other_said[pairs % len(other)]))
    said = said.reshape(len(table), -1)
    example, which = equal_tuples(*said.T)
    labels = np.array([label(tuple(row)) for row in said[example].tolist()], np.int64)[which]
    if len(table) > _SMALL:
        block = refined_table(table, labels, _ROUNDS)
        if block is not None:
            _, kept, _ = exampled(block)
            table, labels = block[table[kept]], labels[kept]
    joint = TextDfa(_rows(table, starts), labels.tolist())
    return minimized(joint) if len(table) <= _SMALL else trimmed(joint)


def _class_starts(dfas: Sequence[TextDfa]) -> np.ndarray:
    """First code points of the classes; a class of surrogates is among them."""
    cuts = {0, FIRST_SURROGATE, LAST_SURROGATE + 1}
    for dfa in dfas:
        for row in dfa.rows:
            for low, high, _ in row:
                cuts.add(low)
                cuts.add(high + 1)
    cuts.discard(LAST + 1)
    return np.array(sorted(cuts), np.int64)


def _table(dfa: TextDfa, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64[n + 1, C], next state by state and class, state n being stuck; int64[n + 1], labels."""
    n = len(dfa.rows)
    table = np.full((n + 1, len(starts)), n, np.int64)
    source = np.repeat(np.arange(n), [len(row) for row in dfa.rows])
    moves = np.array([move for row in dfa.rows for move in row], np.int64).reshape(-1, 3)
    first, last = np.searchsorted(starts, moves[:, 0]), np.searchsorted(starts, moves[:, 1], "right")
    move, column = ranges(first, last)
    table[source[move], column] = moves[move, 2]
    return table, np.array([*dfa.labels, 0], np.int64)


def _pairs(a: np.ndarray, b: np.ndarray, max_states: int, where: str) -> tuple[np.ndarray, np.ndarray]:
    """int64[N], reachable pairs p * len(b) + q, the initial pair first; int64[N, C], next pair by its index."""
    width = len(b)
    order = [np.zeros(1, np.int64)]
    known = np.zeros(1, np.int64), np.zeros(1, np.int64)  # sorted pairs and their places in the order
    steps = []
    frontier = order[0]
    while len(frontier):
        after = a[frontier // width] * width + b[frontier % width]
        steps.append(after)
        seen = distinct(after.ravel())  # `np.unique` would load NumPy's masked arrays
        _, new, known = known_numbers(known, seen, len(known[0]))
        frontier = seen[new]
        if len(known[0]) > max_states:
            raise LimitError(
                "max_product",
                max_states,
                f"Combining the conditions at {where}",
                fix="Use fewer patterns on one string, or raise SchemaOptions.max_product.",
            )
        order.append(frontier)
    pairs, index = known
    return np.concatenate(order), index[pairs.searchsorted(np.concatenate(steps))]


def _rows(table: np.ndarray, starts: np.ndarray) -> list[Row]:
    """The transitions as ranges of code points."""
    ends = np.append(starts[1:], LAST + 1) - 1
    real = starts != FIRST_SURROGATE
    begins = np.ones(table.shape, bool)
    begins[:, 1:] = table[:, 1:] != table[:, :-1]
    begins[:, 1:] |= ~(real[1:] & real[:-1])
    begins[:, ~real] = True
    source, column = np.nonzero(begins)
    last = np.append(column[1:], len(starts)) - 1
    last[np.append(source[1:], -1) != source] = len(starts) - 1
    keep = real[column]
    source, column, last = source[keep], column[keep], last[keep]
    moves = list(zip(starts[column].tolist(), ends[last].tolist(), table[source, column].tolist()))
    offset = np.searchsorted(source, np.arange(len(table) + 1)).tolist()
    return [tuple(moves[a:z]) for a, z in itertools.pairwise(offset)]

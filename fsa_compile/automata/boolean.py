"""Boolean operations and concatenation of byte automata.

Union, intersection and difference are products, explored level by level with NumPy over classes of bytes that neither automaton
tells apart; OpenFst trims and minimises the result. Concatenation is OpenFst's, made deterministic under the limits.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fsa_compile.arrays.integers import equal_rows, exampled, occupied, ranked
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.openfst import Arcs, arcs_from_fst, determinize, fst_from_arcs
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

Operator = Literal["|", "&", "-", "+"]

_DENSE_PAIRS = 1 << 24
"""Up to this many pairs of states, seen pairs are kept in an array and not in a dictionary."""


def combine(operator: Operator, a: ByteDfa, b: ByteDfa, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
    """The minimal automaton of `a operator b`; it may accept nothing (`start == 0`).

    Args:
      operator: `|` union, `&` intersection, `-` difference, `+` concatenation.
    """
    column_a, column_b, byte_class = _joint_classes(a, b)
    left, right = a.table[:, column_a], b.table[:, column_b]
    if operator == "+":
        return _concatenate(a, b, left, right, byte_class, limits, deadline)
    keys, table = _product(operator, left, right, a.start, b.start, limits, deadline)
    final_a, final_b = a.final[keys // len(b.final)], b.final[keys % len(b.final)]
    final = final_a & final_b if operator == "&" else final_a & ~final_b if operator == "-" else final_a | final_b
    source, label = occupied(table >= 0)
    fst = fst_from_arcs(Arcs(0, final, source, label + 1, table[source, label]))
    fst.connect()
    fst.minimize()
    return from_class_arcs(arcs_from_fst(fst), byte_class)


def universal_text() -> ByteDfa:
    """All Unicode strings as UTF-8: what complements are taken in."""
    from fsa_compile.automata.letter_dfa import LetterDfa, letter_sets
    from fsa_compile.automata.utf8 import to_byte_dfa
    from fsa_compile.unicode.code_points import ANY

    sets, ranges = letter_sets([ANY])
    return to_byte_dfa(LetterDfa([[(sets[0], 0)]], [True], ranges), CompileLimits())


def from_class_arcs(arcs: Arcs, byte_class: np.ndarray) -> ByteDfa:
    """A deterministic trimmed acceptor whose label k + 1 stands for the bytes of class k."""
    S = len(arcs.final)
    final = np.zeros(S + 1, bool)
    final[1:] = arcs.final
    table = np.zeros((S + 1, int(byte_class.max()) + 1), np.int32)
    table[arcs.source + 1, arcs.label - 1] = arcs.target + 1
    return ByteDfa(table=table, byte_class=byte_class, final=final, start=arcs.start + 1)


def _joint_classes(a: ByteDfa, b: ByteDfa) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per joint class a column of each table, and the joint class of each byte."""
    left, right = (equal_rows(dfa.table.T)[1][dfa.byte_class] for dfa in (a, b))
    byte_class = ranked(left * (len(b.table.T) + 1) + right).astype(np.uint8)
    _, representative, _ = exampled(byte_class.astype(np.int64))
    return a.byte_class[representative], b.byte_class[representative], byte_class


def _product(
    operator: Operator, left: np.ndarray, right: np.ndarray, start_a: int, start_b: int, limits: CompileLimits, deadline: Deadline
) -> tuple[np.ndarray, np.ndarray]:
    """Reachable pairs of states.

    Returns:
      keys int64[N], pair (p, q) as p * len(right) + q, the initial pair first; table int64[N, K], index of the next pair or -1.
    """
    n_b = len(right)
    dense = len(left) * n_b <= _DENSE_PAIRS
    number = np.full(len(left) * n_b if dense else 0, -1, np.int32)
    known: dict[int, int] = {}

    def index_of(keys: np.ndarray) -> np.ndarray:
        if dense:
            return number[keys]
        return np.array([known.get(key, -1) for key in keys.ravel().tolist()], np.int32).reshape(keys.shape)

    def add(keys: np.ndarray, first: int) -> None:
        if dense:
            number[keys] = np.arange(first, first + len(keys))
        else:
            known.update(zip(keys.tolist(), range(first, first + len(keys))))

    frontier = np.array([start_a * n_b + start_b])
    add(frontier, 0)
    levels, steps, count = [frontier], [], 1
    while len(frontier):
        deadline.check("Combining two automata")
        p, q = left[frontier // n_b].astype(np.int64), right[frontier % n_b]
        keys = p * n_b + q
        if operator == "&":
            keys[(p == 0) | (q == 0)] = 0
        elif operator == "-":
            keys[p == 0] = 0
        steps.append(keys)
        live = np.unique(keys)
        live = live[live != 0]
        frontier = live[index_of(live) < 0]
        add(frontier, count)
        count += len(frontier)
        if count > limits.max_states:
            raise LimitError("max_states", limits.max_states, f"Combining two automata with {operator}")
        levels.append(frontier)
    keys = np.concatenate(steps)
    return np.concatenate(levels), np.where(keys != 0, index_of(keys), -1)


def _concatenate(
    a: ByteDfa,
    b: ByteDfa,
    left: np.ndarray,
    right: np.ndarray,
    byte_class: np.ndarray,
    limits: CompileLimits,
    deadline: Deadline,
) -> ByteDfa:
    machines = []
    for dfa, table in ((a, left), (b, right)):
        source, label = occupied(table)
        machines.append(
            fst_from_arcs(Arcs(dfa.start - 1, dfa.final[1:], source - 1, label + 1, table[source, label].astype(np.int64) - 1))
        )
    first, second = machines
    first.concat(second)
    return from_class_arcs(arcs_from_fst(determinize(first, limits, deadline)), byte_class)

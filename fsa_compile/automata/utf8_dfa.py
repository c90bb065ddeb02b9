"""Automata over classes of characters to bytes: for filters that tell hundreds of classes apart in hundreds of states."""

from __future__ import annotations

import numpy as np

from fsa_compile.arrays.graphs import refined_table
from fsa_compile.arrays.integers import exampled
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.utf8_classes import BAD, utf8_classes


def class_dfa(class_of: np.ndarray, table: np.ndarray, final: np.ndarray) -> ByteDfa:
    """The byte automaton of an automaton over classes of characters.

    Args:
      class_of: int[0x110000], class of every code point, negative for those that never occur (surrogates, for example).
      table: int[S, K], next state by state and class, -1 where the class cannot be read; state 0 is initial. Every state must
        lead to a final one.
      final: bool[S].

    Returns:
      Its states q of the table are states q + 1; states inside characters follow, equal ones once.
    """
    table, final = _merged(table, final)
    nodes = utf8_classes(class_of)
    size = len(table)
    number: dict[bytes, int] = {np.zeros(64, np.int32).tobytes(): 0}
    rows: list[np.ndarray] = []
    # Per node of the characters' tree, the state that each state of the table is in there; children come before parents.
    inside = np.zeros((len(nodes), size), np.int32)
    after = np.concatenate([table + 1, np.zeros((size, 1), table.dtype)], axis=1).astype(np.int32)

    def read(row: np.ndarray) -> np.ndarray:
        """State reached from every state at each byte of a node, int32[S, bytes]."""
        out = after[:, np.where(row < 0, ~row, -1)]
        deeper = (row >= 0) & (row != BAD)
        out[:, deeper] = inside[row[deeper]].T
        return out

    for node in range(1, len(nodes)):
        reached = np.ascontiguousarray(read(nodes[node, 128:192]))
        for state, row in enumerate(reached):
            key = row.tobytes()
            found = number.get(key)
            if found is None:
                rows.append(row)
                found = number[key] = size + len(rows)
            inside[node, state] = found
    out = np.zeros((1 + size + len(rows), 256), np.int32)
    out[1 : size + 1] = read(nodes[0])
    if rows:
        out[size + 1 :, 128:192] = np.stack(rows)
    ends = np.zeros(len(out), bool)
    ends[1 : size + 1] = final
    return ByteDfa(table=out, byte_class=np.arange(256, dtype=np.uint8), final=ends, start=1)


def _merged(table: np.ndarray, final: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moore's refinement: equal states once, the initial one first."""
    block = refined_table(table, final.astype(np.int64))
    assert block is not None  # without a bound on rounds
    _, kept, _ = exampled(block)  # the initial state is the first of its kind
    return np.where(table[kept] >= 0, block[table[kept]], -1), final[kept]

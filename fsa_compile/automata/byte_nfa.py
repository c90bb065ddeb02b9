"""Byte automata built from parts: epsilon arcs removed and subsets made, with NumPy.

For automata of some hundred thousand states, such as a suffix automaton inside a pattern. Knows nothing of patterns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fsa_compile.arrays.graphs import useful
from fsa_compile.arrays.ranges import segment_starts, spread
from fsa_compile.automata.byte_dfa import ByteDfa, dfa_from_arcs
from fsa_compile.automata.labels import FIRST_BYTE
from fsa_compile.automata.openfst import Arcs, arcs_from_fst, byte_dfa_from_arcs, fst_from_arcs
from fsa_compile.automata.subsets import BYTES_PER_ARC, deterministic_arcs
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

_DOING = "Joining the parts of the constraint"
_MINIMIZED_STATES = 20_000
"""Larger automata are not minimised: the suffix automata that make them large are nearly minimal."""


class ByteNfa:
    """A nondeterministic automaton over bytes under construction; parts are added as arrays."""

    def __init__(self, limits: CompileLimits, deadline: Deadline) -> None:
        self._limits, self._deadline = limits, deadline
        self._final: list[np.ndarray] = []
        self._arcs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._empty: list[tuple[np.ndarray, np.ndarray]] = []
        self.num_states = 0

    def add_states(self, final: np.ndarray) -> int:
        """Adds states, bool[n] says which are final; returns the number of the first."""
        first = self.num_states
        self._final.append(final)
        self.num_states += len(final)
        if self.num_states > self._limits.max_states:
            raise LimitError("max_states", self._limits.max_states, _DOING)
        return first

    def add_arcs(self, source: np.ndarray, byte: np.ndarray, target: np.ndarray) -> None:
        """Adds arcs, int64[n] each."""
        self._arcs.append((source, byte, target))

    def add_empty(self, source: np.ndarray, target: np.ndarray) -> None:
        """Adds arcs that read nothing, int64[n] each."""
        self._empty.append((source, target))

    def add_part(self, dfa: ByteDfa, begins: Sequence[int], end: int) -> None:
        """Adds a copy of a trimmed automaton that leads from each of the states `begins` to state `end`."""
        source, byte, target = dfa.arcs
        base = self.add_states(np.zeros(dfa.num_states - 1, bool)) - 1
        self.add_arcs(source + base, byte, target + base)
        self.add_empty(np.array(begins), np.full(len(begins), dfa.start + base))
        ends = dfa.final.nonzero()[0] + base
        self.add_empty(ends, np.full(len(ends), end))

    def deterministic(self, start: int, *, trimmed: bool = False) -> ByteDfa | None:
        """The trimmed deterministic automaton with the given initial state, or None when it accepts nothing.

        Args:
          trimmed: whether every state is known to lie on a path from the start to a final state.
        """
        final = np.concatenate(self._final)
        source, byte, target = (np.concatenate(column) for column in zip(*self._arcs, strict=True))
        source, byte, target, final = self._without_empty(source, byte, target, final)
        if trimmed:  # states that only empty arcs lead to have handed their arcs on
            keep = np.zeros(len(final), bool)
            keep[target] = True
            keep[start] = True
        else:
            keep = useful(source, target, final, start)
            if not keep[start]:
                return None
        number = keep.cumsum() - 1
        on = keep[source] & keep[target]
        arcs = _distinct(number[source[on]], byte[on], number[target[on]], int(keep.sum()))
        source, byte, target, final = *arcs, final[keep]
        first = int(number[start])
        if _is_deterministic(source, byte):
            return _minimal(source, byte, target, final, first, self._limits)
        arcs, final = deterministic_arcs((source, byte, target), final, first, self._limits, self._deadline, _DOING)
        return _minimal(*arcs, final, 0, self._limits)

    def _without_empty(
        self, source: np.ndarray, byte: np.ndarray, target: np.ndarray, final: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Arcs and final states with the same language and no empty arcs."""
        if not self._empty:
            return source, byte, target, final
        owner, member = self._closures()
        final = final.copy()
        final[owner[final[member]]] = True
        order = np.argsort(source, kind="stable")
        source, byte, target = source[order], byte[order], target[order]
        begin = np.searchsorted(source, np.arange(self.num_states + 1))
        which, at = _expand(begin[member], begin[member + 1], self._deadline)
        return (
            np.concatenate([source, owner[which]]),
            np.concatenate([byte, byte[at]]),
            np.concatenate([target, target[at]]),
            final,
        )

    def _closures(self) -> tuple[np.ndarray, np.ndarray]:
        """(state, another state that empty arcs lead to) of every such pair."""
        n = self.num_states
        source, target = (np.concatenate(column) for column in zip(*self._empty, strict=True))
        known = _sorted_once(source * n + target)
        source, target = known // n, known % n
        begin = np.searchsorted(source, np.arange(n + 1))
        fresh = known
        while len(fresh):
            member = fresh % n
            which, at = _expand(begin[member], begin[member + 1], self._deadline)
            fresh = np.setdiff1d(fresh[which] // n * n + target[at], known)
            known = np.union1d(known, fresh)
        return known // n, known % n


def _minimal(
    source: np.ndarray, byte: np.ndarray, target: np.ndarray, final: np.ndarray, start: int, limits: CompileLimits
) -> ByteDfa:
    if len(final) > _MINIMIZED_STATES:
        return dfa_from_arcs(source, byte, target, final, start, limits)
    fst = fst_from_arcs(Arcs(start, final, source, byte + FIRST_BYTE, target))
    fst.minimize()
    return byte_dfa_from_arcs(arcs_from_fst(fst), limits)


def _distinct(
    source: np.ndarray, byte: np.ndarray, target: np.ndarray, num_states: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arcs sorted by source, byte, target, each once."""
    key = _sorted_once((source << 8 | byte) * num_states + target)
    before = key // num_states
    return before >> 8, before & 255, key - before * num_states


def _sorted_once(key: np.ndarray) -> np.ndarray:
    key.sort()
    return key[segment_starts(key)]


def _is_deterministic(source: np.ndarray, byte: np.ndarray) -> bool:
    return not bool(((source[1:] == source[:-1]) & (byte[1:] == byte[:-1])).any())


def _expand(begin: np.ndarray, end: np.ndarray, deadline: Deadline) -> tuple[np.ndarray, np.ndarray]:
    """(number of the range, index) for every index of every range."""
    size = end - begin
    deadline.check_bytes(int(size.sum()) * BYTES_PER_ARC, _DOING)
    return spread(begin, size)

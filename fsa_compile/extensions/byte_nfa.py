"""Byte automata built from parts: epsilon arcs removed and subsets made a level at a time, with NumPy.

For automata of some hundred thousand states, such as a suffix automaton inside a pattern. Knows nothing of patterns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fsa_compile.byte_dfa import ByteDfa
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.pynini_bridge import Arcs, arcs_from_fst, determinize, fst_from_arcs
from fsa_compile.vocabulary_tables import segment_starts

_DOING = "Joining the parts of the constraint"
_BYTES_PER_ARC = 64
_MINIMIZED_STATES = 20_000
"""Larger automata are not minimised: the suffix automata that make them large are nearly minimal."""
_FULL_TABLE_STATES = 2048


class ByteNfa:
    """A nondeterministic automaton over bytes under construction; parts are added as arrays."""

    def __init__(self, limits: CompileLimits, deadline: Deadline) -> None:
        self._limits, self._deadline = limits, deadline
        self._final: list[np.ndarray] = []
        self._arcs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._empty: list[tuple[np.ndarray, np.ndarray]] = []
        self.num_states = 0

    def add_states(self, final: np.ndarray) -> int:
        """Adds states, bool[n] says which are final; returns the number of the first.

        Raises:
          LimitError: too many states.
        """
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

    def deterministic(self, start: int) -> ByteDfa | None:
        """The trimmed deterministic automaton with the given initial state, or None when it accepts nothing.

        Raises:
          LimitError: too many states, too much memory or time.
        """
        final = np.concatenate(self._final)
        source, byte, target = (np.concatenate(column) for column in zip(*self._arcs, strict=True))
        source, byte, target, final = self._without_empty(source, byte, target, final)
        keep = useful_states(source, target, final, start, self._deadline)
        if not keep[start]:
            return None
        number = keep.cumsum() - 1
        on = keep[source] & keep[target]
        arcs = _distinct(number[source[on]], byte[on], number[target[on]], int(keep.sum()))
        source, byte, target, final = *arcs, final[keep]
        first = int(number[start])
        if _is_deterministic(source, byte):
            return _minimal(source, byte, target, final, first, self._limits)
        found = _subsets(source, byte, target, final, first, self._limits, self._deadline)
        if found is None:  # a collision of hashes
            fst = fst_from_arcs(Arcs(first, final, source, byte + 1, target))
            slow = arcs_from_fst(determinize(fst, self._limits, self._deadline))
            return dfa_from_arcs(slow.source, slow.label - 1, slow.target, slow.final, slow.start, self._limits)
        return _minimal(*found, 0, self._limits)

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


def dfa_from_arcs(
    source: np.ndarray, byte: np.ndarray, target: np.ndarray, final: np.ndarray, start: int, limits: CompileLimits
) -> ByteDfa:
    """A byte automaton from arcs sorted by source, then byte; state q becomes q + 1.

    Raises:
      LimitError: the table would be too large.
    """
    S = len(final) + 1
    if S < _FULL_TABLE_STATES:
        byte_class, columns = np.arange(256, dtype=np.uint8), 256
    else:
        used = np.bincount(byte, minlength=256) > 0
        byte_class = np.where(used, used.cumsum() - used.all(), 0).astype(np.uint8)
        columns = int(byte_class.max()) + 1
    if limits.max_states < S:
        raise LimitError("max_states", limits.max_states, _DOING)
    if S * columns * 4 > limits.max_bytes:
        raise LimitError("max_bytes", limits.max_bytes, f"A table of {S:,} byte states")
    table = np.zeros((S, columns), np.int32)
    table[source + 1, byte_class[byte]] = target + 1
    dfa = ByteDfa(table=table, byte_class=byte_class, final=np.concatenate([[False], final]), start=start + 1)
    dfa.__dict__["arcs"] = source + 1, byte, target + 1
    return dfa


def _minimal(
    source: np.ndarray, byte: np.ndarray, target: np.ndarray, final: np.ndarray, start: int, limits: CompileLimits
) -> ByteDfa:
    if len(final) <= _MINIMIZED_STATES:
        fst = fst_from_arcs(Arcs(start, final, source, byte + 1, target))
        fst.minimize()
        small = arcs_from_fst(fst)
        order = (small.source << 9 | small.label).argsort(kind="stable")
        source, byte, target = small.source[order], small.label[order] - 1, small.target[order]
        final, start = small.final, small.start
    return dfa_from_arcs(source, byte, target, final, start, limits)


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
    deadline.check_bytes(int(size.sum()) * _BYTES_PER_ARC, _DOING)
    which = np.repeat(np.arange(len(begin)), size)
    return which, np.arange(len(which)) + np.repeat(begin - (np.cumsum(size) - size), size)


def useful_states(source: np.ndarray, target: np.ndarray, final: np.ndarray, start: int, deadline: Deadline) -> np.ndarray:
    """States on some path from the start to a final state: bool[S]."""
    reached = _reached(source, target, np.array([start]), len(final), deadline)
    return reached & _reached(target, source, final.nonzero()[0], len(final), deadline)


def _reached(source: np.ndarray, target: np.ndarray, first: np.ndarray, size: int, deadline: Deadline) -> np.ndarray:
    """States that arcs lead to from the given ones, bool[size]."""
    order = np.argsort(source, kind="stable")
    begin, target = np.searchsorted(source[order], np.arange(size + 1)), target[order]
    seen = np.zeros(size, bool)
    seen[first] = True
    while len(first):
        deadline.check(_DOING)
        _, at = _expand(begin[first], begin[first + 1], deadline)
        there = target[at]
        there = there[~seen[there]]
        seen[there] = True
        first = np.unique(there)
    return seen


def _subsets(
    source: np.ndarray,
    byte: np.ndarray,
    target: np.ndarray,
    final: np.ndarray,
    start: int,
    limits: CompileLimits,
    deadline: Deadline,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Subset construction; subsets are told apart by 64-bit sums, which are checked at the end.

    Returns:
      source, byte, target int64[E] of the deterministic automaton, sorted by source and byte, and its final states bool[N], the
      initial state first; None when two subsets had one sum.
    """
    S = len(final)
    begin = np.searchsorted(source, np.arange(S + 1))
    mixed = _mixed(np.arange(1, S + 1).astype(np.uint64))
    ids = {int(mixed[start]): 0}
    member, begins = np.array([start]), np.array([0])  # of the subsets of one level
    stored, stored_begins, total = [member], [begins], 1
    arc_source, arc_byte, arc_target, reached, reached_begins, read = [], [], [], [], [], 0
    first = 0
    while len(begins):
        deadline.check(_DOING)
        size = np.diff(begins, append=len(member))
        which, at = _expand(begin[member], begin[member + 1], deadline)
        owner = np.repeat(np.arange(len(begins)), size)[which]
        key = _sorted_once((owner << 8 | byte[at]) * S + target[at])
        label = key // S
        goal = key - label * S
        cut = segment_starts(label)
        if not len(cut):
            break
        sums = np.add.reduceat(mixed[goal], cut)
        distinct, example, inverse = np.unique(sums, return_index=True, return_inverse=True)
        before = len(ids)
        number = np.array([ids.setdefault(s, len(ids)) for s in distinct.tolist()])
        if len(ids) > limits.max_states:
            raise LimitError("max_states", limits.max_states, _DOING)
        arc_source.append((label[cut] >> 8) + first)
        arc_byte.append(label[cut] & 255)
        arc_target.append(number[inverse])
        reached.append(goal)
        reached_begins.append(cut + read)
        read += len(goal)
        deadline.check_bytes((read + total) * _BYTES_PER_ARC, _DOING)
        fresh = example[number >= before]
        ends = np.append(cut[1:], len(goal))
        length = ends[fresh] - cut[fresh]
        _, at = _expand(cut[fresh], ends[fresh], deadline)
        member, begins = goal[at], length.cumsum() - length
        first = before
        stored.append(member)
        stored_begins.append(begins + total)
        total += len(member)
    members, starts = np.concatenate(stored), np.concatenate(stored_begins)
    if not arc_source:
        none = np.zeros(0, np.int64)
        return none, none, none, final[members]
    goals, goal_starts, arrives = np.concatenate(reached), np.concatenate(reached_begins), np.concatenate(arc_target)
    size, goal_size = np.diff(starts, append=len(members)), np.diff(goal_starts, append=len(goals))
    if (size[arrives] != goal_size).any():
        return None
    _, at = _expand(starts[arrives], starts[arrives] + goal_size, deadline)
    if (members[at] != goals).any():
        return None
    ends_here = np.logical_or.reduceat(final[members], starts)
    return np.concatenate(arc_source), np.concatenate(arc_byte), arrives, ends_here


def _mixed(x: np.ndarray) -> np.ndarray:
    """A bijective scrambling of 64-bit integers (the finaliser of SplitMix64)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)

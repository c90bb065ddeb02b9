"""Byte automata built from parts: epsilon arcs removed and subsets made a level at a time, with NumPy.

For automata of some hundred thousand states, such as a suffix automaton inside a pattern. Knows nothing of patterns.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fsa_compile.arrays.graphs import useful
from fsa_compile.arrays.ranges import segment_starts, spread
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.openfst import Arcs, arcs_from_fst, determinize, fst_from_arcs
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

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

    def deterministic(self, start: int, *, trimmed: bool = False) -> ByteDfa | None:
        """The trimmed deterministic automaton with the given initial state, or None when it accepts nothing.

        Args:
          start: the initial state.
          trimmed: whether every state is known to lie on a path from the start to a final state.

        Raises:
          LimitError: too many states, too much memory or time.
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
        found = _Subsets((source, byte, target), final, first, self._limits, self._deadline).build()
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
    return spread(begin, size)


_FEW = 16
"""Levels with fewer subsets are stepped one by one; a chain has one subset per level."""
_ROWS_AT_ONCE = 1 << 16
_ALL_BITS = (1 << 64) - 1


class _Subsets:
    """Subset construction, a level at a time; subsets are told apart by 64-bit sums, which are checked at the end."""

    def __init__(
        self,
        arcs: tuple[np.ndarray, np.ndarray, np.ndarray],
        final: np.ndarray,
        start: int,
        limits: CompileLimits,
        deadline: Deadline,
    ) -> None:
        source, self._byte, self._target = arcs
        self._final, self._start, self._limits, self._deadline = final, start, limits, deadline
        self._begin = np.searchsorted(source, np.arange(len(final) + 1))
        self._mixed = _mixed(np.arange(1, len(final) + 1).astype(np.uint64))
        self._ids: dict[int, int] = {}
        self._stepped = 0
        self._kept = 0
        self._subsets: list[tuple[np.ndarray, np.ndarray]] = []  # members, sizes
        self._arcs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._goals: list[tuple[np.ndarray, np.ndarray]] = []  # members and size of the subset that each arc leads to

    def build(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """source, byte, target int64[E], sorted by source and byte, and the final states bool[N], the initial one first.

        None when two subsets had one sum.
        """
        self._ids[int(self._mixed[self._start])] = 0
        member, size = np.array([self._start]), np.array([1])
        self._subsets.append((member, size))
        while len(size):
            self._deadline.check(_DOING)
            step = self._step if len(size) >= _FEW else self._step_few
            member, size = step(member, size)
            if len(self._ids) > self._limits.max_states:
                raise LimitError("max_states", self._limits.max_states, _DOING)
            self._kept += len(self._goals[-1][0]) + len(self._subsets[-1][0])
            self._deadline.check_bytes(self._kept * _BYTES_PER_ARC, _DOING)
        return self._checked()

    def _step(self, member: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Adds the arcs of one level; returns members and sizes of the subsets that are new."""
        S = len(self._final)
        which, at = _expand(self._begin[member], self._begin[member + 1], self._deadline)
        owner = np.repeat(np.arange(len(size)), size)[which]
        key = _sorted_once((owner << 8 | self._byte[at]) * S + self._target[at])
        label = key // S
        goal = key - label * S
        cut = segment_starts(label)
        goal_size = np.diff(cut, append=len(goal))
        sums = np.add.reduceat(self._mixed[goal], cut) if len(cut) else np.zeros(0, np.uint64)
        distinct, example, inverse = np.unique(sums, return_index=True, return_inverse=True)
        before = len(self._ids)
        number = np.array([self._ids.setdefault(s, len(self._ids)) for s in distinct.tolist()], np.int64)
        self._arcs.append(((label[cut] >> 8) + self._stepped, label[cut] & 255, number[inverse]))
        self._goals.append((goal, goal_size))
        self._stepped += len(size)
        fresh = example[number >= before]
        _, at = _expand(cut[fresh], cut[fresh] + goal_size[fresh], self._deadline)
        self._subsets.append((goal[at], goal_size[fresh]))
        return self._subsets[-1]

    @cached_property
    def _lists(self) -> tuple[list[int], list[int], list[int], list[int]]:
        return self._begin.tolist(), self._byte.tolist(), self._target.tolist(), self._mixed.tolist()

    def _step_few(self, member: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `_step`, one subset at a time, and on through the next levels while they are small."""
        begin, byte, target, mixed = self._lists
        level = [part.tolist() for part in np.split(member, size.cumsum()[:-1])]
        rows: list[tuple[int, int, int]] = []
        goals: list[list[int]] = []
        stored: list[list[int]] = []
        while 0 < len(level) < _FEW and len(self._ids) <= self._limits.max_states and len(rows) < _ROWS_AT_ONCE:
            fresh = []
            for members in level:
                reached: dict[int, set[int]] = {}
                for q in members:
                    for k in range(begin[q], begin[q + 1]):
                        reached.setdefault(byte[k], set()).add(target[k])
                for b in sorted(reached):
                    goal = sorted(reached[b])
                    count = len(self._ids)
                    number = self._ids.setdefault(sum([mixed[q] for q in goal]) & _ALL_BITS, count)
                    rows.append((self._stepped, b, number))
                    goals.append(goal)
                    if number == count:
                        fresh.append(goal)
                self._stepped += 1
            stored += fresh
            level = fresh
        source, label, number_of = np.array(rows, np.int64).reshape(-1, 3).T
        self._arcs.append((source, label, number_of))
        self._goals.append(_joined(goals))
        self._subsets.append(_joined(stored))
        return _joined(level)

    def _checked(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """The result, after comparing every subset reached with the one that has its number."""
        member, size = (np.concatenate(column) for column in zip(*self._subsets))
        goal, goal_size = (np.concatenate(column) for column in zip(*self._goals))
        source, byte, reached = (np.concatenate(column) for column in zip(*self._arcs))
        begin = size.cumsum() - size
        if (size[reached] != goal_size).any():
            return None
        _, at = _expand(begin[reached], begin[reached] + goal_size, self._deadline)
        if (member[at] != goal).any():
            return None
        return source, byte, reached, np.logical_or.reduceat(self._final[member], begin)


def _joined(parts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """All members one after the other, and the size of each part."""
    flat = np.fromiter(itertools.chain.from_iterable(parts), np.int64)
    return flat, np.fromiter(map(len, parts), np.int64, len(parts))


def _mixed(x: np.ndarray) -> np.ndarray:
    """A bijective scrambling of 64-bit integers (the finaliser of SplitMix64)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)

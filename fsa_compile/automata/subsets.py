"""Subset construction on arrays of arcs; subsets are numbered as breadth-first search, by label, meets them.

For automata of some hundred thousand states. OpenFst's own asks neither clock nor memory, and ends the process when there is
none left.
"""

from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.ranges import ranges, segment_sizes, segment_starts
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

_FEW = 16
"""Levels with fewer subsets are stepped one by one; a chain has one subset per level."""
_ROWS_AT_ONCE, _MEMBERS_AT_ONCE = 1 << 16, 1 << 20
_ALL_BITS = (1 << 64) - 1
BYTES_PER_ARC = 64

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def deterministic_arcs(
    arcs: Arrays, final: np.ndarray, start: int, limits: CompileLimits, deadline: Deadline, doing: str
) -> tuple[Arrays, np.ndarray]:
    """The deterministic automaton of one without epsilons; its initial state is 0.

    Args:
      arcs: source, label, target int64[E], sorted by source.
      final: bool[S].
      doing: what is being computed, for the message.

    Returns:
      source, label, target int64[*], sorted by source, then label; bool[N], the final states.
    """
    for seed in itertools.count():  # another one where two subsets had one sum
        found = _Subsets(arcs, final, seed, limits, deadline, doing).build(start)
        if found is not None:
            return found
    raise AssertionError("not reached")


class _Subsets:
    """Subsets by number; they are told apart by 64-bit sums over their members, which are checked at the end."""

    def __init__(
        self, arcs: Arrays, final: np.ndarray, seed: int, limits: CompileLimits, deadline: Deadline, doing: str
    ) -> None:
        source, self._label, self._target = arcs
        self._final, self._limits, self._deadline, self._doing = final, limits, deadline, doing
        self._width = int(self._label.max(initial=0)) + 1
        self._begin = np.searchsorted(source, np.arange(len(final) + 1))
        self._mixed = mixed(np.arange(len(final)) + seed * len(final))
        self._ids: dict[int, int] = {}
        self._stepped = 0
        self._kept = 0
        self._subsets: list[tuple[np.ndarray, np.ndarray]] = []  # members, sizes
        self._arcs: list[Arrays] = []
        self._goals: list[tuple[np.ndarray, np.ndarray]] = []  # members and size of the subset that each arc leads to

    def build(self, start: int) -> tuple[Arrays, np.ndarray] | None:
        """See `deterministic_arcs`; None when two subsets had one sum."""
        self._ids[int(self._mixed[start])] = 0
        member, size = np.array([start]), np.array([1])
        self._subsets.append((member, size))
        while len(size):
            self._deadline.check(self._doing)
            step = self._step if len(size) >= _FEW else self._step_few
            member, size = step(member, size)
            if len(self._ids) > self._limits.max_states:
                raise LimitError("max_states", self._limits.max_states, self._doing)
            self._kept += len(self._goals[-1][0]) + len(self._subsets[-1][0])
            self._check_bytes(self._kept)
        return self._checked()

    def _check_bytes(self, arcs: int) -> None:
        self._deadline.check_bytes(arcs * BYTES_PER_ARC, self._doing)

    def _step(self, member: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Adds the arcs of one level; returns members and sizes of the subsets that are new."""
        S, W = len(self._final), self._width
        self._check_bytes(int((self._begin[member + 1] - self._begin[member]).sum()))
        which, at = ranges(self._begin[member], self._begin[member + 1])
        owner = np.repeat(np.arange(len(size)), size)[which]
        key = (owner * W + self._label[at]) * S + self._target[at]
        key.sort()
        key = key[segment_starts(key)]
        label = key // S
        goal = key - label * S
        cut = segment_starts(label)
        goal_size = segment_sizes(cut, len(goal))
        sums = np.add.reduceat(self._mixed[goal], cut) if len(cut) else np.zeros(0, np.uint64)
        before = len(self._ids)
        number = np.array([self._ids.setdefault(s, len(self._ids)) for s in sums.tolist()], np.int64)
        label = label[cut]
        self._arcs.append((label // W + self._stepped, label % W, number))
        self._goals.append((goal, goal_size))
        self._stepped += len(size)
        fresh = (np.diff(np.maximum.accumulate(number), prepend=before - 1) > 0) & (number >= before)
        _, at = ranges(cut[fresh], cut[fresh] + goal_size[fresh])
        self._subsets.append((goal[at], goal_size[fresh]))
        return self._subsets[-1]

    @cached_property
    def _lists(self) -> tuple[list[int], list[int], list[int], list[int]]:
        return self._begin.tolist(), self._label.tolist(), self._target.tolist(), self._mixed.tolist()

    def _step_few(self, member: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `_step`, one subset at a time, and on through the next levels while they are small."""
        begin, label, target, weight = self._lists
        level = [part.tolist() for part in np.split(member, size.cumsum()[:-1])]
        rows: list[tuple[int, int, int]] = []
        goals: list[list[int]] = []
        stored: list[list[int]] = []
        held = 0
        while 0 < len(level) < _FEW and len(rows) < _ROWS_AT_ONCE and held < _MEMBERS_AT_ONCE:
            self._deadline.check(self._doing)
            fresh = []
            for members in level:
                reached: dict[int, set[int]] = {}
                for q in members:
                    for k in range(begin[q], begin[q + 1]):
                        reached.setdefault(label[k], set()).add(target[k])
                for a in sorted(reached):
                    goal = sorted(reached[a])
                    count = len(self._ids)
                    number = self._ids.setdefault(sum([weight[q] for q in goal]) & _ALL_BITS, count)
                    rows.append((self._stepped, a, number))
                    goals.append(goal)
                    held += len(goal)
                    if number == count:
                        fresh.append(goal)
                self._stepped += 1
            stored += fresh
            level = fresh
        source, read, number_of = np.array(rows, np.int64).reshape(-1, 3).T
        self._arcs.append((source, read, number_of))
        self._goals.append(_joined(goals))
        self._subsets.append(_joined(stored))
        return _joined(level)

    def _checked(self) -> tuple[Arrays, np.ndarray] | None:
        """The result, after comparing every subset reached with the one that has its number."""
        member, size = (np.concatenate(column) for column in zip(*self._subsets))
        goal, goal_size = (np.concatenate(column) for column in zip(*self._goals))
        source, label, target = (np.concatenate(column) for column in zip(*self._arcs))
        begin = size.cumsum() - size
        if (size[target] != goal_size).any():
            return None
        _, at = ranges(begin[target], begin[target] + goal_size)
        if (member[at] != goal).any():
            return None
        return (source, label, target), np.logical_or.reduceat(self._final[member], begin)


def _joined(parts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """All members one after the other, and the size of each part."""
    flat = np.fromiter(itertools.chain.from_iterable(parts), np.int64)
    return flat, np.fromiter(map(len, parts), np.int64, len(parts))

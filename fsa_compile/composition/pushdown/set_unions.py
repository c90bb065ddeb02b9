"""Token sets of nodes within limits on tokens and stack cells: as ranges, and as unions for mask rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import exampled
from fsa_compile.arrays.ranges import segment_starts, spread
from fsa_compile.composition.pushdown.token_groups import Groups
from fsa_compile.composition.tokens.budget_levels import Grid
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


class SetRanges(NamedTuple):
    """Ranges of token sets, of every class of every node, sorted by class. Those of a range differ in nothing but what they add
    to registers, and in each class the first few of them fit.

    Attributes:
      node: integers [M], class of a node: its number in the artifact; of 32 bits where nothing is counted.
      group: int64[M], first of the range, into the groups.
      length: int64[M], how many they are.
      cost: int64[M]; None where it is that of the first of the range.
    """

    node: np.ndarray
    group: np.ndarray
    length: np.ndarray
    cost: np.ndarray | None = None

    @property
    def single(self) -> bool:
        """Whether every range is known to be one set."""
        return not self.length.strides[0]

    def groups(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(place in `index`, group) of the token sets of some ranges."""
        if self.single:
            return np.arange(len(index)), self.group[index]
        if len(index) == 1:
            first, length = int(self.group[index[0]]), int(self.length[index[0]])
            return np.zeros(length, np.int64), np.arange(first, first + length)
        return spread(self.group[index], self.length[index])


class Members(NamedTuple):
    """Token sets by node and limits; the sum of those within some limits is the union of their tokens.

    Attributes:
      node, cost, need: int64[M].
      hash, size: uint64[M] and int64[M].
      add_to: adds the tokens of members int64[n] to bit rows uint32[*, W], those of member i to row `which[i]`.
    """

    node: np.ndarray
    cost: np.ndarray
    need: np.ndarray
    hash: np.ndarray
    size: np.ndarray
    add_to: Callable[[np.ndarray, np.ndarray, np.ndarray], None]


_TOGETHER = 256
"""So many rows are made at once."""


class LevelRows:
    """Bit rows of a grid's cells, each from that of a cell below it. What several of them add is worked out together.

    Args:
      grid: of the members.
      cell: int64[n], those of its cells that are kept.
      members: what the grid consists of.
      pool: has the rows of cells below.
    """

    def __init__(self, grid: Grid, cell: np.ndarray, members: Members, pool: RowPool) -> None:
        self._grid, self._cell, self._members, self._pool = grid, cell, members, pool
        self._wanted = cell[:0]
        self._made: dict[int, tuple[int, np.ndarray]] = {}

    def ahead(self, wanted: np.ndarray) -> None:
        """Says which rows will be asked for, in this order."""
        self._wanted = wanted

    def row(self, i: int) -> np.ndarray:
        """uint32[W], the row of kept cell i."""
        if i not in self._made:
            at = int(self._wanted.searchsorted(i))
            some = self._wanted[at : at + _TOGETHER].tolist()
            self._make(some if some[:1] == [i] else [i])
        below, row = self._made.pop(i)
        if below:
            row |= self._pool.of_hash(below)
        return row

    def _make(self, some: list[int]) -> None:
        below, added = zip(*(self._grid.difference(self._cell, i) for i in some))
        rows = np.zeros((len(some), self._pool.tables.num_words), np.uint32)
        which = np.arange(len(some)).repeat([len(members) for members in added])
        self._members.add_to(rows, which, np.concatenate(added))
        self._made = dict(zip(some, zip(below, rows)))


class Unions:
    """Bit rows of unions of token sets. Those of a node's classes differ in how many of the neighbouring sets they hold."""

    def __init__(self, groups: Groups, tables: VocabularyTables) -> None:
        self._groups, self._tables = groups, tables
        self._longer: dict[int, list[np.ndarray]] = {}

    def row_of(self, group: np.ndarray) -> np.ndarray:
        """Bit row of the tokens of ascending sets."""
        first, size = int(group[0]), len(group)
        if size == 1 or int(group[-1]) - first != size - 1:
            return self._groups.row_of(group, self._tables)
        rows = self._longer.setdefault(first, [])
        while len(rows) < size:
            row = self._groups.row_of(np.array([first + len(rows)]), self._tables)
            rows.append(row | rows[-1] if rows else row)
        return rows[size - 1]


def overlapping(
    node: np.ndarray, token: np.ndarray, cost: np.ndarray, need: np.ndarray, tables: VocabularyTables
) -> Members:
    """Members of tokens that have several effects in one node, each with a cost and a need of its own.

    A token counts once for every pair that no other betters in both, and once less where two of these, next to each other,
    both apply: within any limits, once in all if it counts at all.
    """
    order = np.lexsort((need, cost, token, node))
    node, token, cost, need = node[order], token[order], cost[order], need[order]
    first = np.ones(len(node), bool)
    first[1:] = (node[1:] != node[:-1]) | (token[1:] != token[:-1])
    number = first.cumsum()
    falling = need - number * (int(need.max(initial=0)) + 1)
    least = np.minimum.accumulate(falling)
    better = first.copy()
    better[1:] |= falling[1:] < least[:-1]
    node, token, cost, need, first = node[better], token[better], cost[better], need[better], first[better]
    again = (~first).nonzero()[0]
    chosen = np.concatenate([np.arange(len(node)), again])
    positive = np.arange(len(chosen)) < len(node)
    hashes = tables.token_hash[token[chosen]]

    def add_to(rows: np.ndarray, which: np.ndarray, member: np.ndarray) -> None:
        kept = positive[member]
        tables.add_to(rows, which[kept], token[chosen[member[kept]]])

    return Members(
        node[chosen],
        cost[chosen],
        np.concatenate([need, need[again - 1]]),
        np.where(positive, hashes, np.uint64(0) - hashes),
        np.where(positive, 1, -1),
        add_to,
    )


def once_each(members: Members, num_nodes: int) -> tuple[Members, np.ndarray]:
    """The members of one of every few nodes that have the same tokens within the same limits, and int64[N], which one stands for
    each node."""
    begin = segment_starts(members.node)
    if not len(begin):
        return members, np.arange(num_nodes)
    limits = mixed((members.cost << 32) + members.need)
    signature = np.add.reduceat(mixed((members.hash ^ limits).view(np.int64)), begin)
    _, alike = alike_nodes(members.node[begin], signature, num_nodes)
    chosen = (alike[members.node] == members.node).nonzero()[0]
    node, cost, need, hashes, size = (column[chosen] for column in members[:5])
    return Members(node, cost, need, hashes, size, lambda rows, which, i: members.add_to(rows, which, chosen[i])), alike


def alike_nodes(node: np.ndarray, signature: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """(one of every few nodes that have the same signature, ascending; int64[N], which one stands for each node)."""
    alike = np.arange(num_nodes)
    _, example, which = exampled(signature)
    alike[node] = node[example][which]
    return np.sort(node[example]), alike

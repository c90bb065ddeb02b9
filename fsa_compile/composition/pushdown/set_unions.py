"""Token sets of nodes within limits on tokens and stack cells: as ranges, and as unions for mask rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import distinct, exampled, firsts, numbered
from fsa_compile.arrays.ranges import blocks, indices, segment_sizes, segment_starts, spread
from fsa_compile.composition.pushdown.costs import Costs
from fsa_compile.composition.pushdown.nodes import Nodes
from fsa_compile.composition.pushdown.token_groups import Groups
from fsa_compile.composition.tokens.budget_levels import Grid
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_BLOCK = 1 << 16
"""Token sets that are looked at together."""


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

    def at(self, index: np.ndarray) -> SetRanges:
        """Some of the ranges."""
        cost = None if self.cost is None else self.cost[index]
        return SetRanges(self.node[index], self.group[index], self.length[index], cost)

    def groups(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(place in `index`, group) of the token sets of some ranges."""
        if self.single:
            return np.arange(len(index)), self.group[index]
        if len(index) == 1:
            first, length = int(self.group[index[0]]), int(self.length[index[0]])
            return np.zeros(length, np.int64), np.arange(first, first + length)
        return spread(self.group[index], self.length[index])


class RangeSums:
    """How many tokens ranges of token sets have, and the sums of their hashes."""

    def __init__(self, sets: SetRanges, groups: Groups) -> None:
        self.sets, self.groups = sets, groups

    def sizes(self, some: np.ndarray) -> np.ndarray:
        """How many tokens some ranges have."""
        return self.groups.leaf_size.take(self._leaves(some)) if self.sets.single else self.all_sizes[some]

    def hashes(self, some: np.ndarray) -> np.ndarray:
        """The hashes of some ranges."""
        return self.groups.leaf_hash.take(self._leaves(some)) if self.sets.single else self.all_hashes[some]

    def kinds(self, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(hashes; which of them each of some ranges has)."""
        if not self.sets.single:
            return self.all_hashes[some], np.arange(len(some))
        every, which = numbered(self._leaves(some).astype(np.int64, copy=False))
        return self.groups.leaf_hash.take(every), which

    @cached_property
    def all_sizes(self) -> np.ndarray:
        """How many tokens all ranges have."""
        return self._summed(self.groups.size)

    @cached_property
    def all_hashes(self) -> np.ndarray:
        """The hashes of all ranges."""
        return self._summed(self.groups.hash)

    def _leaves(self, some: np.ndarray) -> np.ndarray:
        return self.groups.leaf.take(self.sets.group.take(some))

    def _summed(self, values: np.ndarray) -> np.ndarray:
        upto = np.zeros(len(values) + 1, values.dtype)
        values.cumsum(out=upto[1:])
        return upto[self.sets.group + self.sets.length] - upto[self.sets.group]


class NarrowSets:
    """Token sets of nodes that are narrow, a few nodes at a time.

    Args:
      first: int64[N + 1], where the token sets of every node begin.
      wide: bool[G], those that are not narrow; and how many each node has of them, int64[N].
      effect, leaf: integers [G], of token sets.

    Attributes:
      first: int64[N + 1], where the narrow ones of every node begin among these.
    """

    def __init__(self, first: np.ndarray, wide: np.ndarray, of_node: np.ndarray, effect: np.ndarray, leaf: np.ndarray) -> None:
        self._first, self._wide, self._effect, self._leaf = first, wide, effect, leaf
        self._size = np.diff(first) - of_node
        self.first = np.append(0, self._size.cumsum())

    def effects(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """(the effects, of so many, that they have; int32[size], to be filled in)."""
        used = np.zeros(size, bool)
        for some in blocks(self._size, _BLOCK):
            here, at = self._places(some)
            used[self._effect[here].take(at)] = True
        return used.nonzero()[0], np.zeros(size, np.int32)

    def numbered(self, some: slice, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the number of the effect, leaf) of the narrow token sets of some nodes."""
        here, at = self._places(some)
        return number.take(self._effect[here].take(at)), self._leaf[here].take(at)

    def _places(self, some: slice) -> tuple[slice, np.ndarray]:
        here = slice(self._first[some.start], self._first[some.stop])
        return here, (~self._wide[here]).nonzero()[0]


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


_SEVERAL_CLASSES = 32
"""A control with more classes of registers than this below its upper bound tells only its cheapest tokens from the others there:
every further level would be a row for each class."""


class LevelMembers:
    """What the grid of levels consists of."""

    def __init__(self, sets: SetRanges, sums: RangeSums, costs: Costs, nodes: Nodes, pool: RowPool) -> None:
        self._sets, self._sums, self._costs, self._nodes, self._pool = sets, sums, costs, nodes, pool

    def found(self, has_rows: np.ndarray, *, deterministic: bool) -> tuple[Members, np.ndarray]:
        """The members of one of every few nodes that have the same ones, and int64[N], which one stands for each node.

        Args:
          has_rows: bool[N], nodes that have levels.
          deterministic: whether the token sets of a node are disjoint.
        """
        if not deterministic or not self._sets.single:
            return once_each(self._of(has_rows[self._sets.node].nonzero()[0], deterministic), len(has_rows))
        # Where limits are those of effects, nodes are told apart a few at a time: what is left out takes no memory.
        groups, costs, nodes = self._sums.groups, self._costs, self._nodes
        whole = len(nodes.groups) == len(groups.node)  # which are then numbered as they are here
        first = groups.first[np.append(nodes.symbolic, len(nodes.number))] if whole else firsts(self._sets.node, len(has_rows))
        size = np.diff(first)
        node = (has_rows & (size > 0)).nonzero()[0]
        limits = mixed((costs.effect_cost << 32) + costs.effect_need)
        signature = np.empty(len(node), np.uint64)
        for some in blocks(size[node], _BLOCK):
            group = indices(first[node[some]], first[node[some] + 1])
            group = group if whole else self._sets.group.take(group)
            each = groups.leaf_hash.take(groups.leaf.take(group)) ^ limits.take(costs.effect.take(group))
            each = mixed(each.view(np.int64))
            signature[some] = np.add.reduceat(each, size[node[some]].cumsum() - size[node[some]])
        kept, alike = alike_nodes(node, signature, len(has_rows))
        return self._of(indices(first[kept], first[kept + 1]), deterministic), alike

    def _of(self, chosen: np.ndarray, deterministic: bool) -> Members:
        """The chosen token sets, made disjoint if need be."""
        sets, groups, costs = self._sets, self._sums.groups, self._costs
        node, effect = sets.node.take(chosen).astype(np.int64, copy=False), costs.effect.take(sets.group.take(chosen))
        need = costs.effect_need.take(effect)
        cost = self._coarse(node, costs.effect_cost.take(effect) if sets.cost is None else sets.cost[chosen], need)

        def add_to(rows: np.ndarray, which: np.ndarray, member: np.ndarray) -> None:
            self._add_to(rows, which, chosen[member])

        if deterministic:
            return Members(node, cost, need, self._sums.hashes(chosen), self._sums.sizes(chosen), add_to)
        of, group = sets.groups(chosen)
        which, token = groups.tokens_of(group)
        which = of[which]
        return overlapping(node[which], token, cost[which], need[which], self._pool.tables)

    def _add_to(self, rows: np.ndarray, which: np.ndarray, index: np.ndarray) -> None:
        """Adds the tokens of ranges of token sets to bit rows, as `Members.add_to`; many of them have rows of their own."""
        left = ~self._pool.add_stored(rows, which, *self._sums.kinds(index))
        of, group = self._sets.groups(index[left])
        self._sums.groups.add_to(rows, which[left][of], group, self._pool.tables)

    def _coarse(self, node: np.ndarray, cost: np.ndarray, need: np.ndarray) -> np.ndarray:
        """The costs of token sets, by node. Of many classes near an upper bound, the sets that are cheapest for their need keep
        theirs, and all others count as the costliest of their node."""
        ladder = self._nodes.classes.ladder[self._nodes.shape]
        many = (ladder[:, 3] > _SEVERAL_CLASSES) & (self._nodes.place > ladder[:, 1])
        at = many[node].nonzero()[0] if many.any() else node[:0]
        if not len(at):
            return cost
        begin, out = segment_starts(node[at]), cost.copy()
        size = segment_sizes(begin, len(at))
        cost, need = cost[at], need[at]
        least, most = cost, np.maximum.reduceat(cost, begin).repeat(size)
        for cells in distinct(need).tolist():
            within = np.minimum.reduceat(np.where(need > cells, most, cost), begin)  # of those that need as much or less
            least = np.where(need == cells, within.repeat(size), least)
        out[at] = np.where(cost > least, most, cost)
        return out


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
        below, which, members = self._grid.differences(self._cell, np.array(some))
        rows = np.zeros((len(some), self._pool.tables.num_words), np.uint32)
        self._members.add_to(rows, which, members)
        self._made = dict(zip(some, zip(below.tolist(), rows)))


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

"""Unions of a node's token sets by limits of cost and need: the cells of a grid, and which of them are worth storing.

Every cell that adds a token becomes a level of the artifact, whose bit row takes V / 8 bytes. Equal rows are stored once, but
grammars with many nodes and many distinct costs can still have thousands. Where the rows of all levels would take more than
1 MB (`pushdown_artifact`), levels that add fewer than 4 tokens to the level below are left out; where they would take more than
10 MB, those that add fewer than 16, 64, … tokens, and in the last resort all of a node but the first and the largest. Registers
close to the upper bound of a counted frame have two levels for each need, if there are many of them. What this means for a text:

* without limits on tokens and depth, nothing: the largest level of a node holds all of its tokens;
* under limits, a token of a level that was left out is allowed only where the next stored level fits. Masks are then
  stricter than they need be close to the limits, never looser;
* no text gets stuck: the first level of a node for each need, which holds its cheapest tokens, is always stored.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fsa_compile.arrays.integers import distinct, firsts, numbered, order_of
from fsa_compile.arrays.ranges import ranges, segment_sizes, segment_starts, spread

_SMALL, _MOST = 1 << 20, 10 << 20
"""Most bytes of the rows of all levels, of those that add any token at all, and of those that add enough."""
_FEWEST = (4, 16, 64, 256, 1024, 4096)
"""Fewest tokens that a level may add, tried in this order. Tokens of levels that are left out are allowed only under somewhat
looser limits, but some token always is, and without limits every one."""
_ANY = 1 << 30
"""More tokens than there are: what is then kept is kept in any case."""


class Grid:
    """The cells of all nodes; those of a node are its distinct costs times its distinct needs, in this order.

    Args:
      node, cost, need, hashes, count: of every token set, [M] each; by node. Sets of one node are disjoint.

    Attributes:
      node, cost, need: int64[L], of every cell.
      union: uint64[L], hash of all tokens within the cell's limits.
      count: int64[L], their number.
    """

    def __init__(
        self, node: np.ndarray, cost: np.ndarray, need: np.ndarray, hashes: np.ndarray, count: np.ndarray
    ) -> None:
        nodes, local = numbered(node)
        costs, of_cost, num_costs, first_cost = _steps(local, cost, len(nodes))
        needs, of_need, num_needs, first_need = _steps(local, need, len(nodes))
        size = num_costs * num_needs
        first = size.cumsum() - size
        self._at = first[local] + of_cost * num_needs[local] + of_need
        where = np.repeat(np.arange(len(nodes)), size)
        within = np.arange(len(where)) - first[where]
        self._row, self._column = within // num_needs[where], within % num_needs[where]
        self.node = nodes[where]
        self.cost, self.need = costs[first_cost[where] + self._row], needs[first_need[where] + self._column]
        self._num_needs = num_needs[where]
        self._turned = first[where] + self._column * num_costs[where] + self._row
        self.union, self.count = self._summed(hashes), self._summed(count)

    def _summed(self, values: np.ndarray) -> np.ndarray:
        """Of every cell, the sum over all token sets within its limits."""
        own = np.zeros(len(self.node), values.dtype)
        np.add.at(own, self._at, values)
        across = _running(own, self._column == 0)
        flipped, starts = np.empty_like(across), np.empty(len(own), bool)
        flipped[self._turned], starts[self._turned] = across, self._row == 0
        return _running(flipped, starts)[self._turned]

    def stored(self, fewest: int = 1) -> np.ndarray:
        """Cells that are kept, ascending.

        The last kept cell within two limits holds every token within them (`fewest` 1), or all but some: a cell is left out
        when it adds fewer than `fewest` tokens to the last kept one within its limits. It never lacks all of them, and the
        largest cell of a node is always kept, as are those that need any number of tokens for `fewest` 1.
        """
        if fewest <= 1:
            return self._adding
        last = np.append(self.node[1:] != self.node[:-1], True)
        some = last.copy()
        some[self._adding] = True
        cells = some.nonzero()[0]
        # Most nodes keep all: those of whose cells each adds enough to the one before, and needs as much.
        node, need, count = self.node[cells], self.need[cells], self.count[cells]
        short = (node[1:] == node[:-1]) & ((need[1:] < need[:-1]) | (count[1:] - count[:-1] < fewest))
        searched = np.zeros(int(self.node[-1]) + 1 if len(self.node) else 0, bool)
        searched[node[1:][short]] = True
        if not short.any():
            return cells
        out = cells[~searched[node]]
        return np.sort(np.concatenate((out, self._enough(cells[searched[node]], last, fewest))))

    @cached_property
    def _adding(self) -> np.ndarray:
        """Cells that add tokens to every other one within their limits, ascending."""
        index = np.arange(len(self.node))
        leaner = np.where(self._column == 0, 0, self.count[index - 1])
        cheaper = np.where(self._row == 0, 0, self.count[np.maximum(index - self._num_needs, 0)])
        return ((self.count != leaner) & (self.count != cheaper)).nonzero()[0]

    def _enough(self, cells: np.ndarray, last: np.ndarray, fewest: int) -> np.ndarray:
        """Of the cells of some nodes, those that add enough to the last kept one within their limits."""
        begin = segment_starts(self.node[cells])
        size = segment_sizes(begin, len(cells))
        order = order_of(-size)
        begin, size = begin[order], size[order]
        num_needs = self._num_needs[cells[begin]]
        first = num_needs.cumsum() - num_needs
        known = np.zeros(int(num_needs.sum()), np.int64)  # by node and need, tokens of the last kept cell that needs no more
        kept = np.zeros(len(cells), bool)
        for step in range(int(size.max(initial=0))):
            some = int(np.count_nonzero(size > step))
            at = begin[:some] + step
            cell = cells[at]
            count, column = self.count[cell], self._column[cell]
            before = known[first[:some] + column]
            enough = (count > before) & ((before == 0) | last[cell] | (count - before >= fewest))
            kept[at] = enough
            which, place = spread((first[:some] + column)[enough], (num_needs[:some] - column)[enough])
            known[place] = count[enough][which]
        return cells[kept]

    def fitting(self, row_bytes: int) -> np.ndarray:
        """Cells that are kept: all, or where their rows would take too much, fewer of those that add few tokens."""

        def size(cell: np.ndarray) -> int:
            return len(distinct(self.union[cell])) * row_bytes

        every = size(self._adding)  # of all that may be kept: a last cell that adds nothing has the row of one that does
        if every <= _MOST:
            return self._adding if every <= _SMALL else self.stored(_FEWEST[0])
        least = self.stored(_ANY)
        choices = map(self.stored, _FEWEST if size(least) <= _MOST else ())
        return next((cell for cell in choices if size(cell) <= _MOST), least)

    @cached_property
    def _members(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(token sets by cell, the cell and the need of each, where those of each cell begin)."""
        order = order_of(self._at)
        at = self._at.take(order)
        return order, at, self.need.take(at), firsts(at, len(self.node))

    def difference(self, cells: np.ndarray, i: int) -> tuple[int, np.ndarray]:
        """`differences` of kept cell i: (hash or 0; token sets that the cell adds)."""
        below, _, members = self.differences(cells, np.array([i]))
        return int(below[0]), members

    def differences(self, cells: np.ndarray, some: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What some kept cells add to an earlier kept one of the same node within their limits.

        Args:
          cells: those that are kept.
          some: int64[n], places in `cells`.

        Returns:
          (uint64[n], the hash of the earlier one, 0 where there is none; of every token set that is added, the place in `some`,
          ascending, and its number).
        """
        members, at, needs, first = self._members
        cell, place, before = cells[some], some - 1, np.full(len(some), -1)
        node, need = self.node[cell], self.need[cell]
        left = (place >= 0).nonzero()[0]
        while len(left):
            other = cells[place[left]]
            same, fits = self.node[other] == node[left], self.need[other] <= need[left]
            before[left[same & fits]] = other[same & fits]
            left = left[same & ~fits & (place[left] > 0)]
            place[left] -= 1
        found = before >= 0
        # Where the cells of a node are its costs, their members lie side by side.
        beside = found & (self._num_needs[cell] == 1)
        low = np.where(beside, before + 1, cell - self._row[cell] * self._num_needs[cell] - self._column[cell])
        which, index = ranges(first[low], first[cell + 1])
        above = np.where(found, self.need[before], -1)
        mine = ((needs[index] <= need[which]) & ((at[index] > before[which]) | (needs[index] > above[which]))).nonzero()[0]
        return np.where(found, self.union[before], np.uint64(0)), which[mine], members[index[mine]]


def _steps(local: np.ndarray, value: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct values of every node, by node: (values, place of each entry among its node's, how many, first of each)."""
    width = int(value.max(initial=0)) + 1
    keys, which = numbered(local * width + value)
    of, value = np.divmod(keys, width)
    count = np.bincount(of, minlength=size)
    first = count.cumsum() - count
    return value, which - first.take(local), count, first


def _running(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Running sums that begin anew where `starts` says."""
    if not len(values):
        return values
    total = values.cumsum(dtype=values.dtype)
    first = starts.nonzero()[0]
    return total - np.repeat(total[first] - values[first], segment_sizes(first, len(values)))

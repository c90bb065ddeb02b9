"""`lay_out`: groups, narrow arcs and levels of canonical constraints, from tokens with a target and a cost each.

With and without a stack this is the same: what leads to many tokens at once is a bit row, few tokens are arcs, and a node with
rows or many arcs has a level for every cost. `with_notes` adds the tokens that may not lead to some states of the filter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.arrays.integers import order_of
from fsa_compile.arrays.ranges import joined, segment_sizes, segment_starts
from fsa_compile.artifact.canonical_part import CanonicalPart
from fsa_compile.canonical.lazy_product.completions import FAR
from fsa_compile.composition.tokens.artifact_builder import ArtifactBuilder
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "assembling the artifact"
Level: TypeAlias = tuple[int, int, int, int]
"""Node, cost, need and row."""


class ListedTokens(NamedTuple):
    """Tokens one by one, int64[E] each; nodes ascend."""

    node: np.ndarray
    token: np.ndarray
    target: np.ndarray
    cost: np.ndarray


class WideTokens(NamedTuple):
    """Many tokens of a node and a target: all of them, uint32[W], and those of each cost."""

    node: int
    row: np.ndarray
    target: int
    by_cost: list[tuple[int, np.ndarray]]


class Effects(NamedTuple):
    """What targets and costs stand for.

    Attributes:
      node, push: int64[T], base node and push string of every target; None where targets are nodes and nothing is pushed.
      cell: weight of a stack cell in a cost.
    """

    node: np.ndarray | None = None
    push: np.ndarray | None = None
    cell: int = FAR

    def of(self, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Base nodes and push strings of some targets."""
        if self.node is None or self.push is None:
            return target, np.zeros_like(target)
        return self.node[target], self.push[target]


def lay_out(
    num_nodes: int,
    listed: ListedTokens,
    wide: list[WideTokens],
    rows: Rows | ListedRows,
    effects: Effects,
    deadline: Deadline,
) -> ArtifactBuilder:
    """The groups, arcs and levels of some nodes.

    Args:
      num_nodes: the dead one included.
      rows: takes bit rows; `Rows` where there are wide tokens, or costs with cells.
    """
    node, token, target, cost = listed
    groups: list[tuple[int, int, int]] = []
    parts: dict[int, list[tuple[int, np.ndarray]]] = {}
    if isinstance(rows, Rows):
        for of in wide:
            groups.append((of.node, rows.number(of.row), of.target))
            parts.setdefault(of.node, []).extend(of.by_cost)
    narrow = np.ones(len(node), bool)
    if len(node):
        order, begin, size = _segments(node * (int(target.max()) + 1) + target)
        large = (size > NARROW).nonzero()[0]
        if len(large):
            begin, size = begin[large], size[large]
            chosen = order[joined(begin, size)]
            narrow[chosen] = False
            groups += zip(node[order[begin]].tolist(), rows.of_lists(token[chosen], size), target[order[begin]].tolist())
    out = ArtifactBuilder(num_nodes)
    of_node, row, into = np.array(sorted(groups), np.int64).reshape(-1, 3).T
    out.groups(of_node, row, *effects.of(into))
    out.arcs_of_effects(
        node[narrow], token[narrow], *effects.of(target[narrow]), 0, 0, cost[narrow] % effects.cell, cost[narrow] // effects.cell
    )
    for masked in out.masked().nonzero()[0].tolist():
        parts.setdefault(masked, [])
    level = np.array(rows.levels(parts, listed, effects.cell, deadline), np.int64).reshape(-1, 4)
    out.levels(level[:, 0], level[:, 1], level[:, 3], level[:, 2])
    return out


def with_notes(
    canonical: CanonicalPart,
    notes: Iterable[tuple[int, np.ndarray, int]],
    states: Callable[[], list[list[int]]],
    rows: Rows,
) -> CanonicalPart:
    """Adds the tokens that may not lead to some states.

    Args:
      notes: node, tokens uint32[W], and the number of a list of states.
      rows: of the artifact.
    """
    unless = tuple((node, rows.number(tokens), number) for node, tokens, number in notes)
    return dataclasses.replace(canonical, unless=unless, excepted=tuple(map(tuple, states()))) if unless else canonical


def _segments(key: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order that sorts some numbers, and where each of them begins in it and how often it comes."""
    order = order_of(key)
    begin = segment_starts(key[order])
    return order, begin, segment_sizes(begin, len(order))


class Rows:
    """Distinct bit rows; row 0 is empty."""

    def __init__(self, tables: VocabularyTables, limits: CompileLimits) -> None:
        self.empty = np.zeros(tables.num_words, np.uint32)
        self._rows = [self.empty]
        self._number = {self._rows[0].tobytes(): 0}
        self._tables, self._limits = tables, limits

    def number(self, row: np.ndarray) -> int:
        key = row.tobytes()
        found = self._number.get(key)
        if found is None:
            found = self._number[key] = len(self._rows)
            self._rows.append(row)
            if found >= self._limits.max_rows:
                raise LimitError("max_rows", self._limits.max_rows, "storing the constraint's token sets")
            if found * row.nbytes > self._limits.max_bytes:
                raise LimitError("max_bytes", self._limits.max_bytes, "storing the constraint's token sets")
        return found

    def of_lists(self, token: np.ndarray, size: np.ndarray) -> list[int]:
        """The numbers of sets that are given token by token, one set after the other."""
        end = size.cumsum()
        return [self.number(self._tables.pack(token[at:to])) for at, to in zip((end - size).tolist(), end.tolist())]

    def levels(
        self,
        parts: dict[int, list[tuple[int, np.ndarray]]],
        tokens: ListedTokens,
        cell: int,
        deadline: Deadline,
    ) -> list[Level]:
        """The levels of some nodes: sets of tokens up to a cost and a need of cells, by ascending cost, then need.

        Args:
          parts: of these nodes the bit rows of tokens that are not listed, with their costs.
          tokens: those that are listed.
          cell: weight of a cell in a cost.
        """
        out: list[Level] = []
        order, begin, size = _segments(tokens.node << 32 | tokens.cost)
        token, first = tokens.token[order], order[begin]
        listed: dict[int, dict[int, np.ndarray]] = {node: {} for node in parts}
        for node, most, at, count in zip(*(column.tolist() for column in (tokens.node[first], tokens.cost[first], begin, size))):
            if node in listed:
                listed[node][most] = token[at : at + count]
        for node in sorted(parts):
            deadline.check(_DOING)
            up_to = _levels(parts[node], listed[node], cell, self._tables)
            out += [(node, most, need, self.number(row)) for most, need, row in up_to]
        return out

    def stacked(self) -> np.ndarray:
        """uint32[R, W]."""
        return np.concatenate(self._rows).reshape(len(self._rows), -1)


class ListedRows:
    """The same where all sets are given token by token, and costs have no cells: rows are told apart by the sums of their tokens'
    hashes, and most are made already."""

    def __init__(self, tables: VocabularyTables, limits: CompileLimits) -> None:
        self._tables, self._pool = tables, RowPool(tables, limits)

    def of_lists(self, token: np.ndarray, size: np.ndarray) -> list[int]:
        end = size.cumsum()
        begin = end - size
        hashes = np.add.reduceat(self._tables.token_hash.take(token), begin)
        return self._pool.numbers(hashes, lambda i: self._tables.pack(token[begin[i] : end[i]])).tolist()

    def levels(
        self,
        parts: dict[int, list[tuple[int, np.ndarray]]],
        tokens: ListedTokens,
        cell: int,
        deadline: Deadline,
    ) -> list[Level]:
        deadline.check(_DOING)
        if not parts:
            return []
        chosen = np.zeros(int(tokens.node[-1]) + 1, bool)
        chosen[list(parts)] = True
        part = chosen[tokens.node].nonzero()[0]
        key = tokens.node[part] << 32 | tokens.cost[part]
        order, begin, size = _segments(key)
        key, token = key[order[begin]], tokens.token[part[order]]
        node = key >> 32
        # Running sums of hashes within a node are those of its levels.
        hashes = np.add.reduceat(self._tables.token_hash.take(token), begin).cumsum()
        first = segment_starts(node)
        length = segment_sizes(first, len(node))
        hashes[first[1] if len(first) > 1 else len(hashes) :] -= hashes[first[1:] - 1].repeat(length[1:])
        least, end = begin[first].repeat(length), begin + size
        numbers = self._pool.numbers(hashes, lambda i: self._tables.pack(token[least[i] : end[i]]))
        return list(zip(node.tolist(), (key & 0xFFFFFFFF).tolist(), [0] * len(node), numbers.tolist()))

    def stacked(self) -> np.ndarray:
        return self._pool.stacked()


def _levels(
    wide: list[tuple[int, np.ndarray]], listed: dict[int, np.ndarray], cell: int, tables: VocabularyTables
) -> list[tuple[int, int, np.ndarray]]:
    """Cost, need, and bit row of the tokens within both, for every two that some tokens have, but those without any token.

    Args:
      wide, listed: bit rows, and lists, of the tokens of each cost.
      cell: weight of a cell in a cost.
    """
    by_cost: dict[int, np.ndarray] = {}
    for cost, bits in wide:
        by_cost[cost] = by_cost[cost] | bits if cost in by_cost else bits
    costs = {*by_cost, *listed}
    out: list[tuple[int, int, np.ndarray]] = []
    within = {need: np.zeros(tables.num_words, np.uint32) for need in sorted({cost // cell for cost in costs})}
    for most in sorted({cost % cell for cost in costs}):
        row = np.zeros(tables.num_words, np.uint32)
        for need, bits in within.items():
            cost = most + need * cell
            if cost in by_cost:
                bits |= by_cost[cost]
            if cost in listed:
                tables.add(bits, listed[cost])
            row = row | bits
            if row.any():
                out.append((most, need, row))
    return out

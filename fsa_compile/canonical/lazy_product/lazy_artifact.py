"""The artifact of a constraint beside which the tokenizer's filter is followed.

It has the constraint's own nodes, those that are reached, with the tokens that can be completed, and costs in canonical tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fsa_compile.arrays.index_sets import numbered
from fsa_compile.arrays.integers import order_of
from fsa_compile.arrays.ranges import joined, segment_starts
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.lazy_product.decision import DecidedDistances
from fsa_compile.canonical.lazy_product.lazy_distances import FAR
from fsa_compile.composition.tokens.artifact_builder import ArtifactBuilder
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "assembling the artifact"


def assemble_lazy(
    constraint: CompiledConstraint,
    distances: DecidedDistances,
    tables: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    extra: dict[str, Any],
) -> CompiledConstraint:
    """The artifact.

    Args:
      constraint: the constraint without the filter.
      distances: its own.
      tables: of the vocabulary.
      limits, deadline: of the compilation.
      extra: of the artifact.

    Raises:
      LimitError: too many rows or bytes, or out of time.
    """
    d = distances
    stays = np.flatnonzero(d.cost < FAR)
    wide = _wide_sets(d)
    reached = _reached(constraint, d, stays, wide)
    number = np.where(reached, np.cumsum(reached), 0)
    number[0] = 0
    stays = stays[reached[d.source[stays]]]
    source, token, target, cost = number[d.source[stays]], d.token[stays], number[d.target[stays]], d.cost[stays]
    count = int(reached.sum()) + 1
    bit_rows = Rows(tables, limits) if wide or d.excepted else None
    rows = bit_rows or _ListedRows(tables, limits)
    groups: list[tuple[int, int, int]] = []
    parts: dict[int, list[tuple[int, np.ndarray]]] = {}
    if bit_rows is not None:
        for node, row, into, by_cost in wide:
            if reached[node]:
                groups.append((int(number[node]), bit_rows.number(row), int(number[into])))
                parts.setdefault(int(number[node]), []).extend(by_cost)
    narrow = np.ones(len(source), bool)
    if len(source):
        order, begin, size = _segments(source * count + target)
        large = (size > NARROW).nonzero()[0]
        if len(large):
            begin, size = begin[large], size[large]
            chosen = order[joined(begin, size)]
            narrow[chosen] = False
            here = source[order[begin]].tolist()
            groups += zip(here, rows.of_lists(token[chosen], size), target[order[begin]].tolist())
    out = ArtifactBuilder(count)
    group = np.array(sorted(groups), np.int64).reshape(-1, 3)
    out.groups(*group.T)
    out.arcs_of_effects(source[narrow], token[narrow], target[narrow], 0, 0, 0, cost[narrow], 0)
    for node in out.masked().nonzero()[0].tolist():
        parts.setdefault(node, [])
    level = np.array(rows.levels(parts, source, token, cost, deadline), np.int64).reshape(-1, 3)
    out.levels(*level.T)
    if bit_rows is not None:
        unless = ((node, *note) for node in sorted(d.excepted) if reached[node] for note in d.unless_of(node))
        noted = [[int(number[node]), bit_rows.number(bits), which] for node, which, bits in unless]
        if noted:
            extra = {**extra, "canonical_unless": {"states": d.excepted_states(), "rows": noted}}
    kept = np.flatnonzero(reached)
    return out.constraint(
        tables,
        rows,
        source=constraint.source,
        start=number[constraint.start],
        extra=extra,
        accept=np.append(False, constraint.accept[kept]),
        distance=np.append(FAR, distances.nearest[kept]),
    )


def _segments(key: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order that sorts some numbers, and where each of them begins in it and how often it comes."""
    order = order_of(key)
    begin = segment_starts(key[order])
    return order, begin, np.append(begin[1:], len(order)) - begin


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
        source: np.ndarray,
        token: np.ndarray,
        cost: np.ndarray,
        deadline: Deadline,
    ) -> list[tuple[int, int, int]]:
        """(node, cost, number of a row): of some nodes the tokens that cost at most so much, by ascending cost.

        Args:
          parts: of these nodes the bit rows of tokens that are not listed, with their costs.
          source, token, cost: int64[E], of the listed ones, ascending by source.
        """
        out = []
        order, begin, size = _segments(source << 32 | cost)
        token, first = token[order], order[begin]
        listed: dict[int, dict[int, np.ndarray]] = {node: {} for node in parts}
        for node, most, at, count in zip(*(column.tolist() for column in (source[first], cost[first], begin, size))):
            if node in listed:
                listed[node][most] = token[at : at + count]
        for node in sorted(parts):
            deadline.check(_DOING)
            up_to = _levels(parts[node], listed[node], self._tables)
            out += [(node, most, self.number(row)) for most, row in up_to]
        return out

    def stacked(self) -> np.ndarray:
        """uint32[R, W]."""
        return np.concatenate(self._rows).reshape(len(self._rows), -1)


class _ListedRows:
    """The same where all sets are given token by token: told apart by the sums of their tokens' hashes, most are made already."""

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
        source: np.ndarray,
        token: np.ndarray,
        cost: np.ndarray,
        deadline: Deadline,
    ) -> list[tuple[int, int, int]]:
        deadline.check(_DOING)
        if not parts:
            return []
        chosen = np.zeros(int(source[-1]) + 1, bool)
        chosen[list(parts)] = True
        part = chosen[source].nonzero()[0]
        key = source[part] << 32 | cost[part]
        order, begin, size = _segments(key)
        key, token = key[order[begin]], token[part[order]]
        node = key >> 32
        # Running sums of hashes within a node are those of what costs at most so much.
        hashes = np.add.reduceat(self._tables.token_hash.take(token), begin).cumsum()
        first = segment_starts(node)
        length = np.append(first[1:], len(node)) - first
        hashes[first[1] if len(first) > 1 else len(hashes) :] -= hashes[first[1:] - 1].repeat(length[1:])
        least, end = begin[first].repeat(length), begin + size
        numbers = self._pool.numbers(hashes, lambda i: self._tables.pack(token[least[i] : end[i]]))
        return list(zip(node.tolist(), (key & 0xFFFFFFFF).tolist(), numbers.tolist()))

    def stacked(self) -> np.ndarray:
        return self._pool.stacked()


def _wide_sets(d: DecidedDistances) -> list[tuple[int, np.ndarray, int, list[tuple[int, np.ndarray]]]]:
    """The larger sets that keep tokens: node, bit row, target, and the tokens of each cost."""
    out = []
    known: dict[tuple[int, int], tuple[np.ndarray, list[tuple[int, np.ndarray]]]] = {}
    for node, groups in d.groups.items():
        for number, target in groups:
            if (number, target) not in known:
                row = d.row(number)
                by_cost = [(level + 1, row & bits) for level, bits in d.wide[target].levels]
                by_cost = [(cost, bits) for cost, bits in by_cost if np.count_nonzero(bits)]  # sooner than `any`
                for i, (_, bits) in enumerate(by_cost):
                    row = row | bits if i else bits
                known[number, target] = row, by_cost
            row, by_cost = known[number, target]
            if by_cost:
                out.append((node, row, target, by_cost))
    return out


def _reached(
    constraint: CompiledConstraint,
    d: DecidedDistances,
    stays: np.ndarray,
    wide: list[tuple[int, np.ndarray, int, list[tuple[int, np.ndarray]]]],
) -> np.ndarray:
    """The nodes that tokens that stay lead to from the start, bool[N]."""
    count = constraint.num_nodes
    more = np.array([node * count + target for node, _, target, _ in wide], np.int64)
    links, _ = numbered(np.append(d.source[stays] * count + d.target[stays], more), count**2)
    after: dict[int, list[int]] = {}
    for source, target in zip((links // count).tolist(), (links % count).tolist()):
        after.setdefault(source, []).append(target)
    found, todo = {constraint.start}, [constraint.start]
    while todo:
        new = [target for target in after.get(todo.pop(), ()) if target not in found]
        found.update(new)
        todo += new
    seen = np.zeros(count, bool)
    seen[list(found)] = True
    return seen


def _levels(
    wide: list[tuple[int, np.ndarray]], listed: dict[int, np.ndarray], tables: VocabularyTables
) -> list[tuple[int, np.ndarray]]:
    """Bit rows of the tokens that cost at most so much, by ascending cost, of bit rows and lists of those that cost so much."""
    by_cost: dict[int, np.ndarray] = {}
    for most, bits in wide:
        by_cost[most] = by_cost[most] | bits if most in by_cost else bits
    out: list[tuple[int, np.ndarray]] = []
    row = np.zeros(tables.num_words, np.uint32)
    for most in sorted({*by_cost, *listed}):
        row = row | by_cost[most] if most in by_cost else row.copy()
        if most in listed:
            tables.add(row, listed[most])
        out.append((most, row))
    return out

"""The artifact of a canonical product: tokens that can be completed, nodes alike made one, and the arrays of it.

As `assemble`, but every token has a cost of its own, and every place has two nodes: the first for tokens that the last one does
not forbid, the second for those that it does.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.arrays.integers import firsts, order_of
from fsa_compile.arrays.ranges import joined, segment_starts
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.explicit_product.product_distances import FAR, ProductDistances
from fsa_compile.canonical.explicit_product.product_graph import ProductGraph
from fsa_compile.composition.tokens.artifact_builder import ArtifactBuilder
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "assembling the artifact"


class _Wide(NamedTuple):
    """A wide set's tokens that stay, of one branch; `sums[i]` is the sum of the hashes of those that cost at most `costs[i]`."""

    sources: list[int]
    branch: int
    token: np.ndarray
    target: int
    cost: np.ndarray
    costs: list[int]
    sums: list[int]


class _Tokens(NamedTuple):
    """Tokens that stay: those of listed edges one by one, and wide ones by set. Nodes are those of the graph.

    source (ascending), branch (0 or 1), token, target, cost: int64[E].
    """

    source: np.ndarray
    branch: np.ndarray
    token: np.ndarray
    target: np.ndarray
    cost: np.ndarray
    wide: list[_Wide]


def assemble_product(
    constraint: CompiledConstraint,
    distances: ProductDistances,
    tables: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    extra: dict[str, Any],
) -> CompiledConstraint:
    """The artifact.

    Args:
      constraint: the constraint without the filter.
      distances: of its product.
      tables: of the vocabulary.
      limits, deadline: of the compilation.
      extra: of the artifact.

    Raises:
      LimitError: too many rows or bytes, or out of time.
    """
    graph = distances.graph
    tokens = _completed(graph, distances, tables)
    nearest = distances.nearest
    place, kept = _places(graph, tokens, tables, _reached(tokens, len(graph.node)))
    stays = np.zeros(len(place), bool)
    stays[kept] = True
    chosen = stays[tokens.source]
    pool = RowPool(tables, limits)
    arrays = _Arrays(2 * len(kept) + 1, pool, tables, deadline)
    node = 2 * place[tokens.source[chosen]] + 1 + tokens.branch[chosen]
    arrays.add(node, tokens.token[chosen], 2 * place[tokens.target[chosen]] + 1, tokens.cost[chosen])
    for wide in tokens.wide:
        for source in wide.sources:
            if stays[source]:
                arrays.add_wide(2 * int(place[source]) + 1 + wide.branch, 2 * int(place[wide.target]) + 1, wide)
    least = np.full(len(kept), FAR)
    np.minimum.at(least, place[place >= 0], nearest[place >= 0])
    return arrays.finished().constraint(
        tables,
        pool,
        source=constraint.source,
        start=1,
        extra=extra,
        accept=np.append(False, np.repeat(graph.accept[kept], 2)),
        distance=np.append(FAR, np.repeat(least, 2)),
    )


def _completed(graph: ProductGraph, distances: ProductDistances, tables: VocabularyTables) -> _Tokens:
    parts = []
    for branch in (0, 1):
        cost = distances.costs(branch)
        some = np.flatnonzero(cost < FAR)
        kind = np.full(len(some), branch)
        parts.append((graph.source[some], kind, graph.token[some], graph.targets[branch][some], cost[some]))
    wide = []
    for of in graph.wide:
        for branch, target in enumerate(of.targets):
            cost = distances.wide_costs(of, branch) if target >= 0 else np.zeros(0, np.int64)
            token = of.token
            if not (cost < FAR).all():
                token, cost = token[cost < FAR], cost[cost < FAR]
            if not len(cost):
                continue
            wide.append(_Wide(of.sources, branch, token, target, cost, *_hashed_by_cost(token, cost, tables)))
    columns = [np.concatenate(column) for column in zip(*parts)]
    if len(parts[1][0]):
        order = np.argsort(columns[0], kind="stable")
        columns = [column[order] for column in columns]
    return _Tokens(columns[0], columns[1], columns[2], columns[3], columns[4], wide)


def _reached(tokens: _Tokens, count: int) -> np.ndarray:
    """The nodes that tokens that stay lead to from the start, bool[X]."""
    begin = np.searchsorted(tokens.source, np.arange(count + 1))
    wide: dict[int, list[int]] = {}
    for of in tokens.wide:
        for source in of.sources:
            wide.setdefault(source, []).append(of.target)
    seen = np.zeros(count, bool)
    new = np.zeros(1, np.int64)
    while len(new):
        seen[new] = True
        after = np.zeros(count, bool)
        after[tokens.target[joined(begin[new], begin[new + 1] - begin[new])]] = True
        if wide:
            after[[target for source in new.tolist() for target in wide.get(source, ())]] = True
        new = np.flatnonzero(after & ~seen)
    return seen


def _places(
    graph: ProductGraph, tokens: _Tokens, tables: VocabularyTables, reached: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes from which the same sequences follow, whatever came before, have one place.

    Places are told apart by 64-bit hashes, sums over tokens of a hash of the token times one of its target's place; that two
    different ones agree has a chance below 2**-30 for the largest products.

    Returns:
      int64[X], number of each node's place, 0 for the start, -1 for nodes that are not reached; and the first
      node of each place.
    """
    count = len(graph.node)
    rng = np.random.default_rng(7)
    target, begin = tokens.target, np.searchsorted(tokens.source, np.arange(count + 1))
    branch_hash = rng.integers(0, 1 << 63, 2, np.uint64) * 2 + 1
    each = tables.token_hash[tokens.token] * branch_hash[tokens.branch]
    repeats = np.array([len(wide.sources) for wide in tokens.wide], np.int64)
    wide_source = np.array([source for wide in tokens.wide for source in wide.sources], np.int64)
    wide_target = np.repeat(np.array([wide.target for wide in tokens.wide], np.int64), repeats)
    wide_each = np.array([wide.sums[-1] for wide in tokens.wide], np.uint64)
    wide_each = np.repeat(wide_each * branch_hash[np.array([wide.branch for wide in tokens.wide], np.int64)], repeats)
    multiplier = rng.integers(0, 1 << 63, count + 2, np.uint64) * 2 + 1
    kind, kinds = graph.accept.astype(np.int64), 0
    while True:
        running = np.append(np.uint64(0), np.cumsum(each * multiplier[kind[target]], dtype=np.uint64))
        total = running[begin[1:]] - running[begin[:-1]]
        np.add.at(total, wide_source, wide_each * multiplier[kind[wide_target]])
        total = total * np.uint64(0x9E3779B97F4A7C15) + multiplier[kind]
        _, kind = np.unique(total, return_inverse=True)
        kind = kind.ravel()
        if int(kind.max()) == kinds:
            break
        kinds = int(kind.max())
    nodes = np.flatnonzero(reached)
    kinds_reached, first = np.unique(kind[nodes], return_index=True)
    number = np.full(kinds + 1, -1)
    number[kinds_reached[np.argsort(first)]] = np.arange(len(first))
    return np.where(reached, number[kind], -1), nodes[np.sort(first)]


class _Part(NamedTuple):
    """Tokens of one node and one target, and the sums of the hashes of those up to each cost."""

    token: np.ndarray
    cost: np.ndarray
    costs: list[int]
    sums: list[int]


class _Arrays:
    """Collects the tokens of nodes, and makes groups, arcs and levels of them."""

    def __init__(self, size: int, pool: RowPool, tables: VocabularyTables, deadline: Deadline) -> None:
        self._size, self._pool, self._tables, self._deadline = size, pool, tables, deadline
        self._listed: list[tuple[np.ndarray, ...]] = []
        self._wide: dict[tuple[int, int], list[_Part]] = {}

    def add(self, node: np.ndarray, token: np.ndarray, target: np.ndarray, cost: np.ndarray) -> None:
        """Takes tokens one by one."""
        order = np.argsort(node * self._size + target, kind="stable")
        node, token, target, cost = node[order], token[order], target[order], cost[order]
        begin = segment_starts(node * self._size + target)
        size = np.diff(np.append(begin, len(node)))
        large = size > NARROW
        for at, length in zip(begin[large].tolist(), size[large].tolist()):
            part = slice(at, at + length)
            self._wide.setdefault((int(node[at]), int(target[at])), []).append(self._part(token[part], cost[part]))
        narrow = np.repeat(~large, size)
        self._listed.append((node[narrow], token[narrow], target[narrow], cost[narrow]))

    def add_wide(self, node: int, target: int, wide: _Wide) -> None:
        """Takes many tokens of one node and target."""
        if len(wide.token) > NARROW or (node, target) in self._wide:
            self._wide.setdefault((node, target), []).append(_Part(wide.token, wide.cost, wide.costs, wide.sums))
        else:
            self.add(np.full(len(wide.token), node), wide.token, np.full(len(wide.token), target), wide.cost)

    def finished(self) -> ArtifactBuilder:
        """Groups, arcs and levels of all nodes."""
        out = ArtifactBuilder(self._size)
        of_node: dict[int, list[_Part]] = {}
        groups = np.array([(*key, self._row(FAR, parts)) for key, parts in sorted(self._wide.items())], np.int64).reshape(-1, 3)
        for (here, _), parts in sorted(self._wide.items()):
            of_node.setdefault(here, []).extend(parts)
        out.groups(groups[:, 0], groups[:, 2], groups[:, 1])
        node, token, target, cost = (np.concatenate(column) for column in zip(*self._listed))
        out.arcs_of_effects(node, token, target, 0, 0, 0, cost, 0)
        order = order_of(node)
        token, cost = token[order], cost[order]
        first = firsts(node, self._size).tolist()
        levels = []
        for here in out.masked().nonzero()[0].tolist():
            self._deadline.check(_DOING)
            parts = of_node.get(here, [])
            own = slice(first[here], first[here + 1])
            every = [*parts, self._part(token[own], cost[own])] if own.start < own.stop else parts
            levels += [(here, most, self._row(most, every)) for most in sorted({c for part in every for c in part.costs})]
        level = np.array(levels, np.int64).reshape(-1, 3)
        out.levels(*level.T)
        return out

    def _part(self, token: np.ndarray, cost: np.ndarray) -> _Part:
        costs, sums = _hashed_by_cost(token, cost, self._tables)
        return _Part(token, cost, costs, sums)

    def _row(self, most: int, parts: list[_Part]) -> int:
        """The bit row of the tokens that cost at most so much."""
        total = 0
        for part in parts:
            at = bisect_right(part.costs, most)
            total += part.sums[at - 1] if at else 0

        def built(_: int) -> np.ndarray:
            return self._tables.pack(np.concatenate([p.token if p.costs[-1] <= most else p.token[p.cost <= most] for p in parts]))

        return int(self._pool.numbers(np.array([total % (1 << 64)], np.uint64), built)[0])


def _hashed_by_cost(token: np.ndarray, cost: np.ndarray, tables: VocabularyTables) -> tuple[list[int], list[int]]:
    """The costs of some tokens, ascending, and the sums of the hashes of all tokens up to each of them."""
    order = np.argsort(cost, kind="stable")
    cost, sums = cost[order], np.cumsum(tables.token_hash[token[order]], dtype=np.uint64)
    last = np.append(np.flatnonzero(cost[1:] != cost[:-1]), len(cost) - 1)
    return cost[last].tolist(), sums[last].tolist()

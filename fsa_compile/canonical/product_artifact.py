"""The artifact of a canonical product: tokens that can be completed, nodes alike made one, and the arrays of it.

As `assemble`, but every token has a cost of its own, and every place has two nodes: the first for tokens that the last one does not
forbid, the second for those that it does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fsa_compile.artifact import ARC_BURST, CompiledConstraint
from fsa_compile.assemble import RowPool
from fsa_compile.canonical.product_distances import FAR, ProductDistances
from fsa_compile.canonical.product_graph import ProductGraph
from fsa_compile.entry_walk import NARROW
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary_tables import VocabularyTables, segment_starts

_DOING = "assembling the artifact"


class _Tokens(NamedTuple):
    """Tokens that stay: those of listed edges one by one, and wide ones by set. Nodes are those of the graph.

    source, token, target, cost: int64[E], branch: int64[E] 0 or 1; wide: the same of each set, with a source, a branch and a target.
    """

    source: np.ndarray
    branch: np.ndarray
    token: np.ndarray
    target: np.ndarray
    cost: np.ndarray
    wide: list[tuple[int, int, np.ndarray, int, np.ndarray]]


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
    tokens = _completed(graph, distances)
    nearest = distances.nearest
    place, kept = _places(graph, tokens, tables, nearest < FAR)
    stays = np.zeros(len(place), bool)
    stays[kept] = True
    chosen = stays[tokens.source]
    pool = RowPool(tables, limits)
    arrays = _Arrays(2 * len(kept) + 1, pool, tables, deadline)
    node = 2 * place[tokens.source[chosen]] + 1 + tokens.branch[chosen]
    arrays.add(node, tokens.token[chosen], 2 * place[tokens.target[chosen]] + 1, tokens.cost[chosen])
    for source, branch, token, target, cost in tokens.wide:
        if stays[source]:
            arrays.add_wide(2 * int(place[source]) + 1 + branch, token, 2 * int(place[target]) + 1, cost)
    least = np.full(len(kept), FAR)
    np.minimum.at(least, place[nearest < FAR], nearest[nearest < FAR])
    made = arrays.finished()
    return CompiledConstraint(
        vocab_size=tables.vocab_size,
        fingerprint=tables.fingerprint,
        stop_ids=tables.stop_ids,
        source=constraint.source,
        start=1,
        accept=np.append(False, np.repeat(graph.accept[kept], 2)),
        distance=np.append(FAR, np.repeat(least, 2)).astype(np.int32),
        rows=pool.stacked(),
        extra=extra,
        **made,
    )


def _completed(graph: ProductGraph, distances: ProductDistances) -> _Tokens:
    parts = []
    for branch in (0, 1):
        cost = distances.costs(branch)
        some = np.flatnonzero(cost < FAR)
        kind = np.full(len(some), branch)
        parts.append((graph.source[some], kind, graph.token[some], graph.targets[branch][some], cost[some]))
    wide = []
    for of in graph.wide:
        for branch, target in enumerate(of.targets):
            if target >= 0:
                cost = distances.wide_costs(of, branch)
                some = cost < FAR
                if some.all():
                    wide.append((of.source, branch, of.token, target, cost))
                elif some.any():
                    wide.append((of.source, branch, of.token[some], target, cost[some]))
    return _Tokens(*(np.concatenate(column) for column in zip(*parts)), wide)


def _places(
    graph: ProductGraph, tokens: _Tokens, tables: VocabularyTables, alive: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes from which the same sequences follow, whatever came before, have one place.

    Places are told apart by 64-bit hashes, sums over tokens of a hash of the token times one of its target's place; that two
    different ones agree has a chance below 2**-30 for the largest products.

    Returns:
      int64[X], number of each node's place, 0 for the start, -1 for nodes from which nothing can be completed; and the first
      node of each place.
    """
    count = len(graph.node)
    rng = np.random.default_rng(7)
    order = np.argsort(tokens.source, kind="stable")
    source, target = tokens.source[order], tokens.target[order]
    begin = np.searchsorted(source, np.arange(count + 1))
    branch_hash = rng.integers(0, 1 << 63, 2, np.uint64) * 2 + 1
    each = tables.token_hash[tokens.token[order]] * branch_hash[tokens.branch[order]]
    wide_source = np.array([of[0] for of in tokens.wide], np.int64)
    wide_target = np.array([of[3] for of in tokens.wide], np.int64)
    wide_each = np.array([tables.token_hash[of[2]].sum(dtype=np.uint64) for of in tokens.wide], np.uint64)
    wide_each *= branch_hash[np.array([of[1] for of in tokens.wide], np.int64)]
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
    nodes = np.flatnonzero(alive)
    kinds_alive, first = np.unique(kind[nodes], return_index=True)
    number = np.full(kinds + 1, -1)
    number[kinds_alive[np.argsort(first)]] = np.arange(len(first))
    return np.where(alive, number[kind], -1), nodes[np.sort(first)]


class _Arrays:
    """Collects the tokens of nodes, and makes groups, arcs and levels of them."""

    def __init__(self, size: int, pool: RowPool, tables: VocabularyTables, deadline: Deadline) -> None:
        self._size, self._pool, self._tables, self._deadline = size, pool, tables, deadline
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._wide: dict[tuple[int, int], list[tuple[np.ndarray, np.ndarray]]] = {}

    def add(self, node: np.ndarray, token: np.ndarray, target: np.ndarray, cost: np.ndarray) -> None:
        """Takes tokens one by one."""
        order = np.argsort(node * self._size + target, kind="stable")
        node, token, target, cost = node[order], token[order], target[order], cost[order]
        key = node * self._size + target
        begin = segment_starts(key)
        size = np.diff(np.append(begin, len(key)))
        large = size > NARROW
        for at, length in zip(begin[large].tolist(), size[large].tolist()):
            part = slice(at, at + length)
            self._wide.setdefault((int(node[at]), int(target[at])), []).append((token[part], cost[part]))
        narrow = np.repeat(~large, size)
        self._parts.append((node[narrow], token[narrow], target[narrow], cost[narrow]))

    def add_wide(self, node: int, token: np.ndarray, target: int, cost: np.ndarray) -> None:
        """Takes many tokens of one node and target."""
        if len(token) > NARROW or (node, target) in self._wide:
            self._wide.setdefault((node, target), []).append((token, cost))
        else:
            self.add(np.full(len(token), node), token, np.full(len(token), target), cost)

    def finished(self) -> dict[str, np.ndarray]:
        """Fields of the artifact."""
        node, token, target, cost = (np.concatenate(column) for column in zip(*self._parts))
        order = np.argsort(node * self._tables.vocab_size + token, kind="stable")
        node, token, target, cost = node[order], token[order], target[order], cost[order]
        arc_offset = np.searchsorted(node, np.arange(self._size + 1))
        effect, number = np.unique(target * (FAR + 1) + cost, return_inverse=True)
        effects = np.zeros((len(effect) + 1, 6), np.int32)
        effects[1:, 0], effects[1:, 4] = effect // (FAR + 1), effect % (FAR + 1)
        groups, levels = [], []
        of_node: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        for (here, there), parts in sorted(self._wide.items()):
            self._deadline.check(_DOING)
            groups.append((here, self._row([part[0] for part in parts]), there))
            of_node.setdefault(here, []).extend(parts)
        for here in np.flatnonzero(np.diff(arc_offset) > ARC_BURST).tolist():
            of_node.setdefault(here, [])
        for here, parts in sorted(of_node.items()):
            self._deadline.check(_DOING)
            own = slice(arc_offset[here], arc_offset[here + 1])
            levels += [(here, most, row) for most, row in self._levels([*parts, (token[own], cost[own])])]
        group, level = np.array(groups, np.int32).reshape(-1, 3), np.array(levels, np.int32).reshape(-1, 3)
        every = np.arange(self._size + 1)
        return {
            "group_offset": np.searchsorted(group[:, 0], every).astype(np.int32),
            "group_row": np.ascontiguousarray(group[:, 1]),
            "group_next": np.ascontiguousarray(group[:, 2]),
            "arc_offset": arc_offset.astype(np.int32),
            "arc_token": token.astype(np.int32),
            "arc_effect": (number.ravel() + 1).astype(np.int32),
            "effects": effects,
            "level_offset": np.searchsorted(level[:, 0], every).astype(np.int32),
            "level_cost": np.ascontiguousarray(level[:, 1]),
            "level_row": np.ascontiguousarray(level[:, 2]),
        }

    def _levels(self, parts: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[int, int]]:
        """Cost and row of each level: all tokens up to a cost."""
        token, cost = (np.concatenate(column) for column in zip(*parts))
        steps = np.unique(cost).tolist()
        return [(most, self._row([token if most == steps[-1] else token[cost <= most]])) for most in steps]

    def _row(self, tokens: list[np.ndarray]) -> int:
        hashes = np.array([sum(int(self._tables.token_hash[part].sum(dtype=np.uint64)) for part in tokens) % (1 << 64)], np.uint64)
        return int(self._pool.numbers(hashes, lambda _: self._tables.pack(np.concatenate(tokens)))[0])

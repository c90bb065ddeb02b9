"""The artifact of a canonical product: tokens that can be completed, and nodes alike made one.

As in `lazy_artifact`, but every place has two nodes: the first for tokens that the last one does
not forbid, the second for those that it does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.graphs import reached
from fsa_compile.arrays.integers import order_of
from fsa_compile.artifact.canonical_part import CanonicalPart
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.explicit_product.product_distances import ProductDistances
from fsa_compile.canonical.explicit_product.product_graph import ProductGraph
from fsa_compile.canonical.lazy_product.completions import FAR
from fsa_compile.canonical.lazy_product.token_layout import Effects, ListedRows, ListedTokens, Rows, WideTokens, lay_out
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


class _Wide(NamedTuple):
    """A wide set's tokens that stay, of one branch."""

    sources: list[int]
    branch: int
    token: np.ndarray
    target: int
    cost: np.ndarray


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
    canonical: CanonicalPart,
) -> CompiledConstraint:
    """The artifact of what can be completed; `constraint` is without the filter."""
    graph = distances.graph
    tokens = _completed(graph, distances)
    nearest = distances.nearest
    place, kept = _places(graph, tokens, tables)
    stays = np.zeros(len(place), bool)
    stays[kept] = True
    chosen = stays[tokens.source]
    node = 2 * place[tokens.source[chosen]] + 1 + tokens.branch[chosen]
    order = order_of(node)
    columns = node, tokens.token[chosen], 2 * place[tokens.target[chosen]] + 1, tokens.cost[chosen]
    listed = ListedTokens(*(column[order] for column in columns))
    wide = _wide_tokens(tokens, place, stays, tables)
    rows = Rows(tables, limits) if wide else ListedRows(tables, limits)
    out = lay_out(2 * len(kept) + 1, listed, wide, rows, Effects(), deadline)
    least = np.full(len(kept), FAR)
    np.minimum.at(least, place[place >= 0], nearest[place >= 0])
    return out.constraint(
        tables,
        rows=rows.stacked(),
        source=constraint.source,
        start=1,
        extra=constraint.extra,
        canonical=canonical,
        accept=np.append(False, np.repeat(graph.accept[kept], 2)),
        distance=np.append(FAR, np.repeat(least, 2)),
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
            cost = distances.wide_costs(of, branch) if target >= 0 else np.zeros(0, np.int64)
            token = of.token
            if not (cost < FAR).all():
                token, cost = token[cost < FAR], cost[cost < FAR]
            if len(cost):
                wide.append(_Wide(of.sources, branch, token, target, cost))
    columns = [np.concatenate(column) for column in zip(*parts)]
    if len(parts[1][0]):
        order = np.argsort(columns[0], kind="stable")
        columns = [column[order] for column in columns]
    return _Tokens(columns[0], columns[1], columns[2], columns[3], columns[4], wide)


def _places(graph: ProductGraph, tokens: _Tokens, tables: VocabularyTables) -> tuple[np.ndarray, np.ndarray]:
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
    wide_each = np.array([tables.token_hash[wide.token].sum(dtype=np.uint64) for wide in tokens.wide], np.uint64)
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
    stays = reached(np.append(tokens.source, wide_source), np.append(target, wide_target), [0], count)
    nodes = np.flatnonzero(stays)
    kinds_reached, first = np.unique(kind[nodes], return_index=True)
    number = np.full(kinds + 1, -1)
    number[kinds_reached[np.argsort(first)]] = np.arange(len(first))
    return np.where(stays, number[kind], -1), nodes[np.sort(first)]


def _wide_tokens(tokens: _Tokens, place: np.ndarray, stays: np.ndarray, tables: VocabularyTables) -> list[WideTokens]:
    """The wide sets of the nodes that stay; those of one node and target are one set."""
    found: dict[tuple[int, int], WideTokens] = {}
    for of in tokens.wide:
        row, target = tables.pack(of.token), 2 * int(place[of.target]) + 1
        by_cost = [(cost, tables.pack(of.token[of.cost == cost])) for cost in np.unique(of.cost).tolist()]
        for source in of.sources:
            if stays[source]:
                node = 2 * int(place[source]) + 1 + of.branch
                known = found.get((node, target), WideTokens(node, np.zeros_like(row), target, []))
                found[node, target] = known._replace(row=known.row | row, by_cost=known.by_cost + by_cost)
    return list(found.values())

"""The arrays of a canonical product's artifact: as `assemble`, but with a cost of each token's own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fsa_compile.artifact import ARC_BURST, CompiledConstraint
from fsa_compile.assemble import RowPool
from fsa_compile.entry_walk import NARROW
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary_tables import VocabularyTables


class ProductEdges(NamedTuple):
    """The nodes of a product and their tokens.

    Attributes:
      accept: bool[N]; distance: int64[N], node 0 dead, node 1 the start.
      parts: per node in order: its number, tokens (ascending), targets, costs.
    """

    accept: np.ndarray
    distance: np.ndarray
    parts: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]


def assemble_product(
    constraint: CompiledConstraint,
    edges: ProductEdges,
    tables: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    extra: dict[str, Any],
) -> CompiledConstraint:
    """The artifact.

    Raises:
      LimitError: too many rows or bytes, or out of time.
    """
    pool = RowPool(tables, limits)
    size = len(edges.accept)
    counts = np.zeros((3, size + 1), np.int64)
    groups, arcs, levels = [], [], []

    def row_of(tokens: np.ndarray) -> int:
        hashes = np.array([tables.token_hash[tokens].sum(dtype=np.uint64)])
        return int(pool.numbers(hashes, lambda _: tables.pack(tokens))[0])

    for node, token, target, cost in edges.parts:
        deadline.check("assembling the artifact")
        order = np.argsort(target, kind="stable")
        bounds = np.flatnonzero(np.append(True, target[order][1:] != target[order][:-1])) if len(order) else np.zeros(0, int)
        ends = np.append(bounds[1:], len(order))
        wide = ends - bounds > NARROW
        for begin, end in zip(bounds[wide], ends[wide]):
            groups.append((row_of(np.sort(token[order[begin:end]])), int(target[order[begin]])))
        narrow = np.sort(np.concatenate([order[:0], *(order[b:e] for b, e in zip(bounds[~wide], ends[~wide]))]))
        arcs.append(np.stack([token[narrow], target[narrow], cost[narrow]], 1))
        counts[0, node + 1], counts[1, node + 1] = int(wide.sum()), len(narrow)
        if wide.any() or len(narrow) > ARC_BURST:
            for most in np.unique(cost).tolist():
                levels.append((most, row_of(token[cost <= most])))
            counts[2, node + 1] = len(np.unique(cost))
    joined = np.concatenate([np.zeros((0, 3), np.int64), *arcs])
    effect, number = np.unique(joined[:, 1:], axis=0, return_inverse=True)
    effects = np.zeros((len(effect) + 1, 6), np.int32)
    effects[1:, 0], effects[1:, 4] = effect[:, 0], effect[:, 1]
    group, level = np.array(groups, np.int32).reshape(-1, 2), np.array(levels, np.int32).reshape(-1, 2)
    offsets = np.cumsum(counts, axis=1).astype(np.int32)
    return CompiledConstraint(
        vocab_size=tables.vocab_size,
        fingerprint=tables.fingerprint,
        stop_ids=tables.stop_ids,
        source=constraint.source,
        start=1,
        accept=edges.accept,
        distance=edges.distance.astype(np.int32),
        rows=pool.stacked(),
        group_offset=offsets[0],
        group_row=np.ascontiguousarray(group[:, 0]),
        group_next=np.ascontiguousarray(group[:, 1]),
        arc_offset=offsets[1],
        arc_token=joined[:, 0].astype(np.int32),
        arc_effect=(number.ravel() + 1).astype(np.int32),
        effects=effects,
        level_offset=offsets[2],
        level_cost=np.ascontiguousarray(level[:, 0]),
        level_row=np.ascontiguousarray(level[:, 1]),
        extra=extra,
    )

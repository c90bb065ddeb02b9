"""The artifact of a canonical constraint with a stack: that of the constraint, without the tokens that cannot be completed, and
with costs in canonical tokens."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fsa_compile.arrays.integers import order_of
from fsa_compile.arrays.ranges import segment_starts
from fsa_compile.artifact.arrays import ARC_BURST
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.lazy_product.lazy_artifact import Rows
from fsa_compile.canonical.lazy_product.lazy_distances import FAR
from fsa_compile.canonical.stacks.stack_distances import CELL, StackDistances
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "assembling the artifact"


def assemble_stack(
    constraint: CompiledConstraint,
    distances: StackDistances,
    tables: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    extra: dict[str, Any],
) -> CompiledConstraint:
    """The artifact.

    Args:
      constraint: the constraint without the filter.
      distances: its own, decided.
      tables: of the vocabulary.
      limits, deadline: of the compilation.
      extra: of the artifact.

    Raises:
      LimitError: too many rows or bytes, or out of time.
    """
    e = distances.edges
    rows = Rows(tables, limits)
    groups: list[tuple[int, int, int, int]] = []
    levels: list[tuple[int, int, int, int]] = []
    arcs: list[tuple[np.ndarray, ...]] = []
    for node in range(1, constraint.num_nodes):
        deadline.check(_DOING)
        token, target, cost = distances.tokens.listed(node)
        by_cost: dict[int, np.ndarray] = {}
        wide = list(distances.tokens.wide(node))
        for into, held in wide:
            row = np.bitwise_or.reduce([bits for _, bits in held]) if held else rows.empty
            if held:
                groups.append((node, rows.number(row), int(e.base[into]), int(e.push_of[into])))
            for most, bits in held:
                by_cost[most] = by_cost[most] | bits if most in by_cost else bits
        narrow = np.ones(len(token), bool)
        order = order_of(target)
        begin = segment_starts(target[order]) if len(token) else order
        for at, end in zip(begin.tolist(), np.append(begin[1:], len(order)).tolist()):
            if end - at > NARROW:
                chosen = order[at:end]
                narrow[chosen] = False
                into = int(target[chosen[0]])
                groups.append((node, rows.number(tables.pack(token[chosen])), int(e.base[into]), int(e.push_of[into])))
        count = int(narrow.sum())
        if by_cost or count < len(token) or count > ARC_BURST:
            for most in np.unique(cost).tolist():
                bits = tables.pack(token[cost == most])
                by_cost[most] = by_cost[most] | bits if most in by_cost else bits
            levels += [(node, *level) for level in _levels(by_cost, rows)]
        arcs.append((np.full(count, node), token[narrow], target[narrow], cost[narrow]))
    source, token, target, cost = (np.concatenate(column).astype(np.int64) for column in zip(*arcs))
    order = np.lexsort((token, source))
    source, token = source[order], token[order]
    kinds, kind = np.unique(
        np.stack([e.base[target], e.push_of[target], cost % CELL, cost // CELL], 1)[order], axis=0, return_inverse=True
    )
    effects = np.zeros((len(kinds) + 1, 6), np.int32)
    effects[1:, :2], effects[1:, 4:] = kinds[:, :2], kinds[:, 2:]
    exceptions = [[node, rows.number(bits), number] for node, bits, number in distances.tokens.unless()]
    if exceptions:
        states = distances.tokens.distances.shunned_states()
        extra = {**extra, "canonical_unless": {"states": states, "rows": exceptions}}
    nodes = np.arange(constraint.num_nodes + 1)
    group = np.array(sorted(groups), np.int32).reshape(-1, 4)
    level = np.array(levels, np.int32).reshape(-1, 4)
    nearest = distances.nearest
    known = nearest < FAR
    none = np.zeros(len(group), np.int32)
    return dataclasses.replace(
        constraint,
        distance=np.where(known, nearest % CELL, constraint.distance).astype(np.int32),
        need=np.where(known, nearest // CELL, constraint.need).astype(np.int32),
        symbol_cost=distances.symbol_cost.astype(np.int32),
        symbol_need=np.zeros_like(constraint.symbol_need),
        rows=rows.stacked(),
        group_offset=np.searchsorted(group[:, 0], nodes).astype(np.int32),
        group_row=np.ascontiguousarray(group[:, 1]),
        group_next=np.ascontiguousarray(group[:, 2]),
        group_push=np.ascontiguousarray(group[:, 3]),
        group_add=none,
        group_set=none,
        arc_offset=np.searchsorted(source, nodes).astype(np.int32),
        arc_token=token.astype(np.int32),
        arc_effect=(kind.ravel() + 1).astype(np.int32),
        effects=effects,
        level_offset=np.searchsorted(level[:, 0], nodes).astype(np.int32),
        level_cost=np.ascontiguousarray(level[:, 1]),
        level_need=np.ascontiguousarray(level[:, 2]),
        level_row=np.ascontiguousarray(level[:, 3]),
        extra=extra,
    )


def _levels(by_cost: dict[int, np.ndarray], rows: Rows) -> list[tuple[int, int, int]]:
    """Tokens, cells and row: of every two limits that some tokens have, the tokens within both."""
    tokens = sorted({cost % CELL for cost in by_cost})
    cells = sorted({cost // CELL for cost in by_cost})
    out = []
    for most in tokens:
        row = rows.empty
        for deep in cells:
            within = [bits for cost, bits in by_cost.items() if cost // CELL == deep and cost % CELL <= most]
            row = np.bitwise_or.reduce([row, *within])
            if row.any():
                out.append((most, deep, rows.number(row)))
    return out

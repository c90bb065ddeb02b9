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
from fsa_compile.composition.tokens.artifact_builder import ArtifactBuilder
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
    out = ArtifactBuilder(constraint.num_nodes)
    of, row, goes, push = np.array(sorted(groups), np.int64).reshape(-1, 4).T
    none = np.zeros(len(of), np.int64)
    out.groups(of, row, goes, push, none, none)
    out.arcs_of_effects(source, token, e.base[target], e.push_of[target], 0, 0, cost % CELL, cost // CELL)
    level = np.array(levels, np.int64).reshape(-1, 4)
    out.levels(level[:, 0], level[:, 1], level[:, 3], level[:, 2])
    exceptions = [[node, rows.number(bits), number] for node, bits, number in distances.tokens.unless()]
    if exceptions:
        states = distances.tokens.distances.excepted_states()
        extra = {**extra, "canonical_unless": {"states": states, "rows": exceptions}}
    nearest = distances.nearest
    known = nearest < FAR
    changes = {
        "distance": np.where(known, nearest % CELL, constraint.distance),
        "need": np.where(known, nearest // CELL, constraint.need),
        "symbol_cost": distances.symbol_cost,
        "symbol_need": np.zeros_like(constraint.symbol_need),
        "rows": rows.stacked(),
    }
    return dataclasses.replace(constraint, extra=extra, **out.typed(changes))


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

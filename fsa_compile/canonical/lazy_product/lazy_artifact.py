"""The artifact of a constraint beside which the tokenizer's filter is followed.

It has the constraint's own nodes, those that are reached, with the tokens that can be completed, and costs in canonical tokens.
"""

from __future__ import annotations

import numpy as np

from fsa_compile.arrays.graphs import reached
from fsa_compile.artifact.canonical_part import CanonicalPart
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.lazy_product import token_layout as layout
from fsa_compile.canonical.lazy_product.completions import FAR
from fsa_compile.canonical.lazy_product.decision import DecidedDistances
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


def assemble_lazy(
    constraint: CompiledConstraint,
    distances: DecidedDistances,
    tables: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    canonical: CanonicalPart,
) -> CompiledConstraint:
    """The artifact of what can be completed: `constraint` is without the filter, `canonical` without its exceptions."""
    d = distances
    stays = np.flatnonzero(d.cost < FAR)
    wide = _wide_sets(d)
    source = np.append(d.source[stays], np.array([of.node for of in wide], np.int64))
    target = np.append(d.target[stays], np.array([of.target for of in wide], np.int64))
    kept = reached(source, target, [constraint.start], constraint.num_nodes)
    number = np.where(kept, np.cumsum(kept), 0)
    stays = stays[kept[d.source[stays]]]
    listed = layout.ListedTokens(number[d.source[stays]], d.token[stays], number[d.target[stays]], d.cost[stays])
    wide = [of._replace(node=int(number[of.node]), target=int(number[of.target])) for of in wide if kept[of.node]]
    bit_rows = layout.Rows(tables, limits) if wide or d.excepted else None
    rows = bit_rows or layout.ListedRows(tables, limits)
    out = layout.lay_out(int(kept.sum()) + 1, listed, wide, rows, layout.Effects(), deadline)
    if bit_rows is not None:
        nodes = [node for node in sorted(d.excepted) if kept[node]]
        notes = ((int(number[node]), bits, which) for node in nodes for which, bits in d.unless_of(node))
        canonical = layout.with_notes(canonical, notes, d.excepted_states, bit_rows)
    return out.constraint(
        tables,
        rows=rows.stacked(),
        source=constraint.source,
        start=number[constraint.start],
        extra=constraint.extra,
        canonical=canonical,
        accept=np.append(False, constraint.accept[kept]),
        distance=np.append(FAR, distances.nearest[kept]),
    )


def _wide_sets(d: DecidedDistances) -> list[layout.WideTokens]:
    """The larger sets that keep tokens."""
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
                out.append(layout.WideTokens(node, row, target, by_cost))
    return out

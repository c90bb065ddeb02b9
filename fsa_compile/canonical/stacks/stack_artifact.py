"""The artifact of a canonical constraint with a stack: that of the constraint, without the tokens that cannot be completed, and
with costs in canonical tokens."""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.artifact.canonical_part import CanonicalPart
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.lazy_product.completions import FAR
from fsa_compile.canonical.lazy_product.token_layout import Effects, Rows, lay_out, with_notes
from fsa_compile.canonical.stacks.stack_distances import CELL, StackDistances
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "assembling the artifact"


def assemble_stack(
    constraint: CompiledConstraint,
    distances: StackDistances,
    tables: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    canonical: CanonicalPart,
) -> CompiledConstraint:
    """The artifact of what can be completed: `constraint` is without the filter, `canonical` without its exceptions."""
    e, tokens = distances.edges, distances.tokens
    rows = Rows(tables, limits)
    out = lay_out(
        constraint.num_nodes, tokens.every_listed(), tokens.every_wide(), rows, Effects(e.base, e.push_of, CELL), deadline
    )
    canonical = with_notes(canonical, tokens.unless(), tokens.distances.excepted_states, rows)
    nearest = distances.nearest
    known = nearest < FAR
    changes = {
        "distance": np.where(known, nearest % CELL, constraint.distance),
        "need": np.where(known, nearest // CELL, constraint.need),
        "symbol_cost": distances.symbol_cost,
        "symbol_need": np.zeros_like(constraint.symbol_need),
        "rows": rows.stacked(),
    }
    return dataclasses.replace(constraint, canonical=canonical, **out.typed(changes))

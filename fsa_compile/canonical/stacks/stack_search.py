"""`decided_distances`: what can be completed in canonical tokens of a constraint with a stack, by telling as many stacks apart as
that takes.

Begins with few classes of stacks (`StackClasses`), and splits them while it is not certain what can be completed: those that
differ in a token that matters (`refinement`), and where no such token is known, by one more of their topmost cells.
"""

from __future__ import annotations

import numpy as np

from fsa_compile.artifact.bitmask import words_of
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables
from fsa_compile.canonical.stacks.stack_classes import StackClasses, alike, classified
from fsa_compile.canonical.stacks.stack_distances import StackDistances
from fsa_compile.canonical.stacks.stack_edges import StackEdges
from fsa_compile.limits import Deadline

_ROUNDS = 24
"""Most times that classes are split."""
_BY_TOKENS = 5
"""After this many splits by deciding tokens, classes are split once by their topmost cells."""
_SLACKS = (2, 4, 8, 16)
"""Tokens that symbols may cost beyond their costs without the filter, tried in this order."""
_GROWING = 5
"""The slack is raised after distances have diverged more than this many times."""
_MOST_NODES = 20_000
"""Most nodes of a constraint whose nodes know the class of their stack."""


def decided_distances(
    constraint: CompiledConstraint, tables: CanonicalTables, deadline: Deadline, state: int, last: int
) -> tuple[CompiledConstraint, StackDistances] | None:
    """The constraint, its nodes told apart by stacks, and its distances; None where it is not certain what can be completed.

    Args:
      constraint: with a stack, deterministic, without counters and sets of keys.
      state: of the filter, before the first token.
      last: the token before the first, -1 for none.
    """
    single_bytes = words_of(np.flatnonzero(tables.single_bytes >= 0), constraint.vocab_size)
    classes, slacks = StackClasses(alike(StackEdges(constraint), single_bytes)), list(_SLACKS)
    growing = 0
    for number in range(1, _ROUNDS + 1):
        found = classified(constraint, classes, _MOST_NODES, deadline)
        if found is None:
            break
        distances = StackDistances(found.constraint, tables.contexts, deadline, state, last, slacks[0])
        if distances.decided:
            return found.constraint, distances
        growing += distances.gave_up
        if growing > _GROWING and len(slacks) > 1:
            slacks.pop(0)
            growing = 0
        if number % (_BY_TOKENS + 1) and distances.apart is not None and classes.split(found.cells, distances.apart):
            continue
        if distances.gave_up and len(slacks) > 1:
            slacks.pop(0)
        elif not classes.split_further(found.cells, {found.classes[node] for node in distances.unsure}):
            break
    return None

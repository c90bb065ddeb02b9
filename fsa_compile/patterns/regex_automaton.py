"""Pattern tree to letter automaton: chooses the construction. Positions, conditions and minimising are other modules' work."""

from __future__ import annotations

from fsa_compile.automata.letter_dfa import LetterDfa
from fsa_compile.automata.minimize import minimize
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.glushkov import ConditionFound, Positions
from fsa_compile.patterns.regex_tree import Node
from fsa_compile.patterns.subset_construction import determinize


def build_automaton(tree: Node, limits: CompileLimits, deadline: Deadline) -> LetterDfa | None:
    """The minimal deterministic automaton of a syntax tree, or None when it matches no text."""
    try:
        return _without_conditions(tree, limits, deadline)
    except ConditionFound:
        from fsa_compile.patterns.guarded_glushkov import strip_edges

        tree = strip_edges(tree)
    try:
        return _without_conditions(tree, limits, deadline)
    except ConditionFound:
        return _with_conditions(tree, limits, deadline)


def _without_conditions(tree: Node, limits: CompileLimits, deadline: Deadline) -> LetterDfa | None:
    positions = Positions(tree, limits, deadline)
    if not positions.first:
        return None
    return minimize(determinize(positions, limits, deadline), acyclic=positions.acyclic)


def _with_conditions(tree: Node, limits: CompileLimits, deadline: Deadline) -> LetterDfa | None:
    from fsa_compile.patterns.alternating import determinize_with_conditions
    from fsa_compile.patterns.guarded_glushkov import GuardedPositions

    dfa = determinize_with_conditions(GuardedPositions(tree, limits, deadline), limits, deadline)
    return None if dfa is None else minimize(dfa)

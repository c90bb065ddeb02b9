"""Pattern to letter automaton: chooses the construction. Parsing, positions, conditions and minimising are other modules' work."""

from __future__ import annotations

from fsa_compile.determinize import determinize
from fsa_compile.letters import LetterDfa
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.minimize import minimize
from fsa_compile.positions import Positions
from fsa_compile.syntax_tree import Node


def build_automaton(tree: Node, limits: CompileLimits, deadline: Deadline) -> LetterDfa | None:
    """The minimal deterministic automaton of a syntax tree, or None when it matches no text.

    Raises:
      LimitError: too many positions or states, or too much time.
    """
    positions = Positions(tree, limits, deadline)
    if not positions.first:
        return None
    return minimize(determinize(positions, limits, deadline), acyclic=positions.acyclic)

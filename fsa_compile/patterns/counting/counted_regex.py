"""Patterns with large repetitions to a `ByteMachine` that counts them, so that no bound costs states.

Chooses what is counted and what is written out; the construction is in `counted_loops`, `counter_subsets` and
`counted_pushdown`. Where the text does not tell how many iterations were read, as in `.{0,300}x`, a repetition cannot be counted
by one register and is written out.
"""

from __future__ import annotations

from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.counting.counted_loops import LARGE, build_frames
from fsa_compile.patterns.glushkov import ConditionFound
from fsa_compile.patterns.regex_tree import Node


def counted_machine(tree: Node, limits: CompileLimits, deadline: Deadline, *, large: int = LARGE) -> ByteMachine | None:
    """The machine of a pattern that counts its large repetitions.

    Args:
      tree: syntax tree from `python_syntax.parse`.
      large: repetitions with more positions than this, written out, are counted.

    Returns:
      None when there is nothing to count, or when it cannot be counted exactly; the pattern is to be written out then.
    """
    written_out: frozenset[int] = frozenset()
    while True:
        try:
            frames = build_frames(tree, large, written_out, limits, deadline)
        except ConditionFound:
            from fsa_compile.patterns.guarded_glushkov import strip_edges

            stripped = strip_edges(tree)
            if stripped == tree:
                return None
            tree = stripped
            continue
        if frames is None or not frames[-1].positions.first:  # nothing to count, or no text at all
            return None
        from fsa_compile.patterns.counting.counted_pushdown import spell  # most patterns do without
        from fsa_compile.patterns.counting.counter_subsets import Conflict, Controls

        try:
            return spell(Controls(frames, limits, deadline), limits)
        except Conflict as conflict:
            written_out |= {id(frames[f].repeat) for f in conflict.frames}

"""Patterns with large repetitions to a `ByteMachine` that counts them, so that no bound costs states.

Chooses what is counted and what is written out; the construction is in `counted_frames`, `counted_controls` and
`counted_spelling`. Where the text does not tell how many iterations were read, as in `.{0,300}x`, a repetition cannot be counted
by one register and is written out.
"""

from __future__ import annotations

from fsa_compile.byte_machine import ByteMachine
from fsa_compile.counted_controls import Conflict, Controls
from fsa_compile.counted_frames import LARGE, build_frames
from fsa_compile.counted_spelling import spell
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.positions import ConditionFound
from fsa_compile.syntax_tree import Node


def counted_machine(tree: Node, limits: CompileLimits, deadline: Deadline, *, large: int = LARGE) -> ByteMachine | None:
    """The machine of a pattern that counts its large repetitions.

    Args:
      tree: syntax tree from `regex_syntax.parse`.
      limits: `max_states` bounds the controls.
      deadline: a running time budget.
      large: repetitions with more positions than this, written out, are counted.

    Returns:
      None when there is nothing to count, or when it cannot be counted exactly; the pattern is to be written out then.

    Raises:
      LimitError: too many controls, or too much time.
    """
    written_out: frozenset[int] = frozenset()
    while True:
        try:
            frames = build_frames(tree, large, written_out, limits, deadline)
        except ConditionFound:
            from fsa_compile.conditions import strip_edges

            stripped = strip_edges(tree)
            if stripped == tree:
                return None
            tree = stripped
            continue
        if frames is None or not frames[-1].positions.first:  # nothing to count, or no text at all
            return None
        try:
            return spell(Controls(frames, limits, deadline), limits)
        except Conflict as conflict:
            written_out |= {id(frames[f].repeat) for f in conflict.frames}

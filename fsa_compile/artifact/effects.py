"""Effects of arcs, each stored once: what `CompiledConstraint.effects` and `arc_effect` are made from. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fsa_compile.arrays.integers import exampled, numbered

_ROOM = 1 << 62


def arc_effects(
    target: ArrayLike,
    push: ArrayLike,
    add: ArrayLike,
    set_to: ArrayLike,
    cost: ArrayLike,
    need: ArrayLike,
    *sets: ArrayLike,
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers the distinct effects.

    Args:
      target, push, add, set_to, cost, need: integers [A] of every arc, or one for all.
      sets: guard, and row of `keys`, where the constraint has sets of keys.

    Returns:
      effects int32[E, 6 or 8], whose row 0 stands for none, and int32[A], the effect of each arc.
    """
    columns = np.broadcast_arrays(*(np.asarray(column, np.int64) for column in (target, push, add, set_to, cost, need, *sets)))
    key, room = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if room * (high - low + 1) > _ROOM:
            kinds, key = numbered(key)
            room = len(kinds)
        key = key * (high - low + 1) + (column - low)
        room *= high - low + 1
    _, example, which = exampled(key)
    effects = np.zeros((len(example) + 1, len(columns)), np.int32)
    for i, column in enumerate(columns):
        effects[1:, i] = column[example]
    return effects, (which + 1).astype(np.int32)
